"""Names, beginnings of ids, and the commands that Docker's users know."""

import json
import re
import socket
import subprocess

import pytest
from conftest import DEADLINE_SECONDS, IMAGE


@pytest.fixture
def named(osb, request):
    """A sandbox with a name of its own."""
    name = re.sub("[^a-z0-9]", "-", request.node.name.lower()).strip("-")[:60].strip("-")
    id = osb("run", "-d", "--name", name, IMAGE).stdout.strip()
    yield name, id
    osb("rm", "-f", id, code=None)


def wait_for(osb, id, is_it):
    """Returns when an event of the sandbox is the one; those that have been count, too."""
    watching = subprocess.Popen([osb.program, "events", "-f", "--sandbox-id", id, "--after", "0", "-o", "json"],
                                env=osb.environment, stdout=subprocess.PIPE, text=True)
    try:
        for line in watching.stdout:
            if is_it(json.loads(line)):
                return
        raise AssertionError("the events ended before it came")
    finally:
        watching.kill()
        watching.wait()


def has_ended(event):
    return (event.get("status") or {}).get("state") == "Terminated"


def test_a_name_and_the_beginning_of_an_id_are_as_good_as_the_id(osb, named):
    name, id = named
    for text in (name, id, id[:13]):
        assert osb("exec", text, "--", "echo", "in").stdout == "in\n"
        assert osb.json("sandbox", "get", text)["id"] == id
    assert osb.json("sandbox", "get", id)["metadata"] == {"osb/name": name}
    osb("cp", "-q", "-", f"{name}:/tmp/x", stdin="y")
    assert osb("file", "cat", name, "/tmp/x").stdout == "y"
    assert osb("logs", name).stdout == ""
    assert osb("stats", "--no-stream", "-o", "name", name).stdout == f"{id}\n"
    assert osb("sandbox", "renew", name, "-t", "20m", "-o", "name", code=None).returncode in (0, 1)


def test_a_beginning_that_several_have_is_refused_with_all_of_them(osb):
    made = [osb("run", "-d", IMAGE).stdout.strip() for _ in range(17)]
    try:
        # Of seventeen two begin with the same of sixteen letters.
        letter = next(a for a in "0123456789abcdef" if sum(id.startswith(a) for id in made) > 1)
        said = osb("exec", letter, "--", "true", code=125).stderr
        assert f"sandboxes begin with '{letter}'" in said and "osb ps --no-trunc" in said
        assert sum(id in said for id in made) > 1
        assert "osb ls" in osb("exec", "no-such-name", "--", "true", code=125).stderr
    finally:
        gone = osb.json("rm", *made)
    assert {row["sandbox_id"] for row in gone} == set(made)


def test_a_name_is_one_sandboxs_own_and_can_be_changed(osb, named):
    name, id = named
    said = osb("run", "-d", "--name", name, IMAGE, code=125).stderr
    assert id in said and "SANDBOX::NAME_TAKEN" in said
    osb("rename", name, name + "-2")
    osb("exec", name + "-2", "--", "true")
    osb("rename", id, "")
    assert not osb.json("sandbox", "get", id)["metadata"]


def test_stopped_means_halted_and_started_means_going_on(osb, named):
    name, id = named
    osb("exec", name, "--", "sh", "-c", "echo kept >/dev/shm/f")
    osb("stop", name)
    assert osb.json("sandbox", "get", id)["status"]["state"] == "Paused"
    osb("start", name, id)
    assert osb("exec", name, "--", "cat", "/dev/shm/f").stdout == "kept\n"


def test_lists_are_for_people_at_a_terminal_and_whole_elsewhere(osb, named):
    name, id = named
    with osb.at_terminal("ps", "-f", f"name={name}") as table:
        assert table.end() == 0
        screen = re.sub(r"\x1b\[[0-9;]*m", "", table.screen.decode())
    assert all(len(line) <= 80 for line in screen.replace("\r", "").splitlines()), screen
    assert id[:8] in screen and id not in screen and re.search(r" now |\ds ago", screen) and "CREATED " in screen
    with osb.at_terminal("ps", "--no-trunc", "-f", f"name={name}", columns=200) as table:
        assert table.end() == 0
        assert id in table.screen.decode()
    assert osb("ps", "-q", "-f", f"name={name}").stdout == f"{id}\n"
    assert osb("ps", "-f", f"name={name}", "--format", "{{.ID}} {{.Names}} {{.Status}}").stdout == f"{id} {name} Running\n"
    assert osb("ps", "-f", f"name={name}", "--format", "table {{.Names}}\\t{{.Image}}").stdout.split() == ["NAMES", "IMAGE", name, IMAGE]
    assert json.loads(osb("ps", "-f", f"name={name}", "--format", "json").stdout)["name"] == name
    assert "there are" in osb("ps", "--format", "{{.Nope}}", code=2).stderr
    assert "name, status, label" in osb("ps", "-f", "nope=1", code=2).stderr
    assert osb("ps", "-q", "-f", "ancestor=no/such").stdout == ""


def test_what_has_ended_is_listed_when_all_are(osb):
    id = osb("run", "-d", "--name", "over-soon", IMAGE, "--", "true").stdout.strip()
    try:
        wait_for(osb, id, has_ended)
        assert id not in osb("ps", "-q").stdout
        assert id in osb("ps", "-a", "-q").stdout
        assert osb("inspect", "-f", "{{.status.state}}", "over-soon").stdout == "Terminated\n"
        assert "has ended" in osb("start", "over-soon", code=1).stderr
        # The name of one that has ended is free.
        other = osb("run", "-d", "--name", "over-soon", IMAGE).stdout.strip()
        assert osb.json("inspect", "over-soon")[0]["id"] == other
        osb("rm", other)
    finally:
        osb("rm", "-f", id)


def test_a_detached_sandbox_is_removed_at_its_end_if_asked(osb):
    id = osb("run", "-d", "--rm", "--name", "swept", IMAGE, "--", "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.02; done").stdout.strip()
    osb("exec", "swept", "--", "touch", "/tmp/go", code=None)
    wait_for(osb, id, lambda event: event["type"] == "sandbox.deleted")
    assert id not in osb("ps", "-a", "-q").stdout


def test_a_published_port_is_forwarded_while_the_command_runs(osb):
    serve = "import socket;s=socket.create_server(('127.0.0.1',7070));print('up',flush=True)\nc,_=s.accept();c.sendall(b'got '+c.recv(99));c.close()"
    run = subprocess.Popen([osb.program, "run", "-p", "7070", IMAGE, "--", "python3", "-c", serve],
                           env=osb.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        host, port = run.stderr.readline().split()[1].split(":")
        assert run.stdout.readline() == "up\n"
        with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as line:
            line.sendall(b"it")
            assert line.recv(99) == b"got it"
        assert run.wait(DEADLINE_SECONDS) == 0
    finally:
        run.kill()
        run.wait()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words in (["run"], ["run", "-d"]):
            said = osb(*words, "-l", "port=taken", "-p", f"{port}:80", IMAGE, "--", "true", code=125).stderr
            assert "cannot listen" in said
    assert osb.json("ls", "-m", "port=taken")["items"] == []


def test_files_go_from_sandbox_to_sandbox(osb, named, shared):
    name, _ = named
    osb("exec", name, "--", "sh", "-c", "mkdir -p /tmp/tree/deep; echo a >/tmp/tree/a; echo b >/tmp/tree/deep/b; chmod 700 /tmp/tree/a")
    osb("cp", f"{name}:/tmp/tree/a", f"{shared}:/tmp/a-copy")
    assert osb("exec", shared, "--", "stat", "-c", "%a", "/tmp/a-copy").stdout == "700\n"
    assert "osb cp -r" in osb("cp", f"{name}:/tmp/tree", f"{shared}:/tmp/", code=1).stderr
    osb("cp", "-r", f"{name}:/tmp/tree", f"{shared}:/tmp/")
    assert osb("exec", shared, "--", "cat", "/tmp/tree/a", "/tmp/tree/deep/b").stdout == "a\nb\n"
    osb("exec", shared, "--", "rm", "-rf", "/tmp/tree", "/tmp/a-copy")


def test_logs_have_times_as_they_come(osb):
    id = osb("run", "-d", IMAGE, "--", "sh", "-c", "echo one; echo two").stdout.strip()
    try:
        lines = osb("logs", "-f", "-t", id).stdout.splitlines()
        assert [re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z (\w+)", line)[1] for line in lines] == ["one", "two"]
        assert osb("logs", "--since", "10m", id).stdout == "one\ntwo\n"
        assert osb("logs", "--since", "2999-01-01T00:00:00Z", id).stdout == ""
        assert "--follow" in osb("logs", "-t", id, code=2).stderr
        assert "10m" in osb("logs", "--since", "yesterday", id, code=2).stderr
    finally:
        osb("rm", id)


def test_a_snapshot_is_run_by_its_name(osb, named):
    name, _ = named
    osb("exec", name, "--", "sh", "-c", "echo in-snapshot >/root/f")
    snapshot = osb.json("snapshot", "create", name, "--name", "for-run", "--wait")["id"]
    try:
        for text in ("for-run", snapshot):
            assert osb("run", "--snapshot", text, "cat", "/root/f").stdout == "in-snapshot\n"
    finally:
        osb("snapshot", "delete", snapshot)


def test_a_terminal_without_a_command_gets_a_shell(osb):
    with osb.at_terminal("run", IMAGE) as run:
        run.type("echo is-$((40+2)); exit 7\n")
        run.expect("is-42")
        assert run.end() == 7
    assert "which command" in osb("run", IMAGE, code=2).stderr


def test_what_the_server_keeps_is_counted_and_pruned(osb):
    rows = {row["type"]: row for row in osb.json("system", "df")}
    assert set(rows) == {"images", "sandboxes", "snapshots", "volumes"}
    osb("volume", "create", "for-prune")
    ended = osb("run", "-d", IMAGE, "--", "true").stdout.strip()
    wait_for(osb, ended, has_ended)
    assert "--force" in osb("system", "prune", code=2).stderr
    osb("system", "prune", "--force")
    assert ended not in osb("ps", "-aq").stdout
    assert "for-prune" in [volume["name"] for volume in osb.json("volume", "ls")]
    with osb.at_terminal("system", "prune", "--volumes") as prune:
        prune.expect("[y/N]")
        prune.type("n\n")
        assert prune.end() == 1
    assert "for-prune" in [volume["name"] for volume in osb.json("volume", "ls")]
    osb("system", "prune", "--force", "--volumes")
    assert "for-prune" not in [volume["name"] for volume in osb.json("volume", "ls")]
