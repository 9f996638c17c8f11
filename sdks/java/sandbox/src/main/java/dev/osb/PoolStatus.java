package dev.osb;

/**
 * How a pool stands.
 *
 * @param idle how many are ready
 * @param warming how many are being made
 * @param maxIdle how many are to be ready
 * @param isDegraded whether the last attempts to make one failed
 */
public record PoolStatus(int idle, int warming, int maxIdle, boolean isDegraded) {}
