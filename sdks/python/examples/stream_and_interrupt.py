"""Follows a command as it prints, writes to its input, and stops it by its id."""

import os

from osb import Sandbox, Started, Stdout

with Sandbox.create(os.environ.get("OSB_EXAMPLE_IMAGE", "python:3.12")) as sandbox:
    execution = sandbox.commands.start("read name; echo hello $name; sleep infinity", stdin_open=True)
    for event in execution:
        match event:
            case Started(id):
                sandbox.commands.write_stdin(id, "world\n")
            case Stdout(text):
                print("it said:", text.strip())
                sandbox.commands.interrupt(execution.id or "")
            case other:
                print("and ended:", other)
