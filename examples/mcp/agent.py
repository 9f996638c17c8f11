"""What an agent does with `osb mcp`: list the tools, make a sandbox, run a command, end it.

The limits behind `osb mcp` hold whatever the agent asks for: here one image, and no other sandboxes than
its own.

Prints:
    sandbox_create is among the tools
    6 * 7 = 42
    an image that is not allowed: refused
"""

import asyncio
import os

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

LIMITS = ["--allow-image", "host", "--own-sandboxes-only"]


async def main():
    osb = os.environ.get("OSB_BIN", "osb")
    server = StdioServerParameters(command=osb, args=["mcp", *LIMITS], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        print("sandbox_create is", "among" if "sandbox_create" in tools else "not among", "the tools")

        made = await session.call_tool("sandbox_create", {"image": "host"})
        sandbox = made.structured_content["sandbox_id"]
        ran = await session.call_tool("command_run", {"sandbox_id": sandbox, "command": "echo 6 '*' 7 = $((6 * 7))"})
        print(ran.structured_content["logs"]["stdout"][0]["text"].strip())

        refused = await session.call_tool("sandbox_create", {"image": "somebody/else"})
        print("an image that is not allowed:", "refused" if refused.is_error else "made")
        await session.call_tool("sandbox_kill", {"sandbox_id": sandbox})


asyncio.run(main())
