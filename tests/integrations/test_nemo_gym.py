"""nemo-gym as published: its provider `opensandbox` with the settings that it ships."""

import pytest
import yaml
from conftest import IMAGE, KEY, sandboxes
from nemo_gym.sandbox.providers import opensandbox
from nemo_gym.sandbox.providers.base import SandboxResources, SandboxSpec


@pytest.fixture
async def provider(server):
    from pathlib import Path

    shipped = Path(opensandbox.__file__).parent / "configs/opensandbox.yaml"
    options = yaml.safe_load(shipped.read_text())["sandbox"]["opensandbox"]
    options["connection"].update(domain=server.address, api_key=KEY)
    # A sandbox here is ready when it is there: one probe is as good as two a second apart.
    options["probe"].update(stable_count=1, stable_delay_s=0.0)
    provider = opensandbox.OpenSandboxProvider(**options)
    yield provider
    await provider.aclose()


async def test_a_rollout(server, provider, tmp_path):
    spec = SandboxSpec(image=IMAGE, metadata={"sandbox-api": "opensandbox-sdk"}, env={"WORD": "kept"},
                       resources=SandboxResources(cpu=1, memory_mib=512))
    handle = await provider.create(spec)
    try:
        assert len(sandboxes(server)) == 1
        done = await provider.exec(handle, "printf 'a\\nb\\n'; echo $WORD; echo wrong >&2; exit 3")
        assert done.return_code == 3 and "wrong" in done.stderr
        assert [line for line in done.stdout.splitlines() if line] == ["a", "b", "kept"]
        (tmp_path / "there").write_bytes(b"\x00 up \xff")
        await provider.upload_file(handle, tmp_path / "there", "/tmp/in/data.bin")
        await provider.download_file(handle, "/tmp/in/data.bin", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"\x00 up \xff"
        assert "running" in str(await provider.status(handle)).lower()
    finally:
        await provider.close(handle)
    assert sandboxes(server) == []
