"""Makes a sandbox, runs a command, edits a file, runs code that remembers."""

import os

from osb import Sandbox

with Sandbox.create(os.environ.get("OSB_EXAMPLE_IMAGE", "python:3.12")) as sandbox:
    output = sandbox.commands.run("echo hello from $(uname -s); exit 3")
    print(f"{output.stdout.strip()} (exit code {output.exit_code})")

    sandbox.files.write("/tmp/data.csv", "a,b\n1,2\n")
    sandbox.code.run("import csv; rows = list(csv.DictReader(open('/tmp/data.csv')))")
    print("rows:", sandbox.code.run("rows").text)
