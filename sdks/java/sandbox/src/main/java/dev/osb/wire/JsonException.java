package dev.osb.wire;

/** Text is not JSON, or JSON is not what the protocol says. */
public final class JsonException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** With what is wrong. */
    public JsonException(String message) {
        super(message);
    }
}
