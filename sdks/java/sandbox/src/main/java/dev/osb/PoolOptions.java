package dev.osb;

import java.time.Duration;

/** What a pool keeps ready, and how. */
public final class PoolOptions {
    /** What to do when none is ready. */
    public enum Policy {
        /** Make one for this caller. */
        CREATE,
        /** Fail with a {@link PoolEmptyException}. */
        FAIL
    }

    final int maxIdle;
    CreateOptions sandbox = new CreateOptions();
    int warmupConcurrency = 8;
    Duration idleTimeout = Duration.ofHours(24);
    Policy policy = Policy.CREATE;

    /** Keeps this many ready. */
    public PoolOptions(int maxIdle) {
        this.maxIdle = maxIdle;
    }

    /** What each sandbox has. How long it lives is the pool's affair. */
    public PoolOptions sandbox(CreateOptions options) {
        sandbox = options.copy();
        return this;
    }

    /** How many are made at the same time. */
    public PoolOptions warmupConcurrency(int count) {
        warmupConcurrency = Math.max(1, count);
        return this;
    }

    /** One that was ready for longer is thrown away. */
    public PoolOptions idleTimeout(Duration timeout) {
        idleTimeout = timeout;
        return this;
    }

    /** What to do when none is ready. */
    public PoolOptions policy(Policy policy) {
        this.policy = policy;
        return this;
    }
}
