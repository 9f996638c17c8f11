package dev.osb;

/** A stream of events ended before its last event and could not be taken up again. */
public final class StreamBrokenException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    StreamBrokenException(String what, String message, Throwable cause) {
        super("the stream of " + what + " broke off: " + message, "STREAM_BROKEN",
            "ask for the status of the command; run in the background what must outlive a connection", null, cause);
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.STREAM_BROKEN;
    }
}
