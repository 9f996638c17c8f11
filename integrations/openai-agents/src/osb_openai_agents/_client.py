"""Makes sessions, finds them again, and deletes them."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from osb import AsyncSandbox, OsbError

from ._session import OsbSandboxSession, OsbSandboxSessionState

WORKSPACE_ROOT = "/workspace"
# How long a session's sandbox lives that nobody ends.
LIFETIME_SECONDS = 60 * 60


class OsbSandboxClientOptions(BaseSandboxClientOptions):
    """The sandbox of a session."""

    type: Literal["osb"] = "osb"
    image: str
    env: dict[str, str] = {}
    resources: dict[str, str] = {"cpu": "1", "memory": "2Gi"}
    lifetime: int = LIFETIME_SECONDS


class OsbSandboxClient(BaseSandboxClient[OsbSandboxClientOptions]):
    """The client. It holds no connections of its own: every session has one."""

    backend_id = "osb"

    def __init__(
        self, *, instrumentation: Instrumentation | None = None, dependencies: Dependencies | None = None
    ) -> None:
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self, *, snapshot: SnapshotSpec | SnapshotBase | None = None, manifest: Manifest | None = None,
        options: OsbSandboxClientOptions,
    ) -> SandboxSession:
        wanted = manifest or Manifest(root=WORKSPACE_ROOT)
        self._validate_manifest_for_create(wanted)
        if list(wanted.ephemeral_mount_targets()):
            raise ValueError("a sandbox of osb takes no mounts from a manifest; give it files, or an image that has them")
        sandbox = await _make(options.image, options.env, options.resources, options.lifetime)
        session_id = uuid.uuid4()
        state = OsbSandboxSessionState(
            session_id=session_id, manifest=wanted, snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox_id=sandbox.id, image=options.image, env=options.env, resources=options.resources,
            lifetime=options.lifetime)
        return self._wrap(state, sandbox)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        await _ours(session).shutdown()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, OsbSandboxSessionState):
            raise TypeError(f"this is a session of {state.type}, not of osb")
        state.assert_path_grants_rebound()
        try:
            sandbox = await AsyncSandbox.connect(state.sandbox_id)
        except OsbError as error:
            if not error.is_not_found:
                raise
            # It ended meanwhile: another one gets the workspace from the snapshot when the session starts.
            sandbox = await _make(state.image, state.env, state.resources, state.lifetime)
            state.sandbox_id = sandbox.id
        return self._wrap(state, sandbox)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, OsbSandboxSessionState)

    def _wrap(self, state: OsbSandboxSessionState, sandbox: AsyncSandbox) -> SandboxSession:
        return self._wrap_session(OsbSandboxSession(state, sandbox), instrumentation=self._instrumentation)


async def _make(image: str, env: dict[str, str], resources: dict[str, str], lifetime: int) -> AsyncSandbox:
    return await AsyncSandbox.create(
        image, env=env, resources=resources, lifetime=lifetime, metadata={"framework": "openai-agents"})


def _ours(session: Any) -> OsbSandboxSession:
    inner = session._inner
    if not isinstance(inner, OsbSandboxSession):
        raise TypeError("this session was made by another client")
    return inner
