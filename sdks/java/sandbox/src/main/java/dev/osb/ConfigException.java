package dev.osb;

/** The connection's settings are not usable. */
public final class ConfigException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    private final String origin;

    ConfigException(String origin, String message, Throwable cause) {
        super(origin + ": " + message, "CONFIG", "correct " + origin, null, cause);
        this.origin = origin;
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.CONFIG;
    }

    /** Where the setting stands: a variable, a file, a field. */
    public String origin() {
        return origin;
    }
}
