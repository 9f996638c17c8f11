"""The published osb 1.1.1 beside ours: the same names, options and answers."""

import json
from concurrent.futures import ThreadPoolExecutor

import click
import pytest
from conftest import IMAGE
from opensandbox_cli.main import cli


def leaves(command, path=()):
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, command


@pytest.mark.parametrize("path, command", [pytest.param(p, c, id=" ".join(p)) for p, c in leaves(cli)])
def test_every_command_and_option_is_there(osb, path, command):
    help = osb(*path, "--help").stdout
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for name in (*parameter.opts, *parameter.secondary_opts):
                assert f"{name} " in help or f"{name}," in help or f"{name}\n" in help, f"{name} is missing:\n{help}"
            if isinstance(parameter.type, click.Choice) and parameter.name != "output_format":
                assert all(choice in help for choice in parameter.type.choices)


def test_every_global_option_is_there(osb):
    help = osb("--help").stdout
    for parameter in cli.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            assert name in help, name


def shape(value):
    """What a program relies on: names and kinds, not values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def test_answers_have_the_same_fields(osb, published, made):
    osb("file", "write", made, "/tmp/same/a.txt", "-c", "text")
    background = [p.json("command", "run", made, "-d", "--", "true") for p in (published, osb)]
    assert shape(background[0]) == shape(background[1])
    execution = background[1]["execution_id"]
    questions = (
        ["sandbox", "get", made],
        ["sandbox", "list", "-m", "by=cli"],
        ["sandbox", "list", "-m", "by=nobody"],
        ["sandbox", "health", made],
        ["sandbox", "metrics", made],
        ["sandbox", "renew", made, "-t", "20m"],
        ["file", "info", made, "/tmp/same/a.txt"],
        ["file", "search", made, "/tmp/same", "-p", "*.txt"],
        ["file", "mkdir", made, "/tmp/same/dir"],
        ["file", "chmod", made, "/tmp/same/a.txt", "--mode", "0644"],
        ["command", "status", made, execution],
        ["command", "logs", made, execution],
        ["command", "session", "create", made],
        ["snapshot", "list", "--sandbox-id", made],
        ["diagnostics", "logs", made, "-s", "container"],
        ["diagnostics", "events", made, "-s", "runtime"],
        ["config", "show"],
    )
    # The published one takes a second to start: four at once.
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda words: (published.json(*words), osb.json(*words)), questions))
    for words, (theirs, ours) in zip(questions, answers):
        assert shape(ours) == shape(theirs), f"{words}\ntheirs {theirs}\nours   {ours}"


def test_yaml_says_the_same_as_json(osb, published, made):
    import yaml

    theirs = yaml.safe_load(published("sandbox", "get", made, "-o", "yaml").stdout)
    ours = yaml.safe_load(osb("sandbox", "get", made, "-o", "yaml").stdout)
    assert shape(ours) == shape(theirs)


def test_values_are_the_same(osb, published, made):
    osb("file", "write", made, "/tmp/v.txt", "-c", "text", "--mode", "0640")
    for words, fields in (
        (["file", "info", made, "/tmp/v.txt"], ("path", "mode", "owner", "group", "size", "entry_type")),
        (["sandbox", "get", made], ("id", "image", "entrypoint", "metadata")),
    ):
        theirs, ours = published.json(*words), osb.json(*words)
        pick = lambda value: {name: (value[0] if isinstance(value, list) else value)[name] for name in fields}
        assert pick(ours) == pick(theirs)


def test_a_settings_file_of_the_published_one_is_read(osb, published):
    published("config", "init")
    published("config", "set", "connection.request_timeout", "12")
    published("config", "set", "defaults.image", IMAGE)
    ours = osb.json("config", "show")
    assert (ours["request_timeout"], ours["default_image"]) == (12, IMAGE)
    made = osb.json("sandbox", "create")["id"]
    osb("rm", made)


def test_request_files(osb, published, tmp_path):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"image": IMAGE, "timeout": 600, "metadata": {"by": "file"}}))
    answers = []
    for program in (published, osb):
        made = program.json("sandbox", "create", "-f", request)
        answers.append({**made, "id": "x"})
        osb("rm", made["id"])
    assert answers[0] == answers[1]


def test_skills_are_installed_and_removed(osb, tmp_path):
    for target in ("claude", "cursor", "codex", "gemini", "copilot", "windsurf", "cline", "opencode"):
        words = ["--target", target, "--scope", "project"]
        install = osb.json("skills", "install", "--all-builtins", *words, cwd=tmp_path)
        assert {row["status"] for row in install["operations"]} == {"installed"}
        again = osb.json("skills", "install", "file-operations", *words, cwd=tmp_path)
        assert again["operations"][0]["status"] in ("already_present", "updated")
        gone = osb.json("skills", "uninstall", "file-operations", *words, cwd=tmp_path)
        assert gone["operations"][0]["status"] == "removed"
    assert "When To Use" in osb("skills", "show", "sandbox-lifecycle").stdout
