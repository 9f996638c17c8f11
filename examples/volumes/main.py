"""A volume that outlives sandboxes: written by one, read by another that may not write, and by a third that sees a part.

Prints:
    the second reads: kept in the volume
    the second may not write: Read-only file system
    the third sees: report.txt
"""

import asyncio
import uuid

from opensandbox import Sandbox
from opensandbox.models.sandboxes import PVC, Volume

NAME = f"example-{uuid.uuid4().hex[:8]}"


def volume(**options):
    # A claim names a volume of the server, which is made when it is first asked for.
    return Volume(name="data", pvc=PVC(claim_name=NAME, delete_on_sandbox_termination=False), mount_path="/data", **options)


async def run(command, **options):
    sandbox = await Sandbox.create("host", volumes=[volume(**options)])
    try:
        done = await sandbox.commands.run(command)
        return "".join(message.text for message in done.logs.stdout + done.logs.stderr).strip()
    finally:
        await sandbox.kill()
        await sandbox.close()


async def main():
    await run("mkdir /data/reports && echo kept in the volume | tee /data/note.txt > /data/reports/report.txt")
    print("the second reads:", await run("cat /data/note.txt", read_only=True))
    refused = await run("touch /data/other", read_only=True)
    print("the second may not write:", refused.rpartition(": ")[2])
    print("the third sees:", await run("ls /data", sub_path="reports"))


asyncio.run(main())
