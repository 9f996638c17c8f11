package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CodeContext;
import dev.osb.wire.CodeContextRequest;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * Code that remembers: contexts, and cells that run in them. An exception of the code is no error: look at
 * {@link Output#failure}.
 */
public final class Code {
    private final Sandbox sandbox;

    Code(Sandbox sandbox) {
        this.sandbox = sandbox;
    }

    /** Runs code in the default context. */
    public Output run(String code) {
        return run(code, new CodeOptions());
    }

    /** Runs code. */
    public Output run(String code, CodeOptions options) {
        return await(runAsync(code, options));
    }

    /** {@link #run(String, CodeOptions)} without blocking. */
    public CompletableFuture<Output> runAsync(String code, CodeOptions options) {
        return Commands.watched(startAsync(code, options), options.onStdout, options.onStderr);
    }

    /** Starts code and answers its events as they come. */
    public Execution start(String code, CodeOptions options) {
        return await(startAsync(code, options));
    }

    /** {@link #start} without blocking. */
    public CompletableFuture<Execution> startAsync(String code, CodeOptions options) {
        Call call = Call.post("/code").json(options.request(code));
        return sandbox.exec(exec -> Task.map(exec.send(call), answer -> new Execution(answer, Execution.Kind.CONTEXT, exec, null, null)));
    }

    /** Makes a context of a language. */
    public CodeContext createContext(String language) {
        return createContext(language, null, Map.of());
    }

    /** Makes a context of a language in a directory, which may be null; extension: with variables over everything else. */
    public CodeContext createContext(String language, String cwd, Map<String, String> env) {
        return await(createContextAsync(language, cwd, env));
    }

    /** {@link #createContext(String, String, Map)} without blocking. */
    public CompletableFuture<CodeContext> createContextAsync(String language, String cwd, Map<String, String> env) {
        Call call = Call.post("/code/context").json(new CodeContextRequest(cwd, env.isEmpty() ? null : env, language));
        return sandbox.exec(exec -> exec.json(call, CodeContext::fromJson));
    }

    /** A context. */
    public CodeContext getContext(String id) {
        return await(getContextAsync(id));
    }

    /** {@link #getContext} without blocking. */
    public CompletableFuture<CodeContext> getContextAsync(String id) {
        Call call = Call.get("/code/contexts/" + Text.segment(id));
        return sandbox.exec(exec -> exec.json(call, CodeContext::fromJson));
    }

    /** The contexts of a language; null is of all. */
    public List<CodeContext> listContexts(String language) {
        return await(listContextsAsync(language));
    }

    /** {@link #listContexts} without blocking. */
    public CompletableFuture<List<CodeContext>> listContextsAsync(String language) {
        Call call = Call.get("/code/contexts").query("language", language);
        return sandbox.exec(exec -> exec.json(call, Lists.of(CodeContext::fromJson)));
    }

    /** Ends a context. */
    public void deleteContext(String id) {
        await(deleteContextAsync(id));
    }

    /** {@link #deleteContext} without blocking. */
    public CompletableFuture<Void> deleteContextAsync(String id) {
        Call call = Call.delete("/code/contexts/" + Text.segment(id));
        return sandbox.exec(exec -> exec.done(call));
    }

    /** Ends the contexts of a language. */
    public void deleteContexts(String language) {
        await(deleteContextsAsync(language));
    }

    /** {@link #deleteContexts} without blocking. */
    public CompletableFuture<Void> deleteContextsAsync(String language) {
        Call call = Call.delete("/code/contexts").query("language", language);
        return sandbox.exec(exec -> exec.done(call));
    }

    /** Interrupts what runs in a context, which is named by the id of the event {@code Started}. */
    public void interrupt(String id) {
        await(interruptAsync(id));
    }

    /** {@link #interrupt} without blocking. */
    public CompletableFuture<Void> interruptAsync(String id) {
        Call call = Call.delete("/code").query("id", id);
        return sandbox.exec(exec -> exec.done(call));
    }
}
