package dev.osb;

/** How to connect to a terminal. */
public final class TerminalOptions {
    boolean pipes;
    Long since;
    boolean takeOver;

    /** As a terminal, from now on, if nobody holds it. */
    public TerminalOptions() {}

    /** Pipes instead of a terminal, with stderr apart. */
    public TerminalOptions pipes(boolean pipes) {
        this.pipes = pipes;
        return this;
    }

    /** Replays output from this byte on. */
    public TerminalOptions since(long offset) {
        since = offset;
        return this;
    }

    /** Takes it from the client that holds it. */
    public TerminalOptions takeOver(boolean takeOver) {
        this.takeOver = takeOver;
        return this;
    }

    String query() {
        return Text.query("pty", pipes ? "0" : null, "since", since, "takeover", takeOver ? "1" : null);
    }
}
