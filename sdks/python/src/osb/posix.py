"""The end of a command and the errors of files as POSIX programs and Python itself know them.

For what adapts sandboxes to frameworks, which expect exit statuses as a shell tells them and `OSError`s. Nothing
here speaks to a server.
"""

from __future__ import annotations

import re
from typing import Union

from .errors import OsbError
from .results import Output

__all__ = ["exit_status", "has_timed_out", "os_error"]

# How a shell tells of a program that is not there, and of one that cannot be run.
NOT_FOUND = 127
NOT_EXECUTABLE = 126
# What a shell adds to the number of a signal.
SIGNALLED = 128
# Signals by the names that the daemon gives them, numbered as on Linux.
_SIGNALS = {
    "hangup": 1, "interrupt": 2, "quit": 3, "illegal instruction": 4, "aborted": 6, "bus error": 7,
    "floating point exception": 8, "killed": 9, "user defined signal 1": 10, "segmentation fault": 11,
    "user defined signal 2": 12, "broken pipe": 13, "alarm clock": 14, "terminated": 15,
}


def has_timed_out(output: Output) -> bool:
    """Whether a command was ended because its time was over."""
    return output.error is not None and "the command ran out of its timeout" in output.error.traceback


def exit_status(output: Output) -> int:
    """The exit status as a shell tells it: 128 and the signal's number for a signal, 127 for a program that is
    not there, 126 for one that cannot be run."""
    if output.exit_code is not None and output.exit_code >= 0:
        return output.exit_code
    if output.ending.signal is not None:
        numbered = re.match(r"signal (\d+)", output.ending.signal)
        return SIGNALLED + (int(numbered[1]) if numbered else _SIGNALS.get(output.ending.signal, 0))
    said = output.error.value if output.error is not None else ""
    return NOT_FOUND if "not found" in said or "No such file" in said else NOT_EXECUTABLE


def os_error(error: OsbError, path: str) -> Union[OsbError, OSError]:
    """An error about a file as Python's own, where there is one for it; else the error as it is."""
    text = str(error)
    if "is not a directory" in text or "Not a directory" in text:
        return NotADirectoryError(f"Not a directory: {path}")
    if "is a directory" in text or "Is a directory" in text:
        return IsADirectoryError(f"Is a directory: {path}")
    if "Permission denied" in text or "Operation not permitted" in text:
        return PermissionError(f"Permission denied: {path}")
    if error.is_not_found and error.code == "FILE_NOT_FOUND":
        return FileNotFoundError(f"No such file or directory: {path}")
    return error
