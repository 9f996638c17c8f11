package dev.osb;

/** How to connect to a terminal. */
public final class TerminalOptions {
    boolean pipes;
    Long since;
    boolean takeOver;
    TerminalSize size;

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

    /** The size that it gets before its shell starts or anything is replayed. Pipes have no size. */
    public TerminalOptions size(TerminalSize size) {
        this.size = size;
        return this;
    }

    String query() {
        Integer columns = size == null ? null : (Integer) size.columns();
        Integer rows = size == null ? null : (Integer) size.rows();
        return Text.query("pty", pipes ? "0" : null, "since", since, "takeover", takeOver ? "1" : null, "cols", columns, "rows", rows);
    }
}
