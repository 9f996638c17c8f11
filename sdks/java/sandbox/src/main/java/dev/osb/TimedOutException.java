package dev.osb;

import java.time.Duration;

/** No answer came in time. */
public final class TimedOutException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    private final Duration after;

    TimedOutException(String what, Duration after) {
        super(what + " took longer than " + Durations.text(after), "TIMEOUT",
            "allow more time, or look at what keeps the server or the sandbox busy", null, null);
        this.after = after;
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.TIMEOUT;
    }

    /** How long was waited. */
    public Duration after() {
        return after;
    }

    @Override
    public boolean isRetryable() {
        return true;
    }
}
