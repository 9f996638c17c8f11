package dev.osb;

import java.time.Duration;

/** A sandbox was not ready in time. */
public final class NotReadyException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    private final String sandboxId;

    NotReadyException(String sandboxId, Duration after, Throwable cause) {
        super("sandbox " + sandboxId + " was not ready after " + Durations.text(after), "NOT_READY",
            "look at its diagnostics, or wait longer with readyTimeout", null, cause);
        this.sandboxId = sandboxId;
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.NOT_READY;
    }

    /** The sandbox. */
    public String sandboxId() {
        return sandboxId;
    }
}
