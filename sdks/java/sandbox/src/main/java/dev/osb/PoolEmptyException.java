package dev.osb;

/** The pool has no idle sandbox and its policy is not to make one. */
public final class PoolEmptyException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    PoolEmptyException(Throwable cause) {
        super("the pool has no idle sandbox", "POOL_EMPTY", "wait, make it larger, or let it create on demand", null, cause);
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.POOL_EMPTY;
    }

    @Override
    public boolean isRetryable() {
        return true;
    }
}
