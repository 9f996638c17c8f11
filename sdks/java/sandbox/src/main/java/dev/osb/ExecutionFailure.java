package dev.osb;

import java.util.List;

/**
 * How an execution failed.
 *
 * @param name {@code CommandExecError}, {@code NameError}
 * @param value the exit code of a command, the message of an exception
 * @param traceback where it happened, one entry per line
 */
public record ExecutionFailure(String name, String value, List<String> traceback) {}
