package dev.osb;

/** A call makes no sense, and nothing was sent. */
public final class InvalidArgumentException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    InvalidArgumentException(String message) {
        super(message, "INVALID_ARGUMENT", "correct the argument", null, null);
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.INVALID_ARGUMENT;
    }
}
