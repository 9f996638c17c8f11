package dev.osb;

/** What comes from a terminal. */
public sealed interface TerminalEvent {
    /** This client now holds the terminal. */
    record Connected() implements TerminalEvent {}

    /**
     * Output.
     *
     * @param bytes as they were written
     */
    record Output(byte[] bytes) implements TerminalEvent {}

    /**
     * Error output; only with pipes.
     *
     * @param bytes as they were written
     */
    record ErrorOutput(byte[] bytes) implements TerminalEvent {}

    /**
     * Output from before, or after some that was lost.
     *
     * @param offset from this byte of the whole on
     * @param bytes as they were written
     */
    record Replay(long offset, byte[] bytes) implements TerminalEvent {}

    /**
     * Something that was sent could not be honoured.
     *
     * @param code of the error
     * @param message what happened
     */
    record Refused(String code, String message) implements TerminalEvent {}

    /**
     * The process has ended.
     *
     * @param code its exit code, -1 for a signal
     * @param signal which signal, where the server says so; else null
     */
    record Exit(int code, Integer signal) implements TerminalEvent {}

    /**
     * The connection is closed. Nothing comes after.
     *
     * @param code of the WebSocket; 4001 is another client that took over
     * @param reason why
     */
    record Closed(int code, String reason) implements TerminalEvent {}
}
