package dev.osb;

import java.time.Duration;

/** One event of an {@link Execution}. */
public sealed interface ExecutionEvent {
    /**
     * It has begun.
     *
     * @param id what to ask by: a command's id, the session's, the context's
     */
    record Started(String id) implements ExecutionEvent {}

    /**
     * Output.
     *
     * @param text with the line ends it was written with
     */
    record Stdout(String text) implements ExecutionEvent {}

    /**
     * Error output.
     *
     * @param text with the line ends it was written with
     */
    record Stderr(String text) implements ExecutionEvent {}

    /**
     * A value or a display of code.
     *
     * @param result in every form it has
     */
    record Result(RichResult result) implements ExecutionEvent {}

    /**
     * A cell of a context has been counted.
     *
     * @param count how many cells the context has run
     */
    record Count(int count) implements ExecutionEvent {}

    /**
     * It failed.
     *
     * @param failure how
     */
    record Failed(ExecutionFailure failure) implements ExecutionEvent {}

    /**
     * It is over.
     *
     * @param took how long it took; null where the daemon does not say
     */
    record Completed(Duration took) implements ExecutionEvent {}
}
