"""Sandboxes for AI agents.

A `Sandbox` is a place of its own in which code that nobody has read runs commands, edits files,
executes code that remembers and serves ports, and which is then thrown away::

    from osb import Sandbox

    with Sandbox.create("python:3.12") as sandbox:
        output = sandbox.commands.run("echo hello; exit 3")
        print(output.stdout, output.exit_code)

        sandbox.files.write("/tmp/data.csv", "a,b\\n1,2\\n")
        print(sandbox.code.run("sum([1, 2, 3])").text)

The server is found by `OPEN_SANDBOX_DOMAIN` and `OPEN_SANDBOX_API_KEY`, by the command line's file, or by
a `Config`. Every class here has an asynchronous twin: `AsyncSandbox`, `AsyncClient`, `AsyncPool`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors, results, terminal_events, volumes, wire
from ._contents import WriteFile
from ._sync.access import Keys, Tenants
from ._sync.client import Client
from ._sync.code import Code
from ._sync.commands import Commands, Session, Sessions
from ._sync.desktop import Desktop
from ._sync.egress import CredentialVault, Egress
from ._sync.execution import Execution, Stream
from ._sync.files import ByteStream, Files
from ._sync.pool import Pool
from ._sync.sandbox import Sandbox
from ._sync.inventory import Images, Volumes
from ._sync.terminals import Terminal, TerminalConnection, Terminals, Tunnel
from ._version import VERSION as __version__
from .config import Config, RetryPolicy
from .errors import (
    ApiError, ConfigError, ConnectionFailed, Failed, InvalidArgument, NotReady, OsbError, PoolClosed, PoolEmpty,
    StreamBroken, TerminalError, TimedOut, Unreadable,
)
from .pool_status import PoolStatus
from .results import (
    Completed, Count, Ending, ErrorEvent, Event, ExecutionFailure, Figure, Logs, Output, Result, Started, Stderr,
    Stdout, Table,
)

if TYPE_CHECKING:
    from ._async.access import AsyncKeys, AsyncTenants
    from ._async.client import AsyncClient
    from ._async.code import AsyncCode
    from ._async.commands import AsyncCommands, AsyncSession, AsyncSessions
    from ._async.desktop import AsyncDesktop
    from ._async.egress import AsyncCredentialVault, AsyncEgress
    from ._async.execution import AsyncExecution, AsyncStream
    from ._async.files import AsyncByteStream, AsyncFiles
    from ._async.pool import AsyncPool
    from ._async.sandbox import AsyncSandbox
    from ._async.inventory import AsyncImages, AsyncVolumes
    from ._async.terminals import AsyncTerminal, AsyncTerminalConnection, AsyncTerminals, AsyncTunnel

# Where the asynchronous twins are: a program that does not use them does not load asyncio.
_ASYNC = {
    "AsyncClient": "client", "AsyncCode": "code", "AsyncCommands": "commands", "AsyncSession": "commands",
    "AsyncSessions": "commands", "AsyncCredentialVault": "egress", "AsyncEgress": "egress",
    "AsyncExecution": "execution", "AsyncStream": "execution", "AsyncByteStream": "files", "AsyncFiles": "files",
    "AsyncPool": "pool", "AsyncSandbox": "sandbox", "AsyncImages": "inventory", "AsyncVolumes": "inventory",
    "AsyncTerminal": "terminals", "AsyncTerminalConnection": "terminals", "AsyncTerminals": "terminals",
    "AsyncTunnel": "terminals", "AsyncDesktop": "desktop", "AsyncKeys": "access", "AsyncTenants": "access",
}

__all__ = [
    "ApiError", "AsyncByteStream", "AsyncClient", "AsyncCode", "AsyncCommands", "AsyncCredentialVault", "AsyncDesktop",
    "AsyncEgress", "AsyncExecution", "AsyncFiles", "AsyncImages", "AsyncKeys", "AsyncPool", "AsyncSandbox", "AsyncSession",
    "AsyncSessions", "AsyncStream", "AsyncTenants", "AsyncTerminal", "AsyncTerminalConnection", "AsyncTerminals", "AsyncTunnel",
    "AsyncVolumes", "ByteStream", "Client", "Code", "Commands", "Completed", "Config", "ConfigError",
    "ConnectionFailed", "Count", "CredentialVault", "Desktop", "Egress", "Ending", "ErrorEvent", "Event", "Execution",
    "ExecutionFailure", "Failed", "Figure", "Files", "Images", "InvalidArgument", "Keys", "Logs", "NotReady", "OsbError",
    "Output", "Pool", "PoolClosed", "PoolEmpty", "PoolStatus", "Result", "RetryPolicy", "Sandbox", "Session",
    "Sessions", "Started", "Stderr", "Stdout", "Stream", "StreamBroken", "Table", "Tenants", "Terminal", "TerminalConnection",
    "TerminalError", "Terminals", "TimedOut", "Tunnel", "Unreadable", "Volumes", "WriteFile", "__version__", "errors",
    "results", "terminal_events", "volumes", "wire",
]


def __getattr__(name: str) -> Any:
    module = _ASYNC.get(name)
    if module is None:
        raise AttributeError(f"module 'osb' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"osb._async.{module}"), name)
