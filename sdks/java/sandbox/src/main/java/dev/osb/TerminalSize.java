package dev.osb;

/**
 * How large a terminal is, in characters.
 *
 * @param columns its width
 * @param rows its height
 */
public record TerminalSize(int columns, int rows) {}
