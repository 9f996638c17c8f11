package dev.osb;

import dev.osb.wire.RunInSessionRequest;
import java.time.Duration;
import java.util.function.Consumer;

/** How shell text runs in a session. */
public final class SessionRunOptions {
    private String cwd;
    private Duration timeout;
    Consumer<String> onStdout;
    Consumer<String> onStderr;

    /** Where the session is, for as long as it takes. */
    public SessionRunOptions() {}

    /** Where to run; the session goes on from there. */
    public SessionRunOptions cwd(String directory) {
        cwd = directory;
        return this;
    }

    /** Ends this run, not the session, after this time. */
    public SessionRunOptions timeout(Duration limit) {
        timeout = limit;
        return this;
    }

    /** Called with output as it comes, by {@code run}; on a thread of the library's, which it must not hold up. */
    public SessionRunOptions onStdout(Consumer<String> act) {
        onStdout = act;
        return this;
    }

    /** Called with error output as it comes, by {@code run}; on a thread of the library's, which it must not hold up. */
    public SessionRunOptions onStderr(Consumer<String> act) {
        onStderr = act;
        return this;
    }

    RunInSessionRequest request(String command) {
        return new RunInSessionRequest(command).withCwd(cwd).withTimeout(timeout == null ? null : Durations.milliseconds(timeout));
    }
}
