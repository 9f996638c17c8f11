package dev.osb;

/** The thread was interrupted while it waited, and the call was given up. The thread stays interrupted. */
public final class CancelledException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    CancelledException(Throwable cause) {
        super("the call was given up because its thread was interrupted", "CANCELLED", "nothing; its caller asked for it", null, cause);
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.CANCELLED;
    }
}
