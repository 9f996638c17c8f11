"""Commands, sessions and files through the server: the same calls that the suite beside this
one makes straight at execd, so that the proxy is shown to change nothing."""

import uuid
from datetime import timedelta

import pytest
from conftest import done, only_1_1
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.filesystem import (
    ContentReplaceEntry, MoveEntry, SearchEntry, SetPermissionEntry, WriteEntry,
)


def text(messages):
    return "".join(m.text if m.text.endswith("\n") else m.text + "\n" for m in messages)


async def test_foreground_output_and_exit_code(sandbox):
    good = await done(sandbox.commands.run("echo out; echo err >&2"))
    assert text(good.logs.stdout).strip() == "out" and text(good.logs.stderr).strip() == "err"
    assert good.error is None and good.complete is not None
    bad = await done(sandbox.commands.run("exit 7"))
    assert bad.error.value == "7" and bad.complete is None
    many = await done(sandbox.commands.run("i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done"))
    assert text(many.logs.stdout).split("\n")[:-1] == [f"line {n}" for n in range(1000)]


async def test_options_of_a_command(sandbox):
    where = await done(sandbox.commands.run("pwd", opts=RunCommandOpts(working_directory="/tmp")))
    assert text(where.logs.stdout).strip() == "/tmp"
    env = await done(sandbox.commands.run("echo $X", opts=RunCommandOpts(envs={"X": "given"})))
    assert text(env.logs.stdout).strip() == "given"
    late = await done(sandbox.commands.run("sleep 60", opts=RunCommandOpts(timeout=timedelta(milliseconds=300))))
    assert late.error is not None and late.complete is None
    who = await done(sandbox.commands.run("id -u", opts=RunCommandOpts(uid=1234, gid=1234)))
    assert text(who.logs.stdout).strip() == "1234"


async def test_background_status_logs_and_interrupt(sandbox):
    spoken = f"/tmp/{uuid.uuid4()}"
    command = f"echo started; touch {spoken}; exec sleep 600"
    run = await done(sandbox.commands.run(command, opts=RunCommandOpts(background=True)))
    # An interrupt at once could come before the first word.
    await done(sandbox.commands.run(f"until [ -e {spoken} ]; do :; done"))
    status = await done(sandbox.commands.get_command_status(run.id))
    assert status.running and status.exit_code is None
    logs = await done(sandbox.commands.get_background_command_logs(run.id))
    cursor = logs.cursor or 0
    assert logs.content in ("", "started\n")
    await done(sandbox.commands.interrupt(run.id))
    status = await done(sandbox.commands.get_command_status(run.id))
    assert not status.running
    rest = await done(sandbox.commands.get_background_command_logs(run.id, cursor))
    assert logs.content + rest.content == "started\n"


async def test_a_session_remembers(sandbox):
    session = await done(sandbox.commands.create_session(working_directory="/tmp"))
    await done(sandbox.commands.run_in_session(session, "f() { echo from-f; }; V=1; cd /"))
    out = await done(sandbox.commands.run_in_session(session, "f; echo $V; pwd"))
    assert text(out.logs.stdout).split() == ["from-f", "1", "/"]
    await done(sandbox.commands.delete_session(session))


async def test_files_there_and_back(sandbox):
    files = sandbox.files
    binary = bytes(range(256)) * 500
    await done(files.create_directories([WriteEntry(path="/tmp/d/e", mode=755)]))
    await done(files.write_files([
        WriteEntry(path="/tmp/d/a.txt", data="one two one", mode=640),
        WriteEntry(path="/tmp/d/e/b.bin", data=binary),
    ]))
    assert await done(files.read_bytes("/tmp/d/e/b.bin")) == binary
    assert await done(files.read_bytes("/tmp/d/e/b.bin", range_header="bytes=10-19")) == binary[10:20]
    stream = await done(files.read_bytes_stream("/tmp/d/e/b.bin"))
    if hasattr(stream, "__aiter__"):
        collected = b"".join([chunk async for chunk in stream])
    else:
        collected = b"".join(stream)
    assert collected == binary
    info = (await done(files.get_file_info(["/tmp/d/a.txt"])))["/tmp/d/a.txt"]
    assert (info.mode, info.size, info.owner) == (640, 11, "root")
    await done(files.set_permissions([SetPermissionEntry(path="/tmp/d/a.txt", mode=600)]))
    assert (await done(files.get_file_info(["/tmp/d/a.txt"])))["/tmp/d/a.txt"].mode == 600
    await done(files.replace_contents([ContentReplaceEntry(path="/tmp/d/a.txt", old_content="one", new_content="1")]))
    assert await done(files.read_file("/tmp/d/a.txt")) == "1 two 1"
    await done(files.move_files([MoveEntry(src="/tmp/d/a.txt", dest="/tmp/d/moved.txt")]))
    found = await done(files.search(SearchEntry(path="/tmp/d", pattern="*.txt")))
    assert [entry.path for entry in found] == ["/tmp/d/moved.txt"]
    await done(files.delete_files(["/tmp/d/moved.txt"]))
    await done(files.delete_directories(["/tmp/d"]))
    assert await done(files.search(SearchEntry(path="/tmp", pattern="moved.txt"))) == []


@only_1_1
async def test_what_1_1_added(sandbox):
    from opensandbox.models.filesystem import DirectoryListEntry

    argv = await done(sandbox.commands.run(["echo", "a  b", "$HOME"]))
    assert text(argv.logs.stdout) == "a  b $HOME\n"
    await done(sandbox.commands.set_env("KEPT", "it's kept"))
    env = await done(sandbox.commands.run("echo $KEPT"))
    assert text(env.logs.stdout).strip() == "it's kept"
    await done(sandbox.files.write_file("/tmp/list/one", "1"))
    listed = await done(sandbox.files.list_directory(DirectoryListEntry(path="/tmp/list")))
    assert [entry.path for entry in listed] == ["/tmp/list/one"]
    counts = await done(sandbox.files.replace_contents_detailed([
        ContentReplaceEntry(path="/tmp/list/one", old_content="1", new_content="2"),
    ]))
    assert [(c.path, c.replaced_count) for c in counts] == [("/tmp/list/one", 1)]
    await done(sandbox.commands.run("chmod 777 /tmp/list"))
    other = sandbox.files_with_identity(1234, 1234)
    await done(other.write_file("/tmp/list/theirs", "x"))
    info = (await done(sandbox.files.get_file_info(["/tmp/list/theirs"])))["/tmp/list/theirs"]
    assert info.owner == "1234"
