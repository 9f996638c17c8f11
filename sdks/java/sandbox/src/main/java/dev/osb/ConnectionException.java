package dev.osb;

/** No answer came: the other side cannot be reached, or the connection broke. */
public final class ConnectionException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    private final String url;
    private final boolean isUnsent;

    ConnectionException(String url, boolean isUnsent, Throwable cause) {
        super(url + " cannot be reached" + reason(cause) + "; " + REMEDY, "CONNECTION_FAILED", REMEDY, null, cause);
        this.url = url;
        this.isUnsent = isUnsent;
    }

    private static final String REMEDY = "check the domain and that the server runs";

    /** The innermost message, which names the cause where the outer ones say only that it failed. */
    private static String reason(Throwable cause) {
        String reason = "";
        for (Throwable error = cause; error != null; error = error.getCause()) {
            if (error.getMessage() != null && !error.getMessage().isEmpty()) reason = ": " + error.getMessage();
        }
        return reason;
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.CONNECTION;
    }

    /** Where the request went, without its query. */
    public String url() {
        return url;
    }

    /** Whether the request certainly did not arrive, so that repeating it is safe. */
    public boolean isUnsent() {
        return isUnsent;
    }

    @Override
    public boolean isRetryable() {
        return true;
    }
}
