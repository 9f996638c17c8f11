package dev.osb;

import java.time.Duration;

/** Times as the protocol and messages write them. */
final class Durations {
    private Durations() {}

    /** In seconds, as people read it. */
    static String text(Duration duration) {
        double seconds = duration.toMillis() / 1000.0;
        return (seconds == Math.rint(seconds) ? String.valueOf((long) seconds) : String.valueOf(seconds)) + " s";
    }

    /** A lifetime as the protocol writes it. */
    static long wholeSeconds(Duration duration) {
        if (duration.compareTo(Duration.ofSeconds(1)) < 0) {
            throw new InvalidArgumentException(duration + " is not a time of at least a second");
        }
        return duration.toSeconds();
    }

    /** A limit as the protocol writes it; at least one, because 0 is forever. */
    static long milliseconds(Duration duration) {
        if (duration.isNegative()) throw new InvalidArgumentException(duration + " is a time before now");
        return Math.max(1, saturated(duration));
    }

    /** Milliseconds, as many as there are numbers for. */
    static long saturated(Duration duration) {
        try {
            return duration.toMillis();
        } catch (ArithmeticException error) {
            return duration.isNegative() ? Long.MIN_VALUE : Long.MAX_VALUE;
        }
    }
}
