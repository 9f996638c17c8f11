package dev.osb;

import java.time.Duration;

/** How to wait until a sandbox can be used. */
public class ReadyOptions {
    /** How long a sandbox may take to be ready, as in the other SDKs. */
    public static final Duration DEFAULT_READY_TIMEOUT = Duration.ofSeconds(30);

    Duration readyTimeout = DEFAULT_READY_TIMEOUT;
    Duration healthCheckInterval = Duration.ofMillis(200);
    boolean skipReady;
    boolean resume;

    /** As the other SDKs wait. */
    public ReadyOptions() {}

    /** How long it may take to be ready, pulling its image included. */
    public ReadyOptions readyTimeout(Duration timeout) {
        readyTimeout = timeout;
        return this;
    }

    /**
     * How long to wait before asking again whether it is ready. Our server holds the first request until it is; the
     * published one tells nobody, so that asking again is all there is.
     */
    public ReadyOptions healthCheckInterval(Duration interval) {
        healthCheckInterval = interval;
        return this;
    }

    /** Does not wait until it answers. */
    public ReadyOptions skipReady(boolean skip) {
        skipReady = skip;
        return this;
    }

    /** Resumes it first, when it is paused. */
    public ReadyOptions resume(boolean resume) {
        this.resume = resume;
        return this;
    }
}
