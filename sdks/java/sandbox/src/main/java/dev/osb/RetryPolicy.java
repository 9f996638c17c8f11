package dev.osb;

import java.time.Duration;

/**
 * When a request is sent again. Only requests that change nothing, or that did certainly not arrive, are.
 *
 * @param attempts attempts after the first; 0 is none
 * @param firstDelay the shortest wait between two attempts
 * @param longestDelay the longest wait between two attempts, also when the server asks for more
 */
public record RetryPolicy(int attempts, Duration firstDelay, Duration longestDelay) {
    /** Three more attempts, half a second to half a minute apart, as in the other SDKs. */
    public static final RetryPolicy DEFAULT = new RetryPolicy(3, Duration.ofMillis(500), Duration.ofSeconds(30));

    /** No second attempt. */
    public static final RetryPolicy NONE = new RetryPolicy(0, Duration.ZERO, Duration.ZERO);
}
