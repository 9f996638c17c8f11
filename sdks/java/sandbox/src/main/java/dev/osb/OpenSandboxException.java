package dev.osb;

/**
 * What every error of this library is: what happened, why (its cause), and what to do next. Exit codes of commands and
 * exceptions of code are no errors of the library: they are in the {@link Output} of the execution.
 */
public abstract class OpenSandboxException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String code;
    private final String remedy;
    private final String requestId;

    OpenSandboxException(String message, String code, String remedy, String requestId, Throwable cause) {
        super(message, cause);
        this.code = code;
        this.remedy = remedy;
        // One that wraps another is about the same request.
        this.requestId = requestId == null && cause instanceof OpenSandboxException inner ? inner.requestId : requestId;
    }

    /** The class of the error. */
    public abstract ErrorKind kind();

    /** The error's code: the server's own for an {@link ApiException}, else one of this library. */
    public String code() {
        return code;
    }

    /** What to do next. */
    public String remedy() {
        return remedy;
    }

    /** The id under which the server logged the request; null if none came. */
    public String requestId() {
        return requestId;
    }

    /** The HTTP status, of this error or of the one behind it; 0 if no answer came. */
    public int status() {
        return getCause() instanceof OpenSandboxException inner ? inner.status() : 0;
    }

    /** Whether what was asked for does not exist. */
    public boolean isNotFound() {
        return status() == 404;
    }

    /** Whether the key is missing, wrong, or may not do this. */
    public boolean isUnauthorized() {
        return status() == 401 || status() == 403;
    }

    /**
     * Whether the same call may succeed later. Says nothing about whether repeating it is safe: the library repeats by
     * itself what is.
     */
    public boolean isRetryable() {
        return isPassing(status());
    }

    /** Statuses that say "not now". */
    static boolean isPassing(int status) {
        return status == 429 || status == 502 || status == 503;
    }
}
