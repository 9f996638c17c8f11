"""Everyday `docker run` command lines, with what Docker does.

Every line is run by a real engine (`make test-docker-habits`, tests/docker/test_habits.py), which holds
this table to the truth, and by `osb` (test_docker_habits.py): the same output and exit code, or, where
`instead` is set, a message that says what to use instead. Both have the same two images, made here: one of
busybox with a CMD, one with an ENTRYPOINT.
"""

import gzip
import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
import urllib.request
from dataclasses import dataclass, field

# No line takes this long; it only keeps a broken one from hanging.
DEADLINE_SECONDS = 60
PLAIN, ECHO = "habits/plain:1", "habits/echo:1"
APPLETS = ("sh", "cat", "echo", "env", "false", "head", "hostname", "httpd", "id", "kill", "ls", "mkdir", "nc", "pwd",
           "sleep", "stat", "tail", "test", "touch", "true", "uname", "wc")


@dataclass
class Line:
    """Words behind `docker` and `osb`; {name}, {other}, {volume}, {dir}, {file} and {port} differ from run to run."""

    words: str
    out: str | None = None
    # Nothing where that depends on the machine.
    code: int | None = 0
    stdin: str | None = None
    # What comes after, with the output of each, before everything is removed.
    then: list = field(default_factory=list)
    # What osb says where it does something else on purpose.
    instead: str | None = None

    def __str__(self):
        return self.words


P, E = PLAIN, ECHO
LINES = [
    # A command, its output, its exit code.
    Line(f"run --rm {P} echo hello", "hello\n"),
    Line(f"run --rm {P} echo 'a  b' c", "a  b c\n"),
    Line(f"run --rm {P} ls -d /etc /tmp", "/etc\n/tmp\n"),
    Line(f"run {P} true", ""),
    Line(f"run --rm {P} false", "", 1),
    Line(f"run --rm {P} sh -c 'exit 42'", "", 42),
    Line(f"run --rm {P} sh -c 'sleep 60 & kill -9 $!; wait $!'", "", 137),
    Line(f"run --rm {P} no-such-program", "", 127),
    Line(f"run --rm {P} /etc/passwd", "", 126),
    Line(f"run --rm {P} sh -c 'echo out; echo err >&2'", "out\n"),
    Line("run --rm 127.0.0.1:9/no/such:image true", "", 125),
    # Input.
    Line(f"run --rm -i {P} cat", "typed\n", stdin="typed\n"),
    Line(f"run --rm {P} cat", "", stdin="not handed on"),
    Line(f"run -i --rm {P} wc -c", "100000\n", stdin="x" * 100_000),
    # What the image says by itself.
    Line(f"run --rm {P}", ""),
    Line(f"run --rm -i {P}", "from sh\n", stdin="echo from sh\n"),
    Line(f"run --rm {E}", "by default\n"),
    Line(f"run --rm {E} said instead", "said instead\n"),
    Line(f"run --rm --entrypoint cat {E} /etc/hello", "hello\n"),
    Line(f"run --rm --entrypoint '' {P} echo bare", "bare\n"),
    Line(f"run --rm {P} sh -c 'echo $FROM_IMAGE'", "yes\n"),
    # Environment, directory, user.
    Line(f"run --rm -e A=1 -e B='two words' {P} sh -c 'echo $A $B'", "1 two words\n"),
    Line(f"run --rm -e HABIT {P} sh -c 'echo $HABIT'", "from here\n"),
    Line(f"run --rm -e NOT_SET_HERE {P} sh -c 'test -z $NOT_SET_HERE && echo none'", "none\n"),
    Line(f"run --rm --env-file {{file}} -e B=3 {P} sh -c 'echo $A $B $C'", "1 3 \"q\"\n"),
    Line(f"run --rm -w /tmp {P} pwd", "/tmp\n"),
    Line(f"run --rm -u 1000 {P} id -u", "1000\n"),
    Line(f"run --rm --user 1000:1001 {P} sh -c 'id -u; id -g'", "1000\n1001\n"),
    Line(f"run --rm -u web {P} sh -c 'id -u; id -g'", "33\n34\n"),
    Line(f"run --rm -u nobody-here {P} id", "", 125),
    Line(f"run --rm --platform linux/amd64 {P} uname -m", "x86_64\n"),
    Line(f"run --rm --init --label a=b {P} echo labelled", "labelled\n"),
    # Volumes and directories.
    Line(f"run --rm -v {{dir}}:/data {P} cat /data/file", "from the host\n"),
    Line(f"run --rm -v {{dir}}:/data:ro {P} touch /data/new", "", 1),
    Line(f"run --rm -v {{volume}}:/v {P} sh -c 'echo kept >/v/f'", "",
         then=[(f"run --rm -v {{volume}}:/v:ro {P} cat /v/f", "kept\n"), ("volume rm {volume}", None)]),
    Line(f"run --rm --mount type=bind,source={{dir}},target=/data,readonly {P} cat /data/file", "from the host\n"),
    Line(f"run --rm --mount type=volume,source={{volume}},target=/v {P} touch /v/f", "",
         then=[("volume rm {volume}", None)]),
    # Limits and the network.
    Line(f"run --rm -m 64m {P} sh -c 'head -c 500m /dev/zero | tail >/dev/null'", "", 137),
    Line(f"run --rm --cpus 0.5 --memory 128m {P} echo limited", "limited\n"),
    Line(f"run --rm --network none {P} nc -w 5 198.51.100.1 80", "", 1),
    # In the background.
    Line(f"run -d --name {{name}} {P} sleep 600",
         then=[("exec {name} echo within", "within\n"),
               ("ps -q --filter name={name} --no-trunc", "{id}\n"),
               ("ps --filter name={name} --format '{{{{.Names}}}}'", "{name}\n"),
               ("rename {name} {other}", None), ("exec {other} echo still", "still\n"),
               ("inspect -f '{{{{json .Name}}}}' {id}", None), ("rm -f {other}", None)]),
    Line(f"run -d --name {{name}} {P} sleep 600",
         then=[(f"run -d --name {{name}} {P} sleep 600", "", 125), ("rm -f {name}", None)]),
    Line(f"run -d --name {{name}} -w /tmp -e A=1 {P} sh -c 'echo $A; pwd; sleep 600'",
         then=[("exec -w /etc -e B=2 {name} sh -c 'pwd; echo $A $B'", "/etc\n1 2\n"),
               ("cp {name}:/etc/hello {dir}/copied", None), ("rm -f {name}", None)]),
    Line(f"run -d --name {{name}} -p 127.0.0.1:{{port}}:80 {P} sh -c 'httpd -p 80 -h /etc && echo up && exec sleep 600'",
         then=[("LOGS up", None), ("GET /hello", "hello\n"), ("rm -f {name}", None)]),
    Line(f"run -d --rm --name {{name}} {E} over at once"),
    Line(f"run -dit --name {{name}} {P}", then=[("exec {name} echo there", "there\n"), ("rm -f {name}", None)],
         instead="osb exec -it"),
    # What sandboxes do not have.
    # Not every engine may do this itself, where it runs in a container.
    Line(f"run --rm --privileged {P} true", "", None, instead="never gets more rights"),
    Line(f"run --rm --cap-add NET_ADMIN {P} true", "", instead="never gets more rights"),
    Line(f"run --rm --network host {P} true", "", instead="-p HOST_PORT:PORT"),
    Line(f"run -d --name {{name}} --restart always {P} sleep 600", then=[("rm -f {name}", None)], instead="in a loop"),
    Line(f"run --rm -P {P} true", "", instead="-p HOST_PORT:PORT"),
    Line(f"run --rm --hostname box {P} hostname", "box\n", instead="--name"),
    Line(f"run --rm --read-only {P} true", "", instead="never written to"),
    Line(f"run --rm --tmpfs /scratch {P} touch /scratch/f", "", instead="/tmp and /dev/shm"),
    Line(f"run --rm --shm-size 64m {P} true", "", instead="-m"),
    Line(f"run --rm --add-host a:1.2.3.4 {P} true", "", instead="/etc/hosts"),
    Line(f"run --rm --ulimit nofile=64 {P} true", "", instead="osb doctor"),
    Line(f"run --rm -v /anonymous {P} true", "", instead="-v NAME:/anonymous"),
]


def archive(path):
    """The two images, as `docker save` writes them."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        def add(name, data=b"", kind=tarfile.REGTYPE, mode=0o755, link=""):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), link
            tar.addfile(entry, io.BytesIO(data))

        for directory in ("bin", "proc", "dev", "sys", "etc", "root"):
            add(directory, kind=tarfile.DIRTYPE)
        add("tmp", kind=tarfile.DIRTYPE, mode=0o1777)
        add("bin/busybox", open("/bin/busybox", "rb").read())
        for name in APPLETS:
            add(f"bin/{name}", kind=tarfile.SYMTYPE, link="busybox")
        add("etc/hello", b"hello\n", mode=0o644)
        add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/:/bin/sh\n", mode=0o644)
        add("etc/group", b"root:x:0:\nweb:x:34:\n", mode=0o644)
    layer = layer.getvalue()
    digest = hashlib.sha256(layer).hexdigest()
    files, manifest = {f"{digest}.tar": layer}, []
    for name, run in ((PLAIN, {"Cmd": ["sh"]}), (ECHO, {"Entrypoint": ["echo"], "Cmd": ["by", "default"]})):
        config = json.dumps({
            "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "config": {"Env": ["PATH=/bin", "FROM_IMAGE=yes"], **run},
        }).encode()
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        files[config_name] = config
        manifest.append({"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]})
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


class Shop:
    """Runs lines by one program, with places of its own for each."""

    def __init__(self, program, environment, directory, free_port):
        self.program, self.environment = program, {**environment, "HABIT": "from here"}
        self.directory, self.free_port, self.count = directory, free_port, 0
        (directory / "file").write_text("from the host\n")
        (directory / "variables").write_text('# a comment\nA=1\n\nB=2\nC="q"\n')

    def places(self):
        self.count += 1
        return {
            "name": f"habit-{self.count}", "other": f"other-{self.count}", "volume": f"habit-volume-{self.count}",
            "dir": str(self.directory), "file": str(self.directory / "variables"), "port": str(self.free_port()),
        }

    def run(self, words, places, stdin=None):
        words = [word.format(**places) for word in shlex.split(words)]
        return subprocess.run([self.program, *words], env=self.environment, input=stdin or "", text=True,
                              capture_output=True, timeout=DEADLINE_SECONDS)

    def check(self, line):
        """Runs a line and what comes after it; returns the first answer."""
        places = self.places()
        done = self.run(line.words, places, line.stdin)
        if line.instead and self.is_other:
            return done
        said = f"{self.program} {line}\n-> {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert line.code is None or done.returncode == line.code, said
        if line.out is not None:
            assert done.stdout == line.out, said
        places["id"] = done.stdout.strip()
        for words, out, *code in line.then:
            if words.startswith("LOGS "):
                self.wait_for_log(places["name"], words[5:])
                continue
            if words.startswith("GET "):
                assert self.get(places["port"], words[4:]) == out
                continue
            after = self.run(words, places)
            said = f"{line}\nthen {words}\n-> {after.returncode}\n{after.stdout}\n{after.stderr}"
            assert after.returncode == (code or [0])[0], said
            if out is not None:
                assert after.stdout == out.format(**places), said
        return done

    is_other = False

    def get(self, port, path):
        """What the server behind the port answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_SECONDS) as answer:
            return answer.read().decode()

    def wait_for_log(self, name, line):
        """Returns when the main program has printed the line."""
        following = subprocess.Popen([self.program, "logs", "-f", name], env=self.environment, stdout=subprocess.PIPE, text=True)
        try:
            assert line in map(str.strip, following.stdout), "the log ended without it"
        finally:
            following.kill()
            following.wait()
