"""The control plane: sandboxes by their ids, lists, snapshots, templates, diagnostics, events."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, AsyncIterator, Mapping, Sequence

from .. import _http, wire
from .._durations import Seconds, seconds
from ..config import Config
from ..errors import Failed, InvalidArgument, OsbError, TimedOut
from . import net
from .execution import AsyncStream
from .sandbox import READY_TIMEOUT, AsyncSandbox
from .access import AsyncKeys, AsyncTenants
from .inventory import AsyncImages, AsyncVolumes
from .transport import USUAL, Target, Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._options import ConnectOptions, CreateOptions

# How long pausing, resuming and snapshots may take before waiting for them ends, in seconds.
CHANGE_TIMEOUT = 300.0
# How long to wait before asking a server again that tells nobody of changes.
ASK_AGAIN = 0.5


class AsyncClient:
    """The control plane of a server.

    Without a configuration it is the one of the environment and of the command line's file. Leaving its
    block closes its connections; sandboxes live on.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config.load()
        self._transport = Transport(self.config)
        key = {"OPEN-SANDBOX-API-KEY": self.config.api_key} if self.config.api_key else {}
        self._target = Target(self._transport, self.config.base_url, key)
        self.images = AsyncImages(self)
        self.keys = AsyncKeys(self)
        self.tenants = AsyncTenants(self)
        self.volumes = AsyncVolumes(self)

    def __repr__(self) -> str:
        return f"AsyncClient({self._target.address.url})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that wait for use."""
        self._transport.close()

    def create(self, image: str | None = None, **given: Unpack[CreateOptions]) -> net.Pending[AsyncSandbox]:
        """Makes a sandbox; takes what `AsyncSandbox.create` takes."""
        return AsyncSandbox.create(image, client=self, **given)

    def connect(self, id: str, **given: Unpack[ConnectOptions]) -> net.Pending[AsyncSandbox]:
        """Connects to a sandbox that exists; takes what `AsyncSandbox.connect` takes."""
        return AsyncSandbox.connect(id, client=self, **given)

    def sandbox(self, id: str) -> AsyncSandbox:
        """A handle to a sandbox without any request."""
        return AsyncSandbox(self, id)

    async def get(self, id: str) -> wire.SandboxInfo:
        """What the server knows of a sandbox."""
        return wire.SandboxInfo.from_wire(await self._target.json("GET", _path(id)))

    async def list(
        self, *, states: Sequence[str] = (), metadata: Mapping[str, str] | None = None, page: int = 1,
        page_size: int = 20,
    ) -> wire.ListSandboxesResponse:
        """One page of sandboxes, newest first; only those in one of these states, with all these labels."""
        query = _http.query(("state", list(states)), ("metadata", _http.query(*(metadata or {}).items()) or None),
                            ("page", page), ("pageSize", page_size))
        return wire.ListSandboxesResponse.from_wire(await self._target.json("GET", "/sandboxes", query=query))

    async def list_all(
        self, *, states: Sequence[str] = (), metadata: Mapping[str, str] | None = None, page_size: int = 100
    ) -> AsyncIterator[wire.SandboxInfo]:
        """Every sandbox, page by page as they are read."""
        page = 1
        while True:
            found = await self.list(states=states, metadata=metadata, page=page, page_size=page_size)
            for item in found.items:
                yield item
            if not found.pagination.has_next_page:
                return
            page += 1

    async def kill(self, id: str) -> None:
        """Ends a sandbox."""
        await self._target.whole("DELETE", _path(id))

    async def pause(self, id: str) -> None:
        """Freezes a sandbox; answers when it is frozen."""
        await self._target.whole("POST", _path(id, "/pause"))
        await self.wait_for_state(id, "Paused")

    async def resume(self, id: str) -> None:
        """Lets a sandbox run on; answers when it runs."""
        await self._target.whole("POST", _path(id, "/resume"))
        await self.wait_for_state(id, "Running")

    async def wait_for_state(self, id: str, state: str, timeout: Seconds = CHANGE_TIMEOUT) -> None:
        """Waits until a sandbox is in this state, told by the server's events; fails when it gets into one
        from which it never comes."""
        deadline = net.now() + seconds(timeout)
        what = f"waiting for sandbox {id} to be {state}"

        async def check() -> bool:
            status = (await self.get(id)).status
            if status.state != state and status.state in ("Failed", "Terminated"):
                raise Failed(f"sandbox {id}", status.state, status.message or "")
            return status.state == state

        await self._until(check, id, what, deadline, seconds(timeout))

    async def _until(self, check: Any, sandbox_id: str | None, what: str, deadline: float, timeout: float) -> None:
        """Asks now and after every change until the check holds."""
        if await check():
            return
        while True:
            try:
                async with await self.events(sandbox_id) as events:
                    # Asked only now that no change can be missed any more.
                    while not await check():
                        left = deadline - net.now()
                        if left <= 0 or await events.next(left) is None:
                            break
                    else:
                        return
            except TimedOut:
                pass
            except OsbError as error:
                # A server without events is asked again and again.
                if error.status not in (404, 405, 501):
                    raise
            if net.now() >= deadline:
                raise TimedOut(what, timeout)
            await net.sleep(min(ASK_AGAIN, max(0.0, deadline - net.now())))
            if await check():
                return

    async def renew(self, id: str, lifetime: Seconds) -> datetime:
        """Lets a sandbox live this much longer, from now; answers until when."""
        try:
            expires = datetime.now(timezone.utc) + timedelta(seconds=seconds(lifetime))
        except OverflowError:
            raise InvalidArgument("the lifetime is too long") from None
        answer = await self._target.json("POST", _path(id, "/renew-expiration"), json={"expiresAt": expires})
        return wire.RenewSandboxExpirationResponse.from_wire(answer).expires_at

    async def patch_metadata(self, id: str, patch: Mapping[str, str | None]) -> wire.SandboxInfo:
        """Sets labels of a sandbox; those that are None are removed."""
        answer = await self._target.json("PATCH", _path(id, "/metadata"), json=dict(patch))
        return wire.SandboxInfo.from_wire(answer)

    async def endpoint(self, id: str, port: int, expires: datetime | None = None) -> wire.Endpoint:
        """Where a port of a sandbox is reached from outside; with `expires` as a route that is good until
        then and needs no key."""
        query = _http.query(("expires", None if expires is None else int(expires.timestamp())),
                            ("use_server_proxy", True if self.config.use_server_proxy else None))
        # Held until the sandbox is ready, which may take as long as its image takes to come.
        longest = max(READY_TIMEOUT, self.config.request_timeout)
        answer = await self._target.json("GET", _path(id, f"/endpoints/{port}"), query=query, timeout=longest)
        return wire.Endpoint.from_wire(answer)

    async def network_policy(self, id: str) -> wire.PolicyStatusResponse:
        """What a sandbox may reach, by the control plane; `sandbox.egress` asks the sandbox."""
        return await self._policy("GET", id)

    async def set_network_policy(self, id: str, policy: wire.NetworkPolicy) -> wire.PolicyStatusResponse:
        """Replaces what a sandbox may reach."""
        return await self._policy("PUT", id, policy)

    async def patch_network_policy(self, id: str, rules: Sequence[wire.NetworkRule]) -> wire.PolicyStatusResponse:
        """Puts rules before the others."""
        return await self._policy("PATCH", id, list(rules))

    async def delete_network_policy(self, id: str, targets: Sequence[str]) -> wire.PolicyStatusResponse:
        """Removes the rules of these targets."""
        return await self._policy("DELETE", id, list(targets))

    async def _policy(self, method: str, id: str, body: Any = None) -> wire.PolicyStatusResponse:
        answer = await self._target.json(method, _path(id, "/networkpolicy"), json=body)
        return wire.PolicyStatusResponse.from_wire(answer)

    async def create_snapshot(self, id: str, name: str | None = None) -> wire.Snapshot:
        """Begins a copy of a sandbox's filesystem."""
        # A server may answer only when the copy is made.
        answer = await self._target.json("POST", _path(id, "/snapshots"), json={"name": name} if name else {},
                                         timeout=CHANGE_TIMEOUT)
        return wire.Snapshot.from_wire(answer)

    async def get_snapshot(self, id: str) -> wire.Snapshot:
        return wire.Snapshot.from_wire(await self._target.json("GET", f"/snapshots/{_http.segment(id)}"))

    async def wait_for_snapshot(self, id: str, timeout: Seconds = CHANGE_TIMEOUT) -> wire.Snapshot:
        """Waits until sandboxes can be made from a snapshot."""

        async def check() -> bool:
            status = (await self.get_snapshot(id)).status
            if status.state in ("Failed", "Deleting"):
                raise Failed(f"snapshot {id}", status.state, status.message or "")
            return status.state == "Ready"

        what = f"waiting for snapshot {id} to be ready"
        await self._until(check, None, what, net.now() + seconds(timeout), seconds(timeout))
        return await self.get_snapshot(id)

    async def list_snapshots(
        self, *, sandbox_id: str | None = None, name: str | None = None, states: Sequence[str] = (), page: int = 1,
        page_size: int = 20,
    ) -> wire.ListSnapshotsResponse:
        """One page of snapshots, newest first."""
        query = _http.query(("sandboxId", sandbox_id), ("name", name), ("state", list(states)), ("page", page),
                            ("pageSize", page_size))
        return wire.ListSnapshotsResponse.from_wire(await self._target.json("GET", "/snapshots", query=query))

    async def list_all_snapshots(
        self, *, sandbox_id: str | None = None, name: str | None = None, states: Sequence[str] = (),
        page_size: int = 100,
    ) -> AsyncIterator[wire.Snapshot]:
        """Every snapshot, page by page as they are read."""
        page = 1
        while True:
            found = await self.list_snapshots(
                sandbox_id=sandbox_id, name=name, states=states, page=page, page_size=page_size)
            for item in found.items:
                yield item
            if not found.pagination.has_next_page:
                return
            page += 1

    async def delete_snapshot(self, id: str) -> None:
        await self._target.whole("DELETE", f"/snapshots/{_http.segment(id)}")

    async def create_template(self, request: wire.CreateTemplateRequest) -> wire.Template:
        """Begins to build a template."""
        return wire.Template.from_wire(await self._target.json("POST", "/templates", json=request))

    async def get_template(self, id: str) -> wire.Template:
        return wire.Template.from_wire(await self._target.json("GET", f"/templates/{_http.segment(id)}"))

    async def list_templates(
        self, *, metadata: Mapping[str, str] | None = None, page: int = 1, page_size: int = 20
    ) -> wire.ListTemplatesResponse:
        """One page of templates."""
        query = _http.query(("metadata", _http.query(*(metadata or {}).items()) or None), ("page", page),
                            ("pageSize", page_size))
        return wire.ListTemplatesResponse.from_wire(await self._target.json("GET", "/templates", query=query))

    async def delete_template(self, id: str) -> None:
        await self._target.whole("DELETE", f"/templates/{_http.segment(id)}")

    async def create_pool(self, request: wire.CreatePoolRequest) -> wire.PoolResponse:
        """Makes a pool on the server's side; `AsyncPool` is one on this side."""
        return wire.PoolResponse.from_wire(await self._target.json("POST", "/pools", json=request))

    async def get_pool(self, name: str) -> wire.PoolResponse:
        return wire.PoolResponse.from_wire(await self._target.json("GET", f"/pools/{_http.segment(name)}"))

    async def list_pools(self) -> wire.ListPoolsResponse:
        return wire.ListPoolsResponse.from_wire(await self._target.json("GET", "/pools"))

    async def update_pool(self, name: str, request: wire.UpdatePoolRequest) -> wire.PoolResponse:
        path = f"/pools/{_http.segment(name)}"
        return wire.PoolResponse.from_wire(await self._target.json("PUT", path, json=request))

    async def delete_pool(self, name: str) -> None:
        await self._target.whole("DELETE", f"/pools/{_http.segment(name)}")

    async def diagnostic_logs(self, id: str, scope: str = "all") -> wire.DiagnosticContentResponse:
        """Logs of a sandbox for whoever looks for what went wrong."""
        return await self._diagnostics(id, "logs", scope)

    async def diagnostic_events(self, id: str, scope: str = "all") -> wire.DiagnosticContentResponse:
        """What happened to a sandbox."""
        return await self._diagnostics(id, "events", scope)

    async def _diagnostics(self, id: str, kind: str, scope: str) -> wire.DiagnosticContentResponse:
        query = _http.query(("scope", scope))
        answer = await self._target.json("GET", _path(id, f"/diagnostics/{kind}"), query=query)
        return wire.DiagnosticContentResponse.from_wire(answer)

    async def diagnostics_text(self, id: str, kind: str, **parameters: Any) -> str:
        """The older diagnostics, as text: `logs`, `events`, `inspect` or `summary`."""
        path = _path(id, f"/diagnostics/{_http.segment(kind)}")
        return (await self._target.whole("GET", path, query=_http.query(*parameters.items()))).decode("utf-8", "replace")

    async def follow_logs(self, id: str, tail: int | None = None) -> AsyncStream:
        """What a sandbox's main program prints, as it does, after at most `tail` of the lines before. The
        last `LogEvent` is `end`; a stream that ends without it was cut off."""
        answer = await self._target.send("GET", _path(id, "/logs"), query=_http.query(("tail", tail)))
        return AsyncStream(answer, "a log", wire.LogEvent.from_wire)

    async def events(self, sandbox_id: str | None = None, after: int | None = None) -> AsyncStream:
        """What happens to sandboxes as `LifecycleEvent`s; of one sandbox only, and only after this event,
        if given."""
        query = _http.query(("sandboxId", sandbox_id), ("after", after))
        answer = await self._target.send("GET", "/events", query=query)
        return AsyncStream(answer, "events", wire.LifecycleEvent.from_wire)

    async def audit_events(
        self, *, resource: str | None = None, actor: str | None = None, before: int | None = None,
        limit: int | None = None,
    ) -> wire.ListAuditEventsResponse:
        """Who changed what, newest first."""
        query = _http.query(("resource", resource), ("actor", actor), ("before", before), ("limit", limit))
        return wire.ListAuditEventsResponse.from_wire(await self._target.json("GET", "/audit-events", query=query))

    async def report_event(self, event: wire.MetricsEvent) -> None:
        """Tells the server how something went on this side."""
        await self._target.whole("POST", "/metrics/events", json=event)

    def _root(self) -> Target:
        return Target(self._transport, self.config.root_url, {})

    async def health(self) -> wire.HealthResponse:
        """Whether the server is well."""
        return wire.HealthResponse.from_wire(await self._root().json("GET", "/health"))

    async def version(self) -> wire.VersionResponse:
        """The version of the contract that the server speaks."""
        return wire.VersionResponse.from_wire(await self._root().json("GET", "/version"))

    async def openapi(self) -> Any:
        """The server's API document."""
        return await self._root().json("GET", "/openapi.json")

    async def metrics_text(self) -> str:
        """The server's own metrics, as OpenMetrics text."""
        target = Target(self._transport, self.config.root_url, {"OPEN-SANDBOX-API-KEY": self.config.api_key or ""})
        return (await target.whole("GET", "/metrics")).decode()

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Any request of the control plane that has no method of its own yet: a path below `/v1` with its
        encoded query, and a JSON body. Answers None where the answer has no body."""
        path, _, query = path.partition("?")
        return await self._target.json(method, path, query=query, json=body, timeout=USUAL)


def _path(id: str, rest: str = "") -> str:
    return f"/sandboxes/{_http.segment(id)}{rest}"
