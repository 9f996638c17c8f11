"""What is mounted into a sandbox, given to `Sandbox.create(volumes=[...])`."""

from __future__ import annotations

from . import wire

__all__ = ["host", "named"]


def host(name: str, host_path: str, mount_path: str, read_only: bool = False) -> wire.Volume:
    """A directory of the host. The operator decides which are allowed."""
    return wire.Volume(name=name, host=wire.HostVolume(path=host_path), mount_path=mount_path, read_only=read_only)


def named(name: str, claim_name: str, mount_path: str, read_only: bool = False) -> wire.Volume:
    """A named volume that outlives the sandbox; it is made when it does not exist."""
    claim = wire.NamedVolume(claim_name=claim_name, create_if_not_exists=True)
    return wire.Volume(name=name, pvc=claim, mount_path=mount_path, read_only=read_only)
