"""What making and connecting to a sandbox takes, as types; loaded by type checkers only."""

from __future__ import annotations

from typing import Mapping, Sequence

from typing_extensions import TypedDict

from . import wire
from ._durations import Seconds


class ConnectOptions(TypedDict, total=False):
    """What `Sandbox.connect` takes beside the id and the client."""

    resume: bool
    timeout: Seconds
    wait_until_ready: bool


class PoolOptions(TypedDict, total=False):
    """What `Pool` takes for its sandboxes: all that `Sandbox.create` does but the lifetime, which the pool sets."""

    snapshot: str | None
    template: str | None
    name: str | None
    env: Mapping[str, str] | None
    metadata: Mapping[str, str] | None
    resources: Mapping[str, str] | None
    resource_requests: Mapping[str, str] | None
    entrypoint: Sequence[str] | None
    volumes: Sequence[wire.Volume]
    network_policy: wire.NetworkPolicy | None
    credential_proxy: bool | None
    secure_access: bool
    platform: wire.PlatformSpec | None
    lifecycle: wire.SandboxLifecycle | None
    renew_on_access: Seconds | None
    extensions: Mapping[str, str] | None
    image_auth: tuple[str, str] | None
    ready_timeout: Seconds
    wait_until_ready: bool


class CreateOptions(PoolOptions, total=False):
    """What `Sandbox.create` takes beside the image and the client."""

    idempotency_key: str | None
    lifetime: Seconds | None
