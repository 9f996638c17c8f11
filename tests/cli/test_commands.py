"""What osb has beyond the published one, in pipes and scripts."""

import base64
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import zlib

from conftest import DEADLINE_SECONDS, IMAGE


def sandboxes(osb, label):
    return [item["id"] for item in osb.json("ls", "-m", label)["items"]]


def test_run_gives_output_code_and_cleans_up(osb):
    done = osb("run", "-l", "run=one", IMAGE, "--", "sh", "-c", "echo out; echo err >&2; exit 3", code=3)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert sandboxes(osb, "run=one") == []


def test_run_takes_input_environment_and_directory(osb):
    words = ["run", "-i", "-e", "A=1", "-w", "/tmp", IMAGE, "--", "sh", "-c", "cat; echo $A; pwd"]
    assert osb(*words, stdin="in\n").stdout == "in\n1\n/tmp\n"


def test_run_can_keep_its_sandbox(osb):
    said = osb("run", "--keep", "-l", "run=kept", IMAGE, "--", "true").stderr
    [kept] = sandboxes(osb, "run=kept")
    assert kept in said
    osb("rm", kept)


def test_an_interrupted_run_cleans_up(osb):
    run = subprocess.Popen(
        [osb.program, "run", "-l", "run=stopped", IMAGE, "--", "sh", "-c", "echo up; sleep 1000"],
        env=osb.environment, stdout=subprocess.PIPE, text=True,
    )
    assert run.stdout.readline() == "up\n"
    run.send_signal(signal.SIGINT)
    assert run.wait(DEADLINE_SECONDS) == 130
    assert sandboxes(osb, "run=stopped") == []


def test_exec_has_the_codes_of_shells(osb, shared):
    assert osb("exec", shared, "--", "sh", "-c", "exit 42", code=42).stdout == ""
    osb("exec", shared, "--", "sh", "-c", "kill -9 $$", code=137)
    assert osb("exec", "-i", shared, "--", "wc", "-c", stdin="x" * 300_000).stdout.strip() == "300000"
    assert osb("exec", "-e", "A=b c", shared, "--", "printenv", "A").stdout == "b c\n"
    assert osb("exec", shared, "--", "echo", "$HOME", "a  b").stdout == "$HOME a  b\n"


def test_lines_are_not_glued_together(osb, shared):
    assert osb("command", "run", shared, "--", "printf", "l1\\nl2\\n").stdout == "l1\nl2\n"
    assert osb("command", "run", shared, "--", "printf", "no-end").stdout == "no-end"


def test_directories_go_both_ways(osb, shared, tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep/er").mkdir(parents=True)
    (tree / "a").write_bytes(os.urandom(700_000))
    (tree / "deep/er/run.sh").write_text("#!/bin/sh\n")
    (tree / "deep/er/run.sh").chmod(0o755)
    (tree / "link").symlink_to("a")
    osb("cp", "-r", tree, f"{shared}:/tmp/copied")
    assert osb("exec", shared, "--", "readlink", "/tmp/copied/link").stdout == "a\n"
    osb("cp", "-r", f"{shared}:/tmp/copied", tmp_path / "back")
    for name in ("a", "deep/er/run.sh"):
        assert (tmp_path / "back" / name).read_bytes() == (tree / name).read_bytes()
    assert (tmp_path / "back/deep/er/run.sh").stat().st_mode & 0o777 == 0o755
    # Into a directory that is there.
    osb("cp", "-r", tree, f"{shared}:/tmp/copied")
    osb("exec", shared, "--", "test", "-f", "/tmp/copied/tree/a")
    assert "osb cp -r" in osb("cp", tree, f"{shared}:/tmp/x", code=1).stderr
    osb("file", "rmdir", shared, "/tmp/copied")


def test_files_go_both_ways_and_through_pipes(osb, shared, tmp_path):
    source = tmp_path / "file.bin"
    source.write_bytes(os.urandom(3_000_000))
    osb("cp", "-q", source, f"{shared}:/tmp/file.bin")
    osb("cp", "-q", f"{shared}:/tmp/file.bin", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()
    osb("cp", "-", f"{shared}:/tmp/piped", stdin="piped")
    assert osb("cp", f"{shared}:/tmp/piped", "-").stdout == "piped"
    # What was there stays when the download fails.
    kept = tmp_path / "kept"
    kept.write_text("old")
    osb("file", "download", shared, "/tmp/not-there", kept, code=1)
    assert kept.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".osb")] == []


def test_progress_is_shown_at_a_terminal(osb, shared, tmp_path):
    source = tmp_path / "large.bin"
    source.write_bytes(bytes(30_000_000))
    with osb.at_terminal("cp", source, f"{shared}:/tmp/large.bin", columns=120) as copy:
        copy.expect("28.6 MiB  ")
        copy.expect("28.6 MiB")
        assert copy.end() == 0


def test_a_port_is_forwarded_for_any_protocol(osb, shared):
    listing = "import socket;s=socket.create_server(('127.0.0.1',7070));print('up',flush=True)\n" \
              "while True:\n c,_=s.accept();d=c.recv(99);c.sendall(b'got '+d);c.close()"
    serving = subprocess.Popen([osb.program, "exec", shared, "--", "python3", "-c", listing],
                               env=osb.environment, stdout=subprocess.PIPE, text=True)
    forward = subprocess.Popen([osb.program, "port-forward", shared, ":7070", "-o", "json"],
                               env=osb.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout.readline() == "up\n"
        host, port = json.loads(forward.stdout.readline())["address"].split(":")
        for word in (b"one", b"\x00\xff two"):
            with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as line:
                line.sendall(word)
                assert line.recv(99) == b"got " + word
    finally:
        for process in (forward, serving):
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_SECONDS)


def test_logs_of_a_command_are_followed(osb, shared):
    id = osb.json("command", "run", shared, "-d", "--", "sh", "-c", "for i in 1 2 3; do echo l$i; sleep 0.1; done")
    assert osb("logs", "-f", shared, id["execution_id"]).stdout == "l1\nl2\nl3\n"
    assert osb("logs", "-n", "1", shared, id["execution_id"]).stdout == "l3\n"


def test_logs_of_a_sandbox_are_followed(osb):
    entrypoint = "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo second; until [ -e /tmp/end ]; do sleep 0.02; done"
    id = osb.json("sandbox", "create", "-i", IMAGE, "--entrypoint", "sh", "--entrypoint", "-c",
                  "--entrypoint", entrypoint)["id"]
    follow = [subprocess.Popen([osb.program, "logs", "-f", id], env=osb.environment,
                               stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert [one.stdout.readline() for one in follow] == 2 * ["first\n"]
        osb("exec", id, "--", "touch", "/tmp/go")
        assert [one.stdout.readline() for one in follow] == 2 * ["second\n"]
        # One goes away; the other sees the end.
        follow[0].send_signal(signal.SIGINT)
        assert follow[0].wait(DEADLINE_SECONDS) == 130
        # The sandbox may be gone before this is answered.
        osb("exec", id, "--", "touch", "/tmp/end", code=None)
        assert follow[1].wait(DEADLINE_SECONDS) == 0 and follow[1].stdout.read() == ""
    finally:
        osb("rm", id)
    # The last of what it printed is kept for a day; of one that never was there is nothing.
    assert osb("logs", "-f", id).stdout == "first\nsecond\n"
    assert "osb ls" in osb("logs", "-f", "no-such-sandbox", code=1).stderr


def test_logs_of_a_sandbox_that_is_removed_end(osb, made):
    follow = subprocess.Popen([osb.program, "logs", "-f", made], env=osb.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    osb("rm", made)
    # Asked before or after the removal: it ends, and says why only if it came too late.
    said = follow.communicate(timeout=DEADLINE_SECONDS)[1]
    assert (follow.returncode, said) == (0, "") or (follow.returncode == 1 and "osb ls" in said), said


def test_events_are_followed(osb):
    events = subprocess.Popen([osb.program, "events", "-f", "-o", "json"], env=osb.environment,
                              stdout=subprocess.PIPE, text=True)
    found = threading.Event()
    wanted = []

    def read():
        for line in events.stdout:
            event = json.loads(line)
            if wanted and event.get("sandbox_id") in wanted:
                found.set()
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        # The subscription has no sign of its own: changes are made until one is seen.
        for _ in range(20):
            id = osb.json("sandbox", "create", "-i", IMAGE, "-t", "5m")["id"]
            wanted.append(id)
            osb("rm", id)
            if found.wait(1):
                break
        assert found.is_set(), "no event was seen"
    finally:
        events.send_signal(signal.SIGINT)
        events.wait(DEADLINE_SECONDS)
    record = osb.json("events", "-n", "5", "--sandbox-id", wanted[0])
    assert {"sandbox.create", "sandbox.delete"} <= {entry["action"] for entry in record}


def test_code_remembers_and_fails_with_its_exception(osb, shared):
    assert osb("code", shared, "-l", "bash", "-c", "echo $((6*7))").stdout == "42\n"
    assert osb("code", shared, "-l", "bash", stdin="echo piped\n").stdout == "piped\n"


def test_names_and_raw_are_for_scripts(osb, shared):
    assert osb("ls", "-m", "for=shared", "-o", "name").stdout == f"{shared}\n"
    fields = osb("ls", "-m", "for=shared", "-o", "raw").stdout.rstrip("\n").split("\t")
    assert fields[:3] == [shared, "Running", IMAGE]
    plain = osb("ls", "-m", "for=shared").stdout.splitlines()
    assert plain[0].split() == ["ID", "STATUS", "IMAGE", "CREATED_AT", "EXPIRES_AT", "NAME"]
    assert plain[1].split()[:3] == [shared, "Running", IMAGE]
    assert "●" not in plain[1] and "\x1b" not in plain[1]


def test_a_benchmark_of_the_server(osb):
    steps = osb.json("bench", "-n", "2", "--image", IMAGE)
    assert [row["step"] for row in steps][:2] == ["create", "first command"]
    assert all(row["count"] == 2 and row["p50_ms"] > 0 for row in steps)


def test_completions_and_manual_pages(osb, tmp_path):
    for shell in ("bash", "zsh", "fish"):
        assert "port-forward" in osb("completions", shell).stdout
    subprocess.run(["bash", "-n"], input=osb("completions", "bash").stdout, text=True, check=True)
    osb("man", "--directory", tmp_path / "man")
    pages = {page.name for page in (tmp_path / "man").iterdir()}
    assert {"osb.1", "osb-run.1", "osb-sandbox-create.1", "osb-command-session-run.1"} <= pages
    assert ".TH" in osb("man", "sandbox", "create").stdout


def test_images_and_volumes_of_this_machine(osb, tmp_path):
    config = tmp_path / "server.toml"
    config.write_text(f'[embedded]\ndata_dir = "{tmp_path}/data"\n')
    where = ["--server-config", config]
    rootfs = tmp_path / "rootfs"
    (rootfs / "bin").mkdir(parents=True)
    (rootfs / "bin/x").write_text("x")
    assert osb.json("image", "ls", *where) == []
    osb("image", "import", rootfs, "tiny:1", *where)
    [image] = osb.json("image", "ls", *where)
    assert image["reference"].endswith("tiny:1")
    osb("image", "export", "tiny:1", tmp_path / "tiny.tar", *where)
    osb("image", "rm", "tiny:1", *where)
    assert osb.json("image", "prune", *where)["layers"] == 1
    osb("image", "import", tmp_path / "tiny.tar", "again:1", *where)
    assert osb("image", "ls", "-o", "name", *where).stdout.startswith("sha256:")
    assert "not an image reference" in osb("image", "pull", "Not A Name", *where, code=1).stderr
    (tmp_path / "data/volumes/kept").mkdir(parents=True)
    assert osb("volume", "ls", "-o", "raw", *where).stdout.startswith("kept\t")
    osb("volume", "rm", "kept", *where)
    assert osb.json("volume", "ls", *where) == []


def test_an_open_image_store_is_left_alone(osb, server):
    config = server.log.parent / "config.toml"
    said = osb("image", "ls", "--server-config", config, code=1).stderr
    assert "a server has the image store" in said and "try:" in said


def test_images_of_the_server(osb, tmp_path):
    rootfs = tmp_path / "rootfs"
    (rootfs / "bin").mkdir(parents=True)
    (rootfs / "bin/x").write_bytes(os.urandom(3_000_000))
    references = lambda: [image["reference"] for image in osb.json("image", "ls")]
    assert "Imported: sha256:" in osb("image", "import", rootfs, "example.org/tiny:1").stdout
    assert "example.org/tiny:1" in references()
    osb("image", "export", "example.org/tiny:1", tmp_path / "tiny.tar")
    osb("image", "rm", "example.org/tiny:1")
    assert "example.org/tiny:1" not in references()
    assert osb.json("image", "prune")["layers"] == 1
    osb("image", "import", tmp_path / "tiny.tar", "example.org/again:1")
    assert "example.org/again:1" in references()
    with osb.at_terminal("image", "import", rootfs, "example.org/shown:1", columns=200) as shown:
        shown.expect("MiB/s")
        shown.expect("Imported: sha256:")
        assert shown.end() == 0
    for name in ("example.org/again:1", "example.org/shown:1"):
        osb("image", "rm", name)
    osb("image", "prune")
    for words, part in ((["rm", "example.org/not-there:1"], "not-there"), (["pull", "Not A Name"], "image.uri"),
                        (["export", "example.org/not-there:1", tmp_path / "x"], "not-there"),
                        (["import", tmp_path / "no-such-file"], "no-such-file")):
        assert part in osb("image", *words, code=1).stderr
    assert not (tmp_path / "x").exists()


def test_volumes_of_the_server(osb):
    names = lambda: [volume["name"] for volume in osb.json("volume", "ls")]
    osb("volume", "create", "cli-one", "cli-two")
    assert {"cli-one", "cli-two"} <= set(names())
    volumes = osb.home / "volumes.json"
    volumes.write_text(json.dumps([{"name": "v", "pvc": {"claimName": "cli-one"}, "mountPath": "/v"}]))
    id = osb.json("sandbox", "create", "-i", IMAGE, "-t", "5m", "--volumes-file", volumes)["id"]
    assert id in osb("volume", "rm", "cli-one", code=1).stderr
    osb("rm", id)
    osb("volume", "rm", "cli-one", "cli-two")
    assert not {"cli-one", "cli-two"} & set(names())


def test_a_list_has_all_of_them_and_a_filter_removes_them(osb):
    ids = {osb.json("sandbox", "create", "-i", IMAGE, "-t", "5m", "-m", "many=yes")["id"] for _ in range(5)}
    words = ["-m", "many=yes", "--page-size", "2"]
    assert set(osb("ls", "-o", "name", *words).stdout.split()) == ids
    assert {item["id"] for item in osb.json("ls", *words)["items"]} == ids
    lines = osb("ls", *words).stdout.splitlines()
    assert lines[0].startswith("ID ") and len(lines) == 6
    with osb.at_terminal("ls", *words, columns=120) as table:
        assert table.end() == 0
        assert table.screen.count("├".encode()) == 1 and table.screen.count(b"Running") == 5
    # The published command has pages, and ours says that there are more.
    page = osb("sandbox", "list", *words)
    assert len(page.stdout.splitlines()) == 3 and "5 in all" in page.stderr
    osb("rm", "-m", "many=yes", "-s", "Paused")
    assert set(sandboxes(osb, "many=yes")) == ids
    assert set(osb("rm", "-m", "many=yes", "-o", "name").stdout.split()) == ids
    assert sandboxes(osb, "many=yes") == []
    assert "required" in osb("rm", code=2).stderr


def test_versions_are_said(osb):
    said = osb.json("version")
    assert said["client"] and said["server"]
    done = osb("version", code=1, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1"})
    assert said["client"] in done.stdout and "osb up" in done.stderr


def test_sizes_are_numbers_for_programs(osb, shared):
    [usage] = osb.json("stats", shared)
    assert usage["memory_limit_bytes"] == 512 << 20
    assert isinstance(usage["memory_bytes"], int) and isinstance(usage["cpu_percent"], (int, float))


FIGURE = """
class Figure:
    def _repr_png_(self): import base64; return base64.b64decode('PNG')
    def _repr_html_(self): return '<table></table>'
    def __repr__(self): return 'a figure'
Figure()
"""


def png():
    """One red pixel."""
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", zlib.compress(b"\0\xff\0\0")) + part(b"IEND", b"")


PNG = base64.b64encode(png()).decode()


def test_figures_and_tables_of_code_are_saved(osb, shared, tmp_path):
    code = FIGURE.replace("PNG", PNG)
    done = osb("code", shared, "-c", code, cwd=tmp_path)
    assert done.stdout == "a figure\n"
    assert "figures/figure-1.png" in done.stderr and "figures/table-1.html" in done.stderr
    assert (tmp_path / "figures/figure-1.png").read_bytes() == base64.b64decode(PNG)
    osb("code", shared, "--figures", tmp_path / "own", "-c", code)
    assert (tmp_path / "own/table-1.html").read_text() == "<table></table>"
    # Nothing that is there is replaced.
    osb("code", shared, "-c", code, cwd=tmp_path)
    assert (tmp_path / "figures/figure-2.png").exists()
    [result] = osb.json("code", shared, "-c", code)["results"]
    assert result["image/png"].strip() == PNG and result["text/html"] and result["text/plain"] == "a figure"
    failed = osb("code", shared, "-o", "json", "-c", "print(1); 1/0", code=1)
    said = json.loads(failed.stdout)
    assert said["stdout"] == "1\n" and said["error"]["ename"] == "ZeroDivisionError"


def test_figures_are_shown_where_the_terminal_can(osb, shared, tmp_path):
    code = FIGURE.replace("PNG", PNG)
    for env, sign in (({"TERM": "xterm-kitty"}, b"\x1b_Ga=T,f=100,m=0;" + PNG.encode()),
                      ({"TERM_PROGRAM": "iTerm.app"}, b"\x1b]1337;File=inline=1;size="),
                      ({"TERM": "foot"}, b"\x1bPq\"1;1;1;1")):
        with osb.at_terminal("code", shared, "--figures", tmp_path, "-c", code, env=env) as shown:
            shown.expect(sign)
            assert shown.end() == 0
    with osb.at_terminal("code", shared, "--figures", tmp_path, "-c", code) as plain:
        assert plain.end() == 0
        assert b"\x1b_G" not in plain.screen and b"\x1bP" not in plain.screen


def test_a_language_that_the_sandbox_lacks_is_told(osb, shared):
    assert osb("code", shared, "-l", "bash", "-c", "echo $((40+2))").stdout == "42\n"
    said = osb("code", shared, "-l", "cobol", "-c", "x", code=1).stderr
    assert "cobol" in said
