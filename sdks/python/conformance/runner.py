"""The conformance runner of the asynchronous client; `run` makes the one of the blocking client from it.

Reads calls from stdin and answers them on stdout, as sdks/conformance/README.md says.
"""

import asyncio
import base64
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
from datetime import datetime, timedelta, timezone

from osb import AsyncClient, AsyncPool, AsyncSandbox, Config, RetryPolicy, WriteFile, errors, results
from osb import terminal_events as terminal
from osb._wire import to_wire
from osb.wire import (
    CreateKeyRequest, CreatePoolRequest, CreateTemplateRequest, CreateTokenRequest, CredentialVaultCreateRequest, CredentialVaultMutationRequest,
    MetricsEvent, NetworkPolicy, NetworkRule, PlatformSpec, SandboxLifecycle, UpdatePoolRequest, Volume,
)


def seconds(given, name, default=None):
    value = given.get(name)
    return default if value is None else value / 1000


def output_json(output):
    ending = output.ending
    return {
        "id": output.id, "stdout": output.stdout, "stderr": output.stderr, "exit_code": output.exit_code,
        "ending": {"kind": ending.kind, "code": ending.code, "signal": ending.signal}, "success": output.is_success,
        "error": output.error and failure_json(output.error), "results": [result_json(each) for each in output.results],
        "text": output.text, "count": output.count, "took_ms": None if output.took is None else output.took * 1000,
    }


def failure_json(error):
    return {"name": error.name, "value": error.value, "traceback": error.traceback}


def result_json(result):
    return {"kind": result.kind, "by_type": result.by_type, "text": result.text, "count": result.count}


def event_json(event):
    match event:
        case None:
            return None
        case results.Started(id):
            return {"type": "started", "id": id}
        case results.Stdout(text):
            return {"type": "stdout", "text": text}
        case results.Stderr(text):
            return {"type": "stderr", "text": text}
        case results.Result():
            return {"type": "result", **result_json(event)}
        case results.Count(count):
            return {"type": "count", "count": count}
        case results.ErrorEvent(error):
            return {"type": "error", **failure_json(error)}
        case results.Completed(took):
            return {"type": "completed", "took_ms": None if took is None else took * 1000}


def terminal_json(event):
    match event:
        case None:
            return None
        case terminal.Connected():
            return {"type": "connected"}
        case terminal.TerminalOutput(data):
            return {"type": "output", "text": data.decode(errors="replace")}
        case terminal.ErrorOutput(data):
            return {"type": "error_output", "text": data.decode(errors="replace")}
        case terminal.Replayed(offset, data):
            return {"type": "replay", "offset": offset, "text": data.decode(errors="replace")}
        case terminal.Refused(code, message):
            return {"type": "refused", "code": code, "message": message}
        case terminal.Exited(code, signal):
            return {"type": "exit", "code": code, "signal": signal}
        case terminal.Closed(code, reason):
            return {"type": "closed", "code": code, "reason": reason}


def error_json(error):
    if isinstance(error, errors.OsbError):
        return {"kind": error.kind, "message": str(error), "status": error.status, "code": error.code,
                "request_id": error.request_id, "retryable": error.is_retryable, "remedy": error.remedy or None}
    if isinstance(error, asyncio.CancelledError):
        return {"kind": "cancelled", "message": "cancelled"}
    return {"kind": "runner", "message": f"{type(error).__name__}: {error}"}


def packed(files):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return held.getvalue()


def names_in(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return sorted(entry.name.removeprefix("./") for entry in archive if entry.isfile())


def create_settings(given):
    settings = {"image": given.get("image"), "snapshot": given.get("snapshot_id"), "template": given.get("template_id")}
    for name in ("name", "idempotency_key", "env", "metadata", "resources", "entrypoint", "credential_proxy", "secure_access", "extensions"):
        if name in given:
            settings[name] = given[name]
    if "lifetime_s" in given:
        settings["lifetime"] = given["lifetime_s"]
    if "renew_on_access_s" in given:
        settings["renew_on_access"] = given["renew_on_access_s"]
    if "volumes" in given:
        settings["volumes"] = [Volume.from_wire(each) for each in given["volumes"]]
    for name, kind in (("network_policy", NetworkPolicy), ("platform", PlatformSpec), ("lifecycle", SandboxLifecycle)):
        if name in given:
            settings[name] = kind.from_wire(given[name])
    if "ready_timeout_ms" in given:
        settings["ready_timeout"] = given["ready_timeout_ms"] / 1000
    if given.get("skip_ready"):
        settings["wait_until_ready"] = False
    return settings


def only(given, *names):
    return {name: given[name] for name in names if name in given}


def run_settings(given):
    settings = only(given, "cwd", "env", "uid", "gid", "stdin", "stdin_open")
    if "timeout_ms" in given:
        settings["timeout"] = given["timeout_ms"] / 1000
    return settings


class Leave(Exception):
    """Leaves a block by an error."""


class Runner:
    def __init__(self):
        self.held = {}

    async def reset(self):
        for held in list(self.held.values()):
            if isinstance(held, AsyncPool):
                await held.shutdown()
            elif type(held).__name__.removeprefix("Async") in ("Execution", "Stream", "Tunnel", "Client"):
                held.close()
            elif type(held).__name__.removeprefix("Async") == "TerminalConnection":
                await held.close()
        self.held = {}

    async def call(self, name, on, given):
        """The result, and what is to be held under the call's `as`."""
        group, _, verb = name.partition(".")
        return await getattr(self, f"on_{group}")(verb, on, given)

    async def on_runner(self, verb, on, given):
        await self.reset()
        return None, None

    async def on_config(self, verb, on, given):
        with tempfile.TemporaryDirectory() as home:
            if "file" in given:
                os.mkdir(f"{home}/.opensandbox")
                with open(f"{home}/.opensandbox/config.toml", "w") as file:
                    file.write(given["file"])
            config = Config.load({"HOME": home, **given.get("environment", {})})
        return {"base_url": config.base_url, "request_timeout_ms": config.request_timeout * 1000,
                "use_server_proxy": config.use_server_proxy, "has_api_key": config.api_key is not None}, None

    async def on_client(self, verb, on, given):
        if verb == "new":
            settings = only(given, "domain", "api_key", "protocol", "use_server_proxy", "headers")
            if "request_timeout_ms" in given:
                settings["request_timeout"] = given["request_timeout_ms"] / 1000
            if "retry" in given:
                policy = given["retry"]
                settings["retry"] = RetryPolicy(policy.get("attempts", 3), seconds(policy, "first_delay_ms", 0.5),
                                                seconds(policy, "longest_delay_ms", 30.0))
            return None, AsyncClient(Config(**settings))
        match verb:
            case "health" | "version" | "openapi" | "list_pools":
                return to_wire(await getattr(on, verb)()), None
            case "get" | "kill" | "pause" | "resume" | "get_snapshot" | "delete_snapshot" | "get_template" \
                    | "delete_template" | "network_policy":
                return to_wire(await getattr(on, verb)(given["id"])), None
            case "list" | "list_snapshots" | "list_templates" | "audit_events":
                return to_wire(await getattr(on, verb)(**given)), None
            case "list_all" | "list_all_snapshots":
                limit = given.pop("limit", None)
                found = []
                async for item in getattr(on, verb)(**given):
                    found.append(to_wire(item))
                    if len(found) == limit:
                        break
                return found, None
            case "request":
                return await on.request(given["method"], given["path"], given.get("body")), None
            case "create_template":
                return to_wire(await on.create_template(CreateTemplateRequest.from_wire(given["request"]))), None
            case "create_pool":
                return to_wire(await on.create_pool(CreatePoolRequest.from_wire(given["request"]))), None
            case "update_pool":
                request = UpdatePoolRequest.from_wire(given["request"])
                return to_wire(await on.update_pool(given["name"], request)), None
            case "get_pool" | "delete_pool":
                return to_wire(await getattr(on, verb)(given["name"])), None
            case "set_network_policy":
                return to_wire(await on.set_network_policy(given["id"], NetworkPolicy.from_wire(given["policy"]))), None
            case "patch_network_policy":
                rules = [NetworkRule.from_wire(each) for each in given["rules"]]
                return to_wire(await on.patch_network_policy(given["id"], rules)), None
            case "delete_network_policy":
                return to_wire(await on.delete_network_policy(given["id"], given["targets"])), None
            case "events":
                return None, await on.events(given.get("sandbox_id"), given.get("after"))
            case "follow_logs":
                return None, await on.follow_logs(given["id"], given.get("tail"))
            case "diagnostic_logs" | "diagnostic_events":
                return to_wire(await getattr(on, verb)(given["id"], given["scope"])), None
            case "diagnostics_text":
                return {"text": await on.diagnostics_text(given["id"], given["kind"], **given.get("query", {}))}, None
            case "metrics_text":
                return {"text": await on.metrics_text()}, None
            case "report_event":
                await on.report_event(MetricsEvent.from_wire(given["event"]))
                return None, None
        raise NotImplementedError(f"client.{verb}")

    async def on_images(self, verb, on, given):
        match verb:
            case "list" | "prune":
                return to_wire(await getattr(on.images, verb)()), None
            case "pull":
                return None, await on.images.pull(given["image"])
            case "import":
                return to_wire(await on.images.import_(packed(given["files"]), given.get("name"))), None
            case "export":
                data = await (await on.images.export(given["reference"])).read()
                return {"bytes": len(data), "entries": names_in(data)}, None
            case "tag":
                return to_wire(await on.images.tag(given["reference"], given["name"])), None
            case "remove":
                await on.images.remove(given["reference"])
                return None, None
        raise NotImplementedError(f"images.{verb}")

    async def on_keys(self, verb, on, given):
        match verb:
            case "list":
                return to_wire(await on.keys.list()), None
            case "create":
                return to_wire(await on.keys.create(CreateKeyRequest.from_wire(given["request"]))), None
            case "create_token":
                return to_wire(await on.keys.create_token(CreateTokenRequest.from_wire(given["request"]))), None
            case "rotate":
                return to_wire(await on.keys.rotate(given["id"], given.get("grace_s"))), None
        return await on.keys.revoke(given["id"]), None

    async def on_tenants(self, verb, on, given):
        if verb == "list":
            return to_wire(await on.tenants.list()), None
        return to_wire(await getattr(on.tenants, verb)(given["name"])), None

    async def on_volumes(self, verb, on, given):
        if verb == "list":
            return to_wire(await on.volumes.list()), None
        if verb == "create":
            return to_wire(await on.volumes.create(given["name"])), None
        await on.volumes.remove(given["name"], given.get("force", False))
        return None, None

    async def on_sandbox(self, verb, on, given):
        match verb:
            case "create":
                sandbox = await on.create(**create_settings(given))
                return {"id": sandbox.id}, sandbox
            case "connect":
                settings = {"timeout": given["timeout_ms"] / 1000} if "timeout_ms" in given else {}
                sandbox = await on.connect(given["id"], resume=given.get("resume", False), **settings)
                return {"id": sandbox.id}, sandbox
            case "scope":
                try:
                    async with on.create(**create_settings(given)) as sandbox:
                        id = sandbox.id
                        if given.get("keep"):
                            sandbox.keep()
                        if given.get("fail"):
                            raise Leave
                except Leave:
                    pass
                return {"id": id}, None
            case "info" | "metrics" | "kill" | "pause" | "resume" | "ping" | "isolated_capabilities":
                return to_wire(await getattr(on, verb)()), None
            case "is_healthy":
                return {"healthy": await on.is_healthy()}, None
            case "renew":
                return {"expires_at": to_wire(await on.renew(given["lifetime_s"]))}, None
            case "patch_metadata":
                return to_wire(await on.patch_metadata(given["patch"])), None
            case "wait_for_state":
                await on.wait_for_state(given["state"], seconds(given, "timeout_ms", 60.0))
                return None, None
            case "endpoint":
                return to_wire(await on.endpoint(given["port"])), None
            case "signed_endpoint":
                return to_wire(await on.preview_link(given["port"], given["expires_in_s"])), None
            case "link":
                until = datetime.now(timezone.utc) + timedelta(seconds=given["expires_in_s"])
                return {"link": await on.link(given["port"], until)}, None
            case "url":
                url, headers = await on.url(given["port"])
                return {"url": url, "headers": headers}, None
            case "snapshot":
                return to_wire(await on.snapshot(given.get("name"))), None
            case "watch_metrics":
                return None, await on.watch_metrics()
            case "tunnel":
                return None, await on.tunnel(given["port"])
        raise NotImplementedError(f"sandbox.{verb}")

    async def on_stream(self, verb, on, given):
        if verb == "next":
            return to_wire(await on.next()), None
        on.close()
        return None, None

    async def on_tunnel(self, verb, on, given):
        if verb == "write":
            await on.write(given["text"].encode())
        elif verb == "read":
            data = b""
            while len(data) < given["bytes"]:
                piece = await on.read()
                if not piece:
                    break
                data += piece
            return {"text": data.decode()}, None
        else:
            on.close()
        return None, None

    async def on_commands(self, verb, on, given):
        commands = on.commands
        what = given.get("command", given.get("argv"))
        match verb:
            case "run":
                return output_json(await commands.run(what, **run_settings(given))), None
            case "start":
                return None, await commands.start(what, **run_settings(given))
            case "background":
                return {"id": await commands.background(what, **run_settings(given))}, None
            case "follow":
                return None, await commands.follow(given["id"], given.get("after", 0))
            case "status":
                return to_wire(await commands.status(given["id"])), None
            case "list":
                return to_wire(await commands.list()), None
            case "logs":
                logs = await commands.logs(given["id"], given.get("cursor"))
                return {"text": logs.text, "cursor": logs.cursor}, None
            case "interrupt":
                await commands.interrupt(given["id"])
                return None, None
            case "write_stdin":
                return {"written": await commands.write_stdin(given["id"], given.get("text", ""),
                                                              given.get("close", False))}, None
            case "set_env":
                await commands.set_env(given["variables"])
                return None, None
        raise NotImplementedError(f"commands.{verb}")

    async def on_execution(self, verb, on, given):
        if verb == "next":
            return event_json(await on.next()), None
        if verb == "output":
            return output_json(await on.output()), None
        on.close()
        return None, None

    async def on_sessions(self, verb, on, given):
        session = await on.sessions.create(given.get("cwd"))
        return {"id": session.id}, session

    async def on_session(self, verb, on, given):
        match verb:
            case "run":
                return output_json(await on.run(given["command"], **run_settings(given))), None
            case "start":
                return None, await on.start(given["command"], **run_settings(given))
        await getattr(on, verb)()
        return None, None

    async def on_terminals(self, verb, on, given):
        made = await on.terminals.create(given.get("cwd"), given.get("command"), size=given.get("size"))
        return {"id": made.id}, made

    async def on_terminal(self, verb, on, given):
        if verb == "connect":
            return None, await on.connect(**given)
        return to_wire(await getattr(on, verb)()), None

    async def on_connection(self, verb, on, given):
        match verb:
            case "next":
                return terminal_json(await on.next()), None
            case "write":
                await on.write(given["text"])
            case "resize":
                await on.resize(given["columns"], given["rows"])
            case "signal":
                await on.signal(given["signal"])
            case _:
                await getattr(on, verb)()
        return None, None

    async def on_code(self, verb, on, given):
        code = on.code
        settings = only(given, "language", "context")
        if "timeout_ms" in given:
            settings["timeout"] = given["timeout_ms"] / 1000
        match verb:
            case "run":
                return output_json(await code.run(given["code"], **settings)), None
            case "start":
                return None, await code.start(given["code"], **settings)
            case "create_context":
                return to_wire(await code.create_context(given["language"], given.get("cwd"))), None
            case "get_context" | "delete_context" | "interrupt":
                return to_wire(await getattr(code, verb)(given["id"])), None
            case "list_contexts":
                return to_wire(await code.list_contexts(given.get("language"))), None
            case "delete_contexts":
                await code.delete_contexts(given["language"])
                return None, None
        raise NotImplementedError(f"code.{verb}")

    async def on_files(self, verb, on, given):
        files = on.files
        if "as_user" in given:
            files = files.as_user(*given.pop("as_user"))
        settings = only(given, "owner", "group")
        if "mode" in given:
            settings["mode"] = int(given["mode"], 8)
        match verb:
            case "read":
                return {"base64": base64.b64encode(await files.read(given["path"])).decode()}, None
            case "read_text":
                return {"text": await files.read_text(given["path"])}, None
            case "read_range":
                data = await files.read_range(given["path"], given["start"], given["end"])
                return {"base64": base64.b64encode(data).decode()}, None
            case "read_lines":
                return {"text": await files.read_lines(given["path"], given["first"], given["count"])}, None
            case "download":
                digest, size = hashlib.sha256(), 0
                async for piece in await files.download(given["path"]):
                    digest.update(piece)
                    size += len(piece)
                return {"bytes": size, "sha256": digest.hexdigest()}, None
            case "write":
                await files.write(given["path"], content(given), **settings)
            case "write_all":
                await files.write_all([
                    WriteFile(each["path"], content(each), mode=int(each["mode"], 8) if "mode" in each else None,
                              owner=each.get("owner"), group=each.get("group")) for each in given["files"]])
            case "upload":
                digest = hashlib.sha256()
                await files.write(given["path"], made_up(given["bytes"], digest))
                return {"sha256": digest.hexdigest()}, None
            case "info":
                return to_wire(await files.info(*given["paths"])), None
            case "exists":
                return {"exists": await files.exists(given["path"])}, None
            case "list":
                return to_wire(await files.list(given["path"], given.get("depth", 1))), None
            case "search":
                return to_wire(await files.search(given["path"], given["pattern"])), None
            case "rename":
                await files.rename(given["from"], given["to"])
            case "delete" | "delete_directories":
                await getattr(files, verb)(*given["paths"])
            case "create_directories":
                await files.create_directories(*given["paths"], **settings)
            case "set_permissions":
                await files.set_permissions(given["path"], **settings)
            case "replace":
                return {"count": await files.replace(given["path"], given["old"], given["new"])}, None
            case "download_archive":
                return {"entries": names_in(await (await files.download_archive(given["path"])).read())}, None
            case "upload_archive":
                return to_wire(await files.upload_archive(given["path"], packed(given["files"]))), None
            case _:
                raise NotImplementedError(f"files.{verb}")
        return None, None

    async def on_egress(self, verb, on, given):
        match verb:
            case "policy":
                return to_wire(await on.egress.policy()), None
            case "replace":
                return to_wire(await on.egress.replace(NetworkPolicy.from_wire(given["policy"]))), None
            case "patch":
                rules = [NetworkRule.from_wire(each) for each in given["rules"]]
                return to_wire(await on.egress.patch(rules)), None
        return to_wire(await on.egress.delete(given["targets"])), None

    async def on_vault(self, verb, on, given):
        vault = on.credential_vault
        match verb:
            case "create":
                return to_wire(await vault.create(CredentialVaultCreateRequest.from_wire(given["request"]))), None
            case "patch":
                return to_wire(await vault.patch(CredentialVaultMutationRequest.from_wire(given["request"]))), None
            case "credential" | "binding":
                return to_wire(await getattr(vault, verb)(given["name"])), None
        return to_wire(await getattr(vault, verb)()), None

    async def on_pool(self, verb, on, given):
        match verb:
            case "start":
                settings = only(given, "max_idle", "metadata", "resources")
                if "idle_timeout_s" in given:
                    settings["idle_timeout"] = given["idle_timeout_s"]
                pool = AsyncPool(given["image"], on_empty=given.get("policy", "create"), client=on, **settings)
                pool.start()
                return None, pool
            case "acquire":
                sandbox = await on.acquire(given.get("lifetime_s", 600))
                return {"id": sandbox.id}, sandbox
            case "status":
                return on.status._asdict(), None
            case "resize":
                await on.resize(given["max_idle"])
            case "wait_until_warm":
                await on.wait_until_warm(seconds(given, "timeout_ms", 30.0))
            case "shutdown":
                await on.shutdown()
        return None, None


def content(given):
    return base64.b64decode(given["base64"]) if "base64" in given else given["text"]


def made_up(size, digest):
    block = bytes(range(256)) * 256
    while size > 0:
        piece = block[:size]
        digest.update(piece)
        size -= len(piece)
        yield piece


def say(message):
    # One write for each line, because calls end side by side.
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def answer(runner, message):
    """Makes one call and says how it went."""
    try:
        on = runner.held.get(message.get("on"))
        if message.get("on") and on is None:
            raise KeyError(f"nothing is held as {message['on']}")
        result, held = await runner.call(message["call"], on, message["with"])
        if "as" in message:
            runner.held[message["as"]] = held
        say({"id": message["id"], "result": result})
    except BaseException as error:
        say({"id": message["id"], "error": error_json(error)})
