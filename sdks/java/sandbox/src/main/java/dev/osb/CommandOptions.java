package dev.osb;

import dev.osb.wire.RunCommandRequest;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;

/** How a command runs. */
public final class CommandOptions {
    private String cwd;
    private final Map<String, String> env = new LinkedHashMap<>();
    private Duration timeout;
    private Integer uid;
    private Integer gid;
    private String stdin;
    private boolean stdinOpen;
    private Consumer<String> onStdout;
    private Consumer<String> onStderr;

    /** As the daemon runs commands that nothing was said about. */
    public CommandOptions() {}

    /** Its working directory. */
    public CommandOptions cwd(String directory) {
        cwd = directory;
        return this;
    }

    /** A variable of its environment, over everything else. */
    public CommandOptions env(String name, String value) {
        env.put(name, value);
        return this;
    }

    /** Variables of its environment, over everything else. */
    public CommandOptions env(Map<String, String> variables) {
        env.putAll(variables);
        return this;
    }

    /** Kills it after this time. */
    public CommandOptions timeout(Duration limit) {
        timeout = limit;
        return this;
    }

    /** Runs it as this user. */
    public CommandOptions uid(int user) {
        uid = user;
        return this;
    }

    /** Runs it as this group; needs a user as well. */
    public CommandOptions gid(int group) {
        gid = group;
        return this;
    }

    /** Extension: text for its stdin, which then ends unless it is kept open. */
    public CommandOptions stdin(String text) {
        stdin = text;
        return this;
    }

    /** Extension: keeps its stdin open for {@link Commands#writeStdin}. */
    public CommandOptions stdinOpen(boolean isOpen) {
        stdinOpen = isOpen;
        return this;
    }

    /** Called with output as it comes, by {@code run}; on a thread of the library's, which it must not hold up. */
    public CommandOptions onStdout(Consumer<String> act) {
        onStdout = act;
        return this;
    }

    /** Called with error output as it comes, by {@code run}; on a thread of the library's, which it must not hold up. */
    public CommandOptions onStderr(Consumer<String> act) {
        onStderr = act;
        return this;
    }

    Consumer<String> onStdout() {
        return onStdout;
    }

    Consumer<String> onStderr() {
        return onStderr;
    }

    RunCommandRequest request(boolean isBackground) {
        return new RunCommandRequest()
            .withBackground(isBackground)
            .withCwd(cwd)
            .withEnvs(env.isEmpty() ? null : env)
            .withTimeout(timeout == null ? null : Durations.milliseconds(timeout))
            .withUid(uid == null ? null : uid)
            .withGid(gid == null ? null : gid)
            .withStdin(stdin)
            .withStdinOpen(stdinOpen ? true : null);
    }
}
