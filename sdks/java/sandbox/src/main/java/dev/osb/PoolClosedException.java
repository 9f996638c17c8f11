package dev.osb;

/** The pool was shut down. */
public final class PoolClosedException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    PoolClosedException() {
        super("the pool is shut down", "POOL_CLOSED", "start another", null, null);
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.POOL_CLOSED;
    }
}
