package dev.osb;

import dev.osb.wire.ContextRef;
import dev.osb.wire.RunCodeRequest;
import java.time.Duration;
import java.util.function.Consumer;

/** How code runs. */
public final class CodeOptions {
    private String language;
    private String context;
    private Duration timeout;
    Consumer<String> onStdout;
    Consumer<String> onStderr;

    /** In the default context of Python. */
    public CodeOptions() {}

    /** In the default context of this language. */
    public CodeOptions language(String language) {
        this.language = language;
        return this;
    }

    /** In this context, by its id. */
    public CodeOptions context(String id) {
        context = id;
        return this;
    }

    /** Extension: interrupts it after this time. */
    public CodeOptions timeout(Duration limit) {
        timeout = limit;
        return this;
    }

    /** Called with output as it comes, by {@code run}; on a thread of the library's, which it must not hold up. */
    public CodeOptions onStdout(Consumer<String> act) {
        onStdout = act;
        return this;
    }

    /** Called with error output as it comes, by {@code run}; on a thread of the library's, which it must not hold up. */
    public CodeOptions onStderr(Consumer<String> act) {
        onStderr = act;
        return this;
    }

    RunCodeRequest request(String code) {
        ContextRef place = language == null && context == null ? null : new ContextRef().withId(context).withLanguage(language);
        return new RunCodeRequest(code).withContext(place).withTimeout(timeout == null ? null : Durations.milliseconds(timeout));
    }
}
