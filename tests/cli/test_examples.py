"""Every command and option of the published osb 1.1.1, used as its documentation shows it, with ours.

The lines run in their order, in one home and against one server; what a line answers gives the names
in braces to later ones. A last test holds the list to the published program: no command and no option
of it is left out.
"""

import json
import re
import shlex
import signal
import subprocess

import click
from conftest import DEADLINE_SECONDS, IMAGE
from opensandbox_cli.main import cli

# Refused by a server that does not have it, with a message; the command line itself is right.
REFUSED = 1

# What to run, the exit code where it is not 0, and what the answer's id is called afterwards.
LINES = [
    ("--version",),
    ("config init",),
    ("config init --force",),
    ("config set connection.request_timeout 30",),
    ("config set defaults.image {image}",),
    ("config show",),
    ("--api-key {key} --domain {domain} --protocol http --request-timeout 30 --config {home}/.opensandbox/config.toml"
     " -v --no-color sandbox list",),
    ("--verbose --use-server-proxy sandbox list",),
    ("--no-use-server-proxy sandbox list",),
    ("sandbox create --image {image} --timeout 10m --env KEY=VALUE --metadata team=a --resource cpu=1"
     " --resource memory=512Mi --entrypoint tail --entrypoint -f --entrypoint /dev/null --ready-timeout 30s", 0, "id"),
    ("sandbox create -i {image} -t none -e A=b -m team=b --image-auth-username me --image-auth-password secret"
     " --skip-health-check --extension example.org/key=value", 0, "second"),
    ("sandbox create --file {home}/request.json", 0, "third"),
    ("sandbox create -f {home}/request.json --volumes-file {home}/volumes.json", 2),
    ("sandbox create -i {image} -t 5m --volumes-file {home}/volumes.json", 0, "fourth"),
    ("sandbox create -i {image} --network-policy-file {home}/policy.json --credential-proxy", REFUSED),
    ("sandbox create --template tpl_1 --timeout 30m", REFUSED),
    ("sandbox kill {third} {fourth}",),
    ("sandbox get {id}",),
    ("sandbox health {id}",),
    ("sandbox endpoint {id} --port 8080",),
    ("sandbox endpoint {id} -p 44772",),
    ("sandbox list --state Running --metadata team=a --page 1 --page-size 10",),
    ("sandbox list -s Running -s Paused -m team=b",),
    ("sandbox metrics {id}",),
    ("sandbox metrics {id} --watch",),
    ("sandbox pause {id}",),
    ("sandbox resume {id} --resume-timeout 30s",),
    ("sandbox pause {id}",),
    ("sandbox resume {id} --skip-health-check",),
    ("sandbox renew {id} --timeout 30m",),
    ("sandbox renew {id} -t 2h",),
    ("command run {id} -w /tmp -t 30s -- pwd",),
    ("command run {id} --workdir /tmp --timeout 5m --argv -- echo 'a  b'",),
    ("command run {id} -d -- sleep 1000", 0, "execution"),
    ("command status {id} {execution}",),
    ("command logs {id} {execution} --cursor 0",),
    ("command interrupt {id} {execution}",),
    ("command run {id} --background -- true", 0, "execution"),
    ("command session create {id} -w /tmp", 0, "session"),
    ("command session run {id} {session} -w / -t 30s -- pwd",),
    ("command session run {id} {session} --workdir /tmp --timeout 5m -- pwd",),
    ("command session delete {id} {session}",),
    ("command session create {id} --workdir /tmp", 0, "session"),
    ("file mkdir {id} /tmp/e/dir --mode 0755 --owner root --group root",),
    ("file write {id} /tmp/e/a.txt --content old --encoding utf-8 --mode 0644 --owner root --group root",),
    ("file write {id} /tmp/e/b.txt -c text",),
    ("file write {id} /tmp/e/from-stdin",),
    ("file cat {id} /tmp/e/a.txt --encoding utf-8",),
    ("file chmod {id} /tmp/e/a.txt --mode 0755 --owner root --group root",),
    ("file info {id} /tmp/e/a.txt /tmp/e/b.txt",),
    ("file search {id} /tmp/e --pattern '*.txt'",),
    ("file search {id} /tmp/e -p '*.txt'",),
    ("file replace {id} /tmp/e/a.txt --old old --new new",),
    ("file mv {id} /tmp/e/a.txt /tmp/e/c.txt",),
    ("file download {id} /tmp/e/c.txt {home}/c.txt",),
    ("file upload {id} {home}/c.txt /tmp/e/d.txt",),
    ("file rm {id} /tmp/e/c.txt /tmp/e/d.txt",),
    ("file rmdir {id} /tmp/e",),
    ("diagnostics logs {id} --scope container",),
    ("diagnostics logs {id} -s all",),
    ("diagnostics events {id} --scope runtime",),
    ("diagnostics events {id} -s all",),
    ("devops inspect {id}",),
    ("devops logs {id} --tail 100 --since 10m",),
    ("devops logs {id} -n 5 -s 1h",),
    ("devops events {id} --limit 50",),
    ("devops events {id} -l 5",),
    ("devops summary {id} --tail 50 --event-limit 20",),
    ("devops summary {id} -n 5",),
    ("egress get {id}",),
    ("egress patch {id} --rule allow=packages.example.com",),
    ("credential-vault create {id} --file {home}/vault.json", REFUSED),
    ("credential-vault get {id}", REFUSED),
    ("credential-vault patch {id} --file -", REFUSED),
    ("credential-vault credential list {id}", REFUSED),
    ("credential-vault credential get {id} service", REFUSED),
    ("credential-vault binding list {id}", REFUSED),
    ("credential-vault binding get {id} service", REFUSED),
    ("credential-vault delete {id}", REFUSED),
    ("snapshot create {id} --name base", 0, "snapshot"),
    ("snapshot list --sandbox-id {id} --name base --state Ready --state Creating --page 1 --page-size 5",),
    ("snapshot get {snapshot}",),
    ("sandbox create --snapshot-id {snapshot} -t 5m", 0, "restored"),
    ("sandbox kill {restored}",),
    ("snapshot delete {snapshot}",),
    ("template create --image python:3.12 --publish s3://bucket/publish --resource cpu=1 --resource disk=2Gi"
     " --entrypoint sleep --env A=b --metadata a=b --format native --readiness-probe tcp://127.0.0.1:44772"
     " --warmup-seconds 5", REFUSED),
    ("template create -i python:3.12 -p s3://bucket/publish -e A=b -m a=b --format overlaybd", REFUSED),
    ("template create --file {home}/template.json", REFUSED),
    ("template create -f {home}/template.json", REFUSED),
    ("template list --metadata a=b --page 1 --page-size 5", REFUSED),
    ("template list -m a=b", REFUSED),
    ("template get tpl_1", REFUSED),
    ("template delete tpl_1", REFUSED),
    ("skills list",),
    ("skills show sandbox-troubleshooting",),
    ("skills install sandbox-troubleshooting --target claude --scope project --force",),
    ("skills install --all-builtins -t all --scope global -f",),
    ("skills uninstall sandbox-troubleshooting --target claude --scope project",),
    ("skills uninstall sandbox-lifecycle -t all --scope global",),
    ("sandbox kill {id} {second}",),
]
# These print in one way only, whatever the format; a program's own output has no other form.
RAW = ("command run", "command session run", "file cat", "devops", "--version")
STDIN = {"file write": "from a pipe", "credential-vault patch": "{}"}


def has_json(line):
    is_background = " -d " in line or " --background " in line
    return is_background or not line.startswith(RAW)


def write_files(home):
    contents = {
        "request.json": {"image": IMAGE, "timeout": 600, "metadata": {"by": "file"}},
        "volumes.json": [{"name": "v", "pvc": {"claimName": "examples"}, "mountPath": "/v"}],
        "policy.json": {"defaultAction": "deny", "egress": [{"action": "allow", "target": "example.com"}]},
        "vault.json": {"credentials": [], "bindings": []},
        "template.json": {"image": "python:3.12", "publish": "s3://bucket/publish"},
    }
    for name, content in contents.items():
        (home / name).write_text(json.dumps(content))


def answered_id(answer):
    return next(answer[name] for name in ("execution_id", "session_id", "id") if name in answer)


def first_of_stream(osb, words):
    """The first line of what goes on until it is interrupted."""
    stream = subprocess.Popen([osb.program, *words], env=osb.environment, stdout=subprocess.PIPE, text=True)
    try:
        return stream.stdout.readline()
    finally:
        stream.send_signal(signal.SIGINT)
        stream.wait(DEADLINE_SECONDS)


def test_every_line_runs(osb, tmp_path):
    write_files(tmp_path)
    known = {"image": IMAGE, "home": tmp_path, "key": osb.environment["OPEN_SANDBOX_API_KEY"],
             "domain": osb.environment["OPEN_SANDBOX_DOMAIN"]}
    try:
        for line, *rest in LINES:
            code, name = (*rest, 0, None)[:2] if len(rest) < 2 else rest
            words = [word.format(**known) for word in shlex.split(line)]
            if "--watch" in words:
                assert json.loads(first_of_stream(osb, [*words, "-o", "json"]))
                continue
            if has_json(line) and not line.startswith("--"):
                words[2:2] = ["-o", "json"]
            stdin = next((text for begin, text in STDIN.items() if line.startswith(begin)), "")
            done = osb(*words, code=code, stdin=stdin, cwd=tmp_path)
            if code == REFUSED:
                said = json.loads(done.stderr) if "json" in words else {"message": done.stderr}
                assert said["message"] and said.get("status", "error") == "error", done
            elif name:
                known[name] = answered_id(json.loads(done.stdout))
            elif "json" in words and code == 0:
                json.loads(done.stdout)
    finally:
        for name in ("id", "second", "third", "fourth", "restored"):
            if name in known:
                osb("rm", known[name], code=None)
        osb("volume", "rm", "examples", code=None)


def leaves(command, path=()):
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, command


def test_no_command_or_option_is_left_out():
    lines = [line for line, *_ in LINES]
    missing = []
    for path, command in leaves(cli):
        of = [line for line in lines if re.search(rf"(^| ){' '.join(path)}( |$)", line)]
        if not of:
            missing.append(" ".join(path))
        used = {word for line in of for word in shlex.split(line)}
        options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
        for option in options:
            names = {*option.opts, *option.secondary_opts} - {"-o", "--output", "--help"}
            missing += [f"{' '.join(path)} {name}" for name in names - used]
    words = {word for line in lines for word in shlex.split(line)}
    for parameter in cli.params:
        names = {*parameter.opts, *parameter.secondary_opts} - {"--help"}
        missing += [name for name in names - words]
    assert not missing, "\n".join(sorted(missing))
