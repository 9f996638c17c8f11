"""The published Python SDK, unchanged: a command, files, and a service on a port of the sandbox.

Prints:
    hello from a sandbox
    3 lines
    the service says 200
"""

import asyncio
import http.client

from opensandbox import Sandbox
from opensandbox.models.filesystem import WriteEntry


async def main():
    sandbox = await Sandbox.create("host")
    try:
        said = await sandbox.commands.run("echo hello from a sandbox")
        print(said.logs.stdout[0].text.strip())

        await sandbox.files.write_files([WriteEntry(path="/tmp/lines.txt", data="a\nb\nc\n")])
        counted = await sandbox.commands.run("wc -l < /tmp/lines.txt")
        print(counted.logs.stdout[0].text.strip(), "lines")

        # A service in the sandbox is reached through the server: nothing is published on the host.
        serve = (
            "import http.server as h; s = h.HTTPServer(('127.0.0.1', 8000), h.SimpleHTTPRequestHandler); "
            "print('up', flush=True); s.handle_request()"
        )
        await sandbox.commands.run(f'python3 -c "{serve}" >/tmp/log 2>&1 & until grep -q up /tmp/log; do :; done')
        endpoint = await sandbox.get_endpoint(8000)
        host, _, path = endpoint.endpoint.partition("/")
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", f"/{path}/", headers=endpoint.headers or {})
        print("the service says", connection.getresponse().status)
    finally:
        await sandbox.kill()
        await sandbox.close()


asyncio.run(main())
