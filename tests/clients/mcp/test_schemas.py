"""Our tools beside those of the published MCP server 1.1.1: same names, same arguments, same
answers. Ours may take and answer more."""

import http.server
import json
import sys
import threading
import urllib.request
from pathlib import Path

from conftest import API_KEY, stdio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PUBLISHED = Path(sys.executable).with_name("opensandbox-mcp")


def resolved(schema, root):
    """A schema without references, titles and texts, in which `null` is one of several types
    however it was written."""
    if "$ref" in schema:
        return resolved(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "const" in schema:
        return {"types": ["string"]}
    types = schema.get("type", [])
    kinds = {types} if isinstance(types, str) else set(types)
    result = {}
    for option in schema.get("anyOf", []):
        option = resolved(option, root)
        kinds |= set(option.pop("types"))
        result |= option
    # A default of null is as good as none, and whole numbers may be written as any number.
    if schema.get("default") is not None:
        result["default"] = schema["default"]
    if "properties" in schema:
        result["properties"] = {k: resolved(v, root) for k, v in schema["properties"].items()}
        result["required"] = sorted(schema.get("required", []))
    if "items" in schema:
        result["items"] = resolved(schema["items"], root)
    if isinstance(schema.get("additionalProperties"), dict):
        result["values"] = resolved(schema["additionalProperties"], root)
    if "enum" in schema:
        result["enum"] = sorted(value for value in schema["enum"] if value is not None)
        kinds |= {"string"}
    result["types"] = sorted(kinds)
    return result


def missing(published, ours, where, is_answer=False):
    """What the published schema has and ours lacks."""
    for name, value in published.items():
        if name == "properties":
            for key, inner in value.items():
                if key not in ours.get("properties", {}):
                    yield f"{where}.{key} is missing"
                else:
                    yield from missing(inner, ours["properties"][key], f"{where}.{key}", is_answer)
        elif name == "required":
            # An answer may promise more than the published one, a request may not demand more.
            have = set(ours.get("required", []))
            if (set(value) - have) if is_answer else (set(value) != have):
                yield f"{where}: required {value}, ours {sorted(have)}"
        elif name in ("items", "values"):
            yield from missing(value, ours.get(name, {"types": []}), f"{where}[]", is_answer)
        elif name == "types":
            have = set(ours["types"])
            wrong = (have - set(value)) if is_answer else (set(value) - have)
            if wrong - {"integer"} or not have:
                yield f"{where}: type {value}, ours {sorted(have)}"
        elif name == "default" and not is_answer and ours.get("default") != value:
            yield f"{where}: default {value}, ours {ours.get('default')}"
        elif name == "enum" and ours.get("enum") != value and not is_answer:
            yield f"{where}: one of {value}, ours {ours.get('enum')}"


# The published answer would repeat a registry password; ours never does.
LEFT_OUT = {"image.auth is missing"}


async def test_every_published_tool_is_here_with_its_schema(server):
    parameters = StdioServerParameters(
        command=str(PUBLISHED), args=["--domain", server.address, "--api-key", API_KEY])
    async with (
        stdio_client(parameters) as (read, write), ClientSession(read, write) as published,
        stdio(server) as ours,
    ):
        await published.initialize()
        theirs = (await published.list_tools()).tools
        tools = {tool.name: tool for tool in (await ours.raw.list_tools()).tools}
    assert len(theirs) == 19
    found = []
    for tool in theirs:
        if tool.name not in tools:
            found.append(f"{tool.name} is missing")
            continue
        own = tools[tool.name]
        for part, is_answer in (("input_schema", False), ("output_schema", True)):
            old, new = getattr(tool, part), getattr(own, part)
            found += missing(resolved(old, old), resolved(new, new), f"{tool.name} {part}", is_answer)
    found = [line for line in found if not any(line.endswith(left) for left in LEFT_OUT)]
    assert not found, "\n".join(found)


async def test_descriptions_say_what_to_do(server):
    async with stdio(server) as ours:
        listed = (await ours.raw.list_tools()).tools
    for tool in listed:
        assert len(tool.description) > 20, tool.name
        assert tool.annotations.read_only_hint is not None, tool.name
        for name, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), f"{tool.name}.{name} is not described"


def arguments(tools, name):
    """The arguments of a tool, those of its parts as `part.name`."""
    schema = next(tool for tool in tools if tool.name == name).input_schema
    parts = schema.get("$defs", {}).items()
    nested = [f"{part}.{key}" for part, inner in parts for key in inner.get("properties", {})]
    return {*schema["properties"], *nested}


# What a server without these capabilities makes of the tools: gone tools, gone arguments.
LACKING = {
    "networkRules": (set(), {"Policy.egress", "Rule.action", "Rule.target"}),
    "hostPaths": (set(), {"Volume.host_path"}),
    "snapshots": ({"sandbox_restore", "snapshot_create"}, set()),
    "pause": ({"sandbox_pause", "sandbox_resume"}, set()),
}


async def test_what_the_server_would_refuse_is_not_offered(server):
    async with stdio(server) as session:
        whole = (await session.raw.list_tools()).tools
    for lacking, (tools, gone) in LACKING.items():
        with Lacking(server, lacking) as less:
            async with stdio(less) as session:
                offered = (await session.raw.list_tools()).tools
        assert {tool.name for tool in whole} - {tool.name for tool in offered} == tools, lacking
        assert arguments(whole, "sandbox_create") - arguments(offered, "sandbox_create") == gone, lacking
    async with stdio(server, "--no-network", "--no-volumes") as session:
        limited = arguments((await session.raw.list_tools()).tools, "sandbox_create")
    assert not [name for name in limited if name.startswith(("network_policy", "Policy", "Rule", "volume", "Volume"))]


class Lacking:
    """Answers `GET /version` as the server does, but lacks one capability. That is the mock: no machine here has a
    backend for each."""

    def __init__(self, server, lacking):
        with urllib.request.urlopen(f"http://{server.address}/version") as answer:
            version = json.load(answer)
        assert version["capabilities"][lacking] is True
        version["capabilities"][lacking] = False

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                assert self.path == "/version", self.path
                body = json.dumps(version).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()


# What JSON Schema 2020-12 defines; clients that check schemas complain about others.
FORMATS = {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "regex"}


def formats(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("format"), str):
            yield schema["format"]
        for inner in schema.values():
            yield from formats(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from formats(inner)


async def test_formats_are_those_of_the_standard(server):
    async with stdio(server) as ours:
        listed = (await ours.raw.list_tools()).tools
    for tool in listed:
        found = {*formats(tool.input_schema), *formats(tool.output_schema)}
        assert found <= FORMATS, f"{tool.name}: {found - FORMATS}"
