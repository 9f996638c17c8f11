# Made from osb/_async/sandbox.py by make-sync. Do not edit.
"""One sandbox: making it, connecting to it, and everything that is reached from it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from .. import _http, wire
from .._durations import Seconds, seconds
from ..errors import ConnectionFailed, Failed, InvalidArgument, NotReady, OsbError, TimedOut
from . import net
from .code import Code
from .commands import Commands, Sessions
from .egress import CredentialVault, Egress
from .execution import Stream
from .files import Files
from .terminals import Terminals, Tunnel, open_tunnel
from .transport import Target

if TYPE_CHECKING:
    from .client import Client

# How long a sandbox may take to be ready, in seconds, as in the other SDKs.
READY_TIMEOUT = 30.0
# How long a sandbox lives that nothing was said about, in seconds, as in the other SDKs.
DEFAULT_LIFETIME = 600.0
# How long to wait before asking again. Our server holds the first request until the sandbox is ready;
# the published one tells nobody, so that asking again is all there is.
ASK_AGAIN = 0.2
# What a sandbox may use that nothing was said about, as in the other SDKs.
DEFAULT_RESOURCES = {"cpu": "1", "memory": "2Gi"}
# What a sandbox does that nothing was said about: it stays.
DEFAULT_ENTRYPOINT = ["tail", "-f", "/dev/null"]
EXEC_PORT = 44772
EGRESS_PORT = 18080


class Sandbox:
    """A sandbox. Leaving its block ends it, unless `keep` was called or it was only connected to."""

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self.client = client
        self.commands = Commands(self)
        self.sessions = Sessions(self)
        self.terminals = Terminals(self)
        self.files = Files(self)
        self.code = Code(self)
        self.egress = Egress(self)
        self.credential_vault = CredentialVault(self)
        self._is_kept = False
        self._owns_client = False
        self._exec_target: Target | None = None
        self._egress_target: Target | None = None

    def __repr__(self) -> str:
        return f"Sandbox({self.id!r})"

    @classmethod
    def create(
        cls, image: str | None = None, *, snapshot: str | None = None, template: str | None = None,
        name: str | None = None, lifetime: Seconds | None = DEFAULT_LIFETIME, env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None, resources: Mapping[str, str] | None = None,
        resource_requests: Mapping[str, str] | None = None, entrypoint: Sequence[str] | None = None,
        volumes: Sequence[wire.Volume] = (), network_policy: wire.NetworkPolicy | None = None,
        credential_proxy: bool | None = None, secure_access: bool = False,
        platform: wire.PlatformSpec | None = None, lifecycle: wire.SandboxLifecycle | None = None,
        renew_on_access: Seconds | None = None, extensions: Mapping[str, str] | None = None,
        image_auth: tuple[str, str] | None = None, ready_timeout: Seconds = READY_TIMEOUT,
        wait_until_ready: bool = True, idempotency_key: str | None = None, client: Client | None = None,
    ) -> Sandbox:
        """Makes a sandbox from an image, a snapshot or a template, and waits until it can be used.

        `lifetime` is in seconds (10 minutes unless said), None is for ever; `renew_on_access` lets it live
        so much longer with each use. `resources` are `cpu`, `memory`, `disk`, `pids`. `name` is kept as the
        label `name`. `volumes` are made with `osb.volumes`. With an `idempotency_key` the server makes one
        sandbox however often it is asked, so that a broken connection is tried again. Without a `client`, one
        from the environment.
        """
        if sum(source is not None for source in (image, snapshot, template)) != 1:
            raise InvalidArgument("a sandbox is made from one thing", "give an image, a snapshot or a template")
        labels = {**(metadata or {}), **({"name": name} if name else {})}
        further = dict(extensions or {})
        if renew_on_access is not None:
            further["access.renew.extend.seconds"] = str(int(seconds(renew_on_access)))
        is_template = template is not None
        request = wire.CreateSandboxRequest(
            image=None if image is None else _image(image, image_auth),
            snapshot_id=snapshot, template_id=template,
            timeout=None if lifetime is None else int(seconds(lifetime)),
            env=dict(env) if env else None, metadata=labels or None,
            resource_limits=dict(resources) if resources else None if is_template else DEFAULT_RESOURCES,
            resource_requests=dict(resource_requests) if resource_requests else None,
            entrypoint=list(entrypoint) if entrypoint else None if is_template else DEFAULT_ENTRYPOINT,
            volumes=list(volumes) or None, network_policy=network_policy,
            credential_proxy=None if credential_proxy is None else wire.CredentialProxyConfig(enabled=credential_proxy),
            secure_access=secure_access or None, platform=platform, lifecycle=lifecycle, extensions=further or None,
        )
        return cls.from_request(request, seconds(ready_timeout), wait_until_ready, client, idempotency_key)

    @classmethod
    def from_request(
        cls, request: wire.CreateSandboxRequest, ready_timeout: float = READY_TIMEOUT,
        wait_until_ready: bool = True, client: Client | None = None, idempotency_key: str | None = None,
    ) -> Sandbox:
        """Makes a sandbox from a request as it goes over the wire; nothing is added to it."""
        sandbox = cls(client or _client(), "")
        sandbox._owns_client = client is None
        target = sandbox.client._target
        # Our server answers when the sandbox is ready.
        longest = max(ready_timeout, sandbox.client.config.request_timeout)
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        answer = target.json("POST", "/sandboxes", json=request, headers=headers, timeout=longest)
        sandbox.id = wire.CreateSandboxResponse.from_wire(answer).id
        if wait_until_ready:
            try:
                sandbox._ready(ready_timeout)
            except BaseException:
                # Nobody would know its id; whether this works is not the caller's question.
                try:
                    sandbox.kill()
                except OsbError:
                    pass
                raise
        return sandbox

    @classmethod
    def connect(
        cls, id: str, *, resume: bool = False, timeout: Seconds = READY_TIMEOUT, wait_until_ready: bool = True,
        client: Client | None = None,
    ) -> Sandbox:
        """Connects to a sandbox that exists; with `resume` one that is paused runs on first. Leaving its
        block does not end it."""
        return cls._connect(id, resume, seconds(timeout), wait_until_ready, client)

    @classmethod
    def _connect(
        cls, id: str, resume: bool, timeout: float, wait_until_ready: bool, client: Client | None
    ) -> Sandbox:
        sandbox = cls(client or _client(), id)
        sandbox._owns_client = client is None
        sandbox._is_kept = True
        if resume:
            sandbox.client.resume(id)
        if wait_until_ready:
            sandbox._ready(timeout)
        return sandbox

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if not self._is_kept:
                self.kill()
        except OsbError:
            # What left the block is what the caller must hear of.
            if error is None:
                raise
        finally:
            self.close()

    def keep(self) -> None:
        """Leaving the block no longer ends it."""
        self._is_kept = True

    def close(self) -> None:
        """Closes the connections that were made for it; it lives on."""
        if self._owns_client:
            self.client.close()

    def info(self) -> wire.SandboxInfo:
        """What the server knows of it."""
        return self.client.get(self.id)

    def metrics(self) -> wire.Metrics:
        """What it uses now."""
        return wire.Metrics.from_wire((self._exec()).json("GET", "/metrics"))

    def watch_metrics(self) -> Stream:
        """What it uses, each second, as `Metrics`."""
        answer = (self._exec()).send("GET", "/metrics/watch")
        return Stream(answer, "metrics", wire.Metrics.from_wire)

    def ping(self) -> None:
        """Asks the daemon in it whether it is up."""
        (self._exec()).whole("GET", "/ping")

    def is_healthy(self) -> bool:
        """Whether the daemon in it answers."""
        try:
            self.ping()
        except OsbError:
            return False
        return True

    def isolated_capabilities(self) -> wire.IsolatedCapabilities:
        """Whether its daemon offers isolated sessions."""
        return wire.IsolatedCapabilities.from_wire((self._exec()).json("GET", "/v1/isolated/capabilities"))

    def endpoint(self, port: int) -> wire.Endpoint:
        """Where one of its ports is reached from outside."""
        return self.client.endpoint(self.id, port)

    def preview_link(self, port: int, lifetime: Seconds = 3600.0) -> wire.Endpoint:
        """Where one of its ports is reached, as a signed route that is good for so long and needs no key."""
        expires = datetime.now(timezone.utc) + timedelta(seconds=seconds(lifetime))
        return self.client.endpoint(self.id, port, expires)

    def link(self, port: int, until: datetime | None = None) -> str:
        """A link by which a browser reaches one of its ports, good for once. The browser is let in until then,
        or for as long as the server says. Needs a server with an ingress gateway."""
        query = _http.query(("link", True), ("expires", None if until is None else int(until.timestamp())))
        path = f"/sandboxes/{_http.segment(self.id)}/endpoints/{port}"
        answer = wire.Endpoint.from_wire(self.client._target.json("GET", path, query=query))
        if not answer.link:
            raise InvalidArgument("the server knows no links", "use a server with an ingress gateway")
        return answer.link

    def url(self, port: int) -> tuple[str, dict[str, str]]:
        """The URL of one of its ports, and the headers to send."""
        base, headers = self._place(port)
        return base, headers

    def tunnel(self, port: int) -> Tunnel:
        """A plain byte stream to one of its ports, for whatever does not speak HTTP."""
        base, headers = self._place(port)
        return open_tunnel(Target(self.client._transport, base, headers))

    def renew(self, lifetime: Seconds) -> datetime:
        """Lets it live this much longer, from now; answers until when."""
        return self.client.renew(self.id, lifetime)

    def patch_metadata(self, patch: Mapping[str, str | None]) -> wire.SandboxInfo:
        """Sets labels; those that are None are removed."""
        return self.client.patch_metadata(self.id, patch)

    def wait_for_state(self, state: str, timeout: Seconds = 300.0) -> None:
        """Waits until it is in this state, told by the server's events."""
        self.client.wait_for_state(self.id, state, timeout)

    def pause(self) -> None:
        """Freezes it; answers when it is frozen."""
        self.client.pause(self.id)

    def resume(self) -> None:
        """Lets it run on; answers when it runs."""
        # It may come back at another address.
        self._exec_target = self._egress_target = None
        self.client.resume(self.id)

    def snapshot(self, name: str | None = None) -> wire.Snapshot:
        """Keeps a copy of its filesystem; answers when sandboxes can be made from it."""
        begun = self.client.create_snapshot(self.id, name)
        return self.client.wait_for_snapshot(begun.id)

    def diagnostic_logs(self, scope: str = "all") -> wire.DiagnosticContentResponse:
        """Its logs for whoever looks for what went wrong."""
        return self.client.diagnostic_logs(self.id, scope)

    def diagnostic_events(self, scope: str = "all") -> wire.DiagnosticContentResponse:
        """What happened to it."""
        return self.client.diagnostic_events(self.id, scope)

    def kill(self) -> None:
        """Ends it. One that is already gone is no error."""
        try:
            self.client.kill(self.id)
        except OsbError as error:
            if not error.is_not_found:
                raise

    def _exec(self) -> Target:
        """The daemon inside."""
        if self._exec_target is None:
            base, headers = self._place(EXEC_PORT)
            self._exec_target = Target(self.client._transport, base, headers)
        return self._exec_target

    def _egress(self) -> Target:
        """The egress API."""
        if self._egress_target is None:
            base, headers = self._place(EGRESS_PORT)
            self._egress_target = Target(self.client._transport, base, headers)
        return self._egress_target

    def _place(self, port: int) -> tuple[str, dict[str, str]]:
        found = self.endpoint(port)
        config = self.client.config
        headers: dict[str, str] = {}
        if config.api_key and config.use_server_proxy:
            # Only the server may see the key; a sandbox never does.
            headers["OPEN-SANDBOX-API-KEY"] = config.api_key
        headers.update(found.headers or {})
        base = found.endpoint.rstrip("/")
        return (base if "://" in base else f"{config.scheme}://{base}"), headers

    def _ready(self, timeout: float) -> None:
        """Waits until the daemon inside answers."""
        deadline = net.now() + timeout
        while True:
            try:
                return self.ping()
            except OsbError as error:
                if error.is_unauthorized or not _may_pass(error):
                    raise
                last = error
            self._check_hope()
            left = deadline - net.now()
            if left <= 0:
                raise NotReady(self.id, timeout, last)
            net.sleep(min(ASK_AGAIN, left))

    def _check_hope(self) -> None:
        """Fails if it is in a state from which it never becomes ready."""
        try:
            status = (self.info()).status
        except OsbError:
            return
        if status.state in ("Failed", "Terminated", "Stopping"):
            raise Failed(f"sandbox {self.id}", status.state, status.message or "the server does not say why")
        if status.state in ("Paused", "Pausing"):
            raise Failed(f"sandbox {self.id}", status.state, "resume it first")


def _client() -> Client:
    from .client import Client

    return Client()


def _image(image: str, auth: tuple[str, str] | None) -> wire.ImageSpec:
    held = None if auth is None else wire.ImageAuth(username=auth[0], password=auth[1])
    return wire.ImageSpec(uri=image, auth=held)


def _may_pass(error: OsbError) -> bool:
    """Whether the same question may be answered otherwise in a moment."""
    if error.status == 404:
        # The sandbox itself is not known, as opposed to having no address yet.
        code = error.code or ""
        return code == "KUBERNETES::POD_IP_NOT_AVAILABLE" or not code.endswith("NOT_FOUND")
    if error.status is not None:
        return error.status not in (400, 410)
    return isinstance(error, (ConnectionFailed, TimedOut))
