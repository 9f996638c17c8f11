"""The published Playwright, outside, drives Chromium in a sandbox of the image `opensandbox/browser` (`make image NAME=browser`): no
browser is installed here.

Prints:
    title: Written inside
    text: hello from the sandbox
    screenshot: PNG
"""

import os
from datetime import timedelta

import httpx
from opensandbox.config import ConnectionConfigSync
from opensandbox.sync import SandboxSync
from playwright.sync_api import sync_playwright


def ask(sandbox, port, path):
    """An answer of a port of the sandbox, through the server."""
    endpoint = sandbox.get_endpoint(port)
    return httpx.get(f"http://{endpoint.endpoint}{path}", headers=endpoint.headers or {}, timeout=60)


def is_ready(sandbox):
    try:
        return ask(sandbox, 6080, "/desktop/still?quiet_ms=300&timeout_ms=20000").status_code == 200
    except httpx.HTTPError:
        return False


sandbox = SandboxSync.create(
    os.environ.get("SANDBOX_IMAGE", "opensandbox/browser:latest"), entrypoint=["/entrypoint"],
    resource={"cpu": "2", "memory": "3Gi"}, health_check=is_ready, ready_timeout=timedelta(minutes=2),
    # People's browsers load scripts from these pages, which needs an origin of their own.
    extensions={"opensandbox.extensions.page-origin": "shared"},
    connection_config=ConnectionConfigSync(
        domain=os.environ.get("SANDBOX_DOMAIN"), api_key=os.environ.get("SANDBOX_API_KEY"), use_server_proxy=True))
PAGE = "<title>Written inside</title><h1>hello from the sandbox</h1>"
try:
    endpoint = sandbox.get_endpoint(9222)
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(f"http://{endpoint.endpoint}", headers=endpoint.headers or {})
        page = browser.contexts[0].pages[0]
        sandbox.files.write_file("/home/user/page.html", PAGE)
        page.goto("file:///home/user/page.html")
        print("title:", page.title())
        print("text:", page.inner_text("h1"))
        print("screenshot:", page.screenshot()[1:4].decode())
        browser.close()
finally:
    sandbox.kill()
    sandbox.close()
