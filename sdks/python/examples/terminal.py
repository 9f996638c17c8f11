"""Types into a terminal and reads its screen."""

import os

from osb import Sandbox
from osb.terminal_events import Exited, TerminalOutput

with Sandbox.create(os.environ.get("OSB_EXAMPLE_IMAGE", "python:3.12")) as sandbox:
    with sandbox.terminals.create() as terminal, terminal.connect() as connection:
        connection.resize(100, 30)
        connection.write("stty size; exit\n")
        for event in connection:
            if isinstance(event, TerminalOutput):
                print(event.data.decode(), end="")
            elif isinstance(event, Exited):
                print("the shell ended with", event.code)
