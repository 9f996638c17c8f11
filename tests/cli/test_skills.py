"""The skills, by doing what they say: every command in them runs, in their order, at a real server.

A command's answer fills in the ids that later ones name, as a reader would take them from it.
"""

import json
import re
import signal
import subprocess
import urllib.request

import pytest
from conftest import DEADLINE_SECONDS, IMAGE, REPO

SKILLS = sorted(path.stem for path in (REPO / "crates/cli/skills").glob("*.md"))
FENCE = re.compile(r"^```bash\n(.*?)^```$", re.M | re.S)
# What must be so before a command can do what its text says, as a command in the sandbox.
NEEDS = {
    "curl -sS localhost:8080": "python3 -m http.server 8080 >/dev/null 2>&1 & until curl -s localhost:8080; do :; done",
}
# `osb doctor` tells of what the machine lacks; a reader wants to know that too.
CODES = {"osb doctor": (0, 1)}


def written_commands(text):
    """Every command of a text, in fences and in lines, in the order of the text."""
    found = []
    for fence in FENCE.finditer(text):
        found += [(fence.start(1) + at, line) for at, line in enumerate(fence[1].splitlines()) if line]
    plain = FENCE.sub(lambda fence: " " * len(fence[0]), text)
    found += [(code.start(), " ".join(code[1].split())) for code in re.finditer(r"`(osb [^`]+)`", plain)]
    return [line for _, line in sorted(found)]


def options(text):
    """Options that stand alone, such as `--timeout none`."""
    return [code.split()[0] for code in re.findall(r"`(--[^`]+)`", text)]


class Reader:
    """Someone who types what a skill says, and remembers ids."""

    def __init__(self, osb, sandbox, place):
        self.osb, self.place = osb, place
        self.ids = {"<sandbox-id>": sandbox}
        (place / "bin").mkdir()
        (place / "bin/osb").symlink_to(osb.program)
        self.environment = {**osb.environment, "PATH": f"{place}/bin:{osb.environment['PATH']}"}

    def line(self, written):
        for name, id in self.ids.items():
            written = written.replace(name, id)
        assert "<" not in written, f"nothing before it gave the id: {written}"
        return written.replace("python:3.12", IMAGE).replace("python -c", "python3 -c")

    def run(self, written):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self.line(written)], env=self.environment, cwd=self.place,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        assert "panicked" not in done.stderr, done
        if done.returncode == 0 and "-o json" in written:
            self.remember(written, json.loads(done.stdout))
        return done

    def remember(self, written, answer):
        for field in ("execution_id", "session_id"):
            if field in answer:
                self.ids[f"<{field.replace('_', '-')}>"] = answer[field]
        if "snapshot create" in written:
            self.ids["<snapshot-id>"] = answer["id"]

    def prepare(self, written):
        """Brings about what the text says is there."""
        sandbox = self.ids["<sandbox-id>"]
        for part, command in NEEDS.items():
            if part in written:
                self.osb("exec", sandbox, "--", "sh", "-c", command)
        if "sandbox resume" in written and self.osb.json("sandbox", "get", sandbox)["status"]["state"] != "Paused":
            self.osb("sandbox", "pause", sandbox)

    def forward(self, written):
        """A command that serves until it is ended."""
        serving = subprocess.Popen(["bash", "-c", f"exec {self.line(written)}"], env=self.environment,
                                   cwd=self.place, stdout=subprocess.PIPE, text=True)
        try:
            port = re.search(r":(\d+)", serving.stdout.readline())[1]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=DEADLINE_SECONDS) as page:
                assert page.status == 200
        finally:
            serving.send_signal(signal.SIGINT)
            serving.wait(DEADLINE_SECONDS)


@pytest.fixture
def reader(osb, made, tmp_path):
    osb("exec", made, "--", "mkdir", "-p", "/workspace/out")
    place = tmp_path / "place"
    (place / "project").mkdir(parents=True)
    (place / "project/main.py").write_text("print(1)\n")
    (place / "report.csv").write_text("a,b\n")
    (place / "policy.json").write_text('{"defaultAction": "deny"}')
    request = {"image": IMAGE, "timeout": 1800, "metadata": {"by": "skill"}}
    (place / "request.json").write_text(json.dumps(request))
    osb("config", "init")
    names = lambda: set(osb("ls", "-o", "name").stdout.split())
    there = names()
    yield Reader(osb, made, place)
    for id in names() - there:
        osb("rm", id)


@pytest.mark.parametrize("skill", SKILLS)
def test_every_command_of_a_skill_runs(osb, reader, skill):
    text = osb("skills", "show", skill).stdout
    lines = written_commands(text)
    assert lines
    for written in lines:
        reader.prepare(written)
        if "port-forward" in written:
            reader.forward(written)
        elif "osb shell" not in written:  # which test_terminal.py has in a pseudo-terminal
            done = reader.run(written)
            if done.returncode == 2 and re.fullmatch(r"[a-z -]+", written):
                done = reader.run(f"{written} --help")  # a name in a sentence
            assert done.returncode in CODES.get(written, (0,)), f"{written}\n{done.stdout}\n{done.stderr}"
    words = (["sandbox", "create"], ["command", "run"], ["credential-vault", "create"])
    help = "".join(osb(*group, "--help").stdout for group in words)
    for option in options(text):
        assert option in help, option


def test_every_skill_is_listed(osb):
    assert sorted(skill["slug"] for skill in osb.json("skills", "list")["skills"]) == SKILLS
