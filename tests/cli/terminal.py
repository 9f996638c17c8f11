"""A program at a pseudo-terminal: its screen as bytes, its keys, its size, its end."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time

# What a test waits for comes within this, also on a busy machine.
WAIT_SECONDS = 40

# No program prints this.
END = b"\0end of output\0"


class Terminal:
    def __init__(self, command, environment, columns, rows):
        self.master, slave = os.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            # The terminal must control the program, or nobody tells it of a new size.
            ["setsid", "--ctty", "--wait", *command],
            stdin=slave, stdout=slave, stderr=slave, env=environment,
        )
        self.slave = slave
        self.screen = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text if isinstance(text, bytes) else text.encode())

    def expect(self, text):
        """Reads until the text is on the screen; forgets everything up to its end."""
        wanted = text if isinstance(text, bytes) else text.encode()
        end = time.monotonic() + WAIT_SECONDS
        while wanted not in self.screen:
            left = end - time.monotonic()
            ready = select.select([self.master], [], [], max(left, 0))[0] if left > 0 else []
            assert ready, f"waited for {text!r}, have {self.screen.decode(errors='replace')!r}"
            self.screen += os.read(self.master, 65536)
        before, _, self.screen = self.screen.partition(wanted)
        return before.decode(errors="replace")

    def end(self):
        """The exit code, once the program has ended, all it printed is on the screen, and the terminal is as it was."""
        until = time.monotonic() + WAIT_SECONDS
        ended = os.pidfd_open(self.process.pid)
        try:
            # Read on: a program that prints must not wait for us.
            while ended not in (ready := select.select([self.master, ended], [], [], max(until - time.monotonic(), 0))[0]):
                assert ready, f"has not ended: {self.screen.decode(errors='replace')!r}"
                self.screen += os.read(self.master, 65536)
        finally:
            os.close(ended)
        # What was printed passes through the kernel's queue behind the program's end; what we print
        # now comes after it.
        while select.select([self.master], [], [], 0)[0]:
            self.screen += os.read(self.master, 65536)
        os.write(self.slave, END)
        while END not in self.screen:
            assert select.select([self.master], [], [], max(until - time.monotonic(), 0))[0], "the end is not to be seen"
            self.screen += os.read(self.master, 65536)
        self.screen = self.screen.replace(END, b"")
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        self.process.wait()
        return self.process.returncode
