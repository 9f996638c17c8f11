package dev.osb;

/** An answer is not what the protocol says. */
public final class UnreadableException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    UnreadableException(String what, String message, Throwable cause) {
        super("the answer of " + what + " is not readable: " + message + "; is this an OpenSandbox server?", "UNREADABLE",
            "check that the domain leads to an OpenSandbox server", null, cause);
    }

    UnreadableException(String what, String message, String remedy, Throwable cause) {
        super(what + " is not readable: " + message, "UNREADABLE", remedy, null, cause);
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.UNREADABLE;
    }
}
