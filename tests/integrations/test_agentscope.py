"""agentscope as published: the backend that its tools work with, and a workspace that is found again.

A workspace installs its gateway by downloads from hosts that a test does not reach, so what is tested of it is
everything before: the sandbox by its label, paused when it is left and resumed when it is opened again.
"""

import pytest
from agentscope.workspace import OpenSandboxWorkspace
from conftest import IMAGE, KEY, sandboxes


def workspace(server):
    return OpenSandboxWorkspace(workspace_id="team-1", image=IMAGE, domain=server.address, api_key=KEY)


async def test_a_workspace_is_left_and_found_again(server):
    first = workspace(server)
    await first._provision_backend()
    backend, id = first._backend, first.sandbox_id
    done = await backend.exec_shell(["sh", "-c", "printf 'a\\nb\\n'; exit 3"], cwd="/tmp")
    assert (done.exit_code, done.stdout.splitlines()) == (3, [b"a", b"b"])
    await backend.write_file("/workspace/notes/x.bin", b"\x00\xff")
    assert await backend.read_file("/workspace/notes/x.bin") == b"\x00\xff"
    assert await backend.file_exists("/workspace/notes/x.bin") and await backend.is_dir("/workspace/notes")
    assert [str(entry).rsplit("/", 1)[-1] for entry in await backend.list_dir("/workspace/notes")] == ["x.bin"]
    with pytest.raises(FileNotFoundError):
        await backend.read_file("/workspace/missing")
    await first._teardown_backend()

    second = workspace(server)
    await second._provision_backend()
    try:
        assert second.sandbox_id == id and sandboxes(server) == [id]
        assert await second._backend.read_file("/workspace/notes/x.bin") == b"\x00\xff"
    finally:
        await second._sandbox.kill()
        await second._sandbox.close()
