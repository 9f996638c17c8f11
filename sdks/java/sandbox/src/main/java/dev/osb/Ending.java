package dev.osb;

/** How an execution ended. */
public sealed interface Ending {
    /**
     * With a code.
     *
     * @param code the exit code
     */
    record Code(int code) implements Ending {}

    /**
     * By a signal.
     *
     * @param signal its name
     */
    record Signal(String signal) implements Ending {}

    /** With an exception, or it did not start or end at all. */
    record Failed() implements Ending {}
}
