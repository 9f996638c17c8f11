package dev.osb;

/** A sandbox, snapshot or command got into a state from which what was waited for never comes. */
public final class FailedException extends OpenSandboxException {
    private static final long serialVersionUID = 1;

    private final String state;

    FailedException(String subject, String state, String message) {
        super(subject + " is " + state + (message == null || message.isEmpty() ? "" : ": " + message), "FAILED",
            state.equals("Paused") || state.equals("Pausing") ? "resume it first" : "look at its diagnostics and make another",
            null, null);
        this.state = state;
    }

    @Override
    public ErrorKind kind() {
        return ErrorKind.FAILED;
    }

    /** Its state. */
    public String state() {
        return state;
    }
}
