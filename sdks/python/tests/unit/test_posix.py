"""How the end of a command and the errors of files are told as POSIX programs and Python know them."""

import unittest

from osb.errors import ApiError
from osb.posix import exit_status, has_timed_out, os_error
from osb.results import Completed, ErrorEvent, ExecutionFailure, Output


def ended(value, *traceback):
    output = Output()
    output.push(ErrorEvent(ExecutionFailure("CommandExecError", value, list(traceback))))
    return output


class Posix(unittest.TestCase):
    def test_exit_status_is_as_a_shell_tells_it(self):
        done = Output()
        done.push(Completed(0.1))
        self.assertEqual(exit_status(done), 0)
        self.assertEqual(exit_status(ended("3", "exit status 3")), 3)
        self.assertEqual(exit_status(ended("-1", "signal: terminated")), 143)
        self.assertEqual(exit_status(ended("-1", "signal: signal 34")), 162)
        self.assertEqual(exit_status(ended("nothing: not found in PATH", "nothing: not found in PATH")), 127)
        self.assertEqual(exit_status(ended("/etc/passwd did not start: Permission denied")), 126)

    def test_only_a_timeout_is_one(self):
        self.assertTrue(has_timed_out(ended("-1", "signal: killed", "the command ran out of its timeout")))
        self.assertFalse(has_timed_out(ended("-1", "signal: killed")))

    def test_errors_of_files_are_pythons(self):
        for status, code, message, kind in [
            (404, "FILE_NOT_FOUND", "/x does not exist", FileNotFoundError),
            (400, "INVALID_REQUEST", "/x is a directory", IsADirectoryError),
            (400, "INVALID_REQUEST", "/x has a parent that is not a directory", NotADirectoryError),
            (403, "FORBIDDEN", "opening /x: Permission denied (os error 13)", PermissionError),
        ]:
            self.assertIsInstance(os_error(ApiError("GET /files", status, message, code), "/x"), kind, message)
        other = ApiError("GET /files", 500, "the disk is full", "RUNTIME_ERROR")
        self.assertIs(os_error(other, "/x"), other)


if __name__ == "__main__":
    unittest.main()
