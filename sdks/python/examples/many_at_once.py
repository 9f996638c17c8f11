"""Uses twenty sandboxes at once from one thread, from a pool that keeps some ready."""

import asyncio
import os

from osb import AsyncPool


async def main() -> None:
    async with AsyncPool(os.environ.get("OSB_EXAMPLE_IMAGE", "python:3.12"), max_idle=4) as pool:

        async def use(number: int) -> str:
            async with await pool.acquire(lifetime=120) as sandbox:
                return (await sandbox.commands.run(["echo", str(number * number)])).stdout.strip()

        print(" ".join(await asyncio.gather(*[use(number) for number in range(20)])))


asyncio.run(main())
