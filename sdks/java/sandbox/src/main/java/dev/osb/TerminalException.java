package dev.osb;

/** A terminal's connection failed. */
public final class TerminalException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    TerminalException(String message, String remedy, Throwable cause) {
        super("the terminal's connection failed: " + message, "TERMINAL", remedy, null, cause);
    }

    TerminalException(String message, Throwable cause) {
        this(message, "connect again; since() replays what was missed", cause);
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.TERMINAL;
    }
}
