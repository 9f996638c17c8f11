package dev.osb;

import java.time.Duration;
import java.util.List;

/** The server or the daemon in the sandbox answered with an error. */
public final class ApiException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    private final String request;
    private final String reason;
    private final int status;
    private final transient Duration retryAfter;
    private final List<String> details;

    ApiException(String request, int status, String code, String reason, String requestId, Duration retryAfter, List<String> details) {
        super(message(request, status, code, reason, requestId), code, remedy(status), requestId, null);
        this.request = request;
        this.reason = reason;
        this.status = status;
        this.retryAfter = retryAfter;
        this.details = List.copyOf(details);
    }

    private static String message(String request, int status, String code, String reason, String requestId) {
        return reason + " (" + request + ": " + status + (code.isEmpty() ? "" : ", " + code)
            + (requestId == null ? "" : ", request " + requestId) + ")";
    }

    private static String remedy(int status) {
        return switch (status) {
            case 400, 422 -> "correct the request as the message says";
            case 401, 403 -> "check the API key: OPEN_SANDBOX_API_KEY, or apiKey of the connection";
            case 404 -> "check the id or path; a sandbox is gone when its lifetime is over";
            case 409 -> "look at the state of what this is about, which does not allow it now";
            case 410 -> "begin again: what was asked for is no longer kept";
            case 429, 502, 503, 504 -> "try again later";
            case 501 -> "use another server or backend: this one does not do that";
            default -> "look for the request id in the server's log";
        };
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.API;
    }

    @Override
    public int status() {
        return status;
    }

    /** The request: method and path. */
    public String request() {
        return request;
    }

    /** What happened, as the server says it, without the request and its id. */
    public String reason() {
        return reason;
    }

    /** When to try again, if the server said so; else null. */
    public Duration retryAfter() {
        return retryAfter;
    }

    /** Every problem of a request that failed validation. */
    public List<String> details() {
        return details;
    }
}
