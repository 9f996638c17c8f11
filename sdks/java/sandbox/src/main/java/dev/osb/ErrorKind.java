package dev.osb;

/** The class of an error, for programs that switch over it. */
public enum ErrorKind {
    /** {@link ApiException}. */
    API,
    /** {@link ConnectionException}. */
    CONNECTION,
    /** {@link TimedOutException}. */
    TIMEOUT,
    /** {@link UnreadableException}. */
    UNREADABLE,
    /** {@link StreamBrokenException}. */
    STREAM_BROKEN,
    /** {@link NotReadyException}. */
    NOT_READY,
    /** {@link FailedException}. */
    FAILED,
    /** {@link ConfigException}. */
    CONFIG,
    /** {@link InvalidArgumentException}. */
    INVALID_ARGUMENT,
    /** {@link TerminalException}. */
    TERMINAL,
    /** {@link PoolEmptyException}. */
    POOL_EMPTY,
    /** {@link PoolClosedException}. */
    POOL_CLOSED,
    /** {@link CancelledException}. */
    CANCELLED
}
