"""Every method of the SDK's commands: run in all its forms, status, logs, interrupt, set_env."""

import os
import time
from datetime import timedelta

import httpx
import pytest
from conftest import SDK, TOKEN, TOKEN_HEADER, done, only_1_1, text
from opensandbox.exceptions import SandboxException
from opensandbox.models.execd import RunCommandOpts


async def test_output_of_both_kinds_and_success(commands):
    run = await done(commands.run("echo out; echo err >&2"))
    assert text(run.logs.stdout) == "out\n"
    assert text(run.logs.stderr) == "err\n"
    assert run.error is None
    assert run.complete.execution_time_in_millis >= 0
    assert run.exit_code == 0
    assert run.id


async def test_a_failure_has_its_code_and_no_completion(commands):
    run = await done(commands.run("echo before; exit 7"))
    assert run.exit_code == 7
    assert run.error.name == "CommandExecError"
    assert run.error.value == "7"
    assert run.error.traceback == ["exit status 7"]
    assert run.complete is None
    assert text(run.logs.stdout) == "before\n"


async def test_death_by_a_signal_is_minus_one(commands):
    run = await done(commands.run("kill -9 $$"))
    assert run.exit_code == -1
    assert run.complete is None


async def test_lines_blank_lines_and_no_final_newline(commands):
    run = await done(commands.run(r"printf 'a\n\nb\n\n\nc'"))
    if SDK.startswith("0."):
        assert [message.text for message in run.logs.stdout] == ["a", "\n", "b", "\n", "\n", "c"]
    else:
        assert text(run.logs.stdout) == "a\n\nb\n\n\nc"


async def test_text_that_line_readers_break_on(commands):
    odd = "a\u0085b\u2028c\u2029d\x0be\x0cf"
    run = await done(commands.run(f"printf %s '{odd}'"))
    assert "".join(message.text for message in run.logs.stdout) == odd


async def test_many_lines_in_order(commands):
    run = await done(commands.run("seq 1 20000"))
    assert text(run.logs.stdout) == "".join(f"{n}\n" for n in range(1, 20001))
    assert run.exit_code == 0


async def test_output_that_is_not_text(commands):
    run = await done(commands.run(r"printf '\377\376ok\n'"))
    assert text(run.logs.stdout) == "\ufffd\ufffdok\n"


async def test_handlers_hear_every_event(sandbox):
    heard = []
    handlers = sandbox.handlers(
        on_init=lambda event: heard.append(("init", event.id)),
        on_stdout=lambda event: heard.append(("out", event.text.strip(), event.is_error)),
        on_stderr=lambda event: heard.append(("err", event.text.strip(), event.is_error)),
        on_execution_complete=lambda event: heard.append(("complete",)),
        on_error=lambda event: heard.append(("error", event.value)),
    )
    run = await done(sandbox.commands.run("echo a; echo b >&2", handlers=handlers))
    assert heard[0] == ("init", run.id)
    assert heard[-1] == ("complete",)
    assert sorted(heard[1:-1]) == [("err", "b", True), ("out", "a", False)]
    heard.clear()
    await done(sandbox.commands.run("exit 3", handlers=handlers))
    assert [event[0] for event in heard] == ["init", "error"]
    assert heard[-1] == ("error", "3")


async def test_working_directory_environment_and_user(commands, folder):
    run = await done(commands.run("pwd", opts=RunCommandOpts(working_directory=str(folder))))
    assert text(run.logs.stdout) == f"{folder}\n"
    run = await done(commands.run("echo \"$X\"", opts=RunCommandOpts(envs={"X": "it's = \"given\""})))
    assert text(run.logs.stdout) == "it's = \"given\"\n"
    run = await done(commands.run("id -u; id -g", opts=RunCommandOpts(uid=1234, gid=2345)))
    assert text(run.logs.stdout) == "1234\n2345\n"
    with pytest.raises(SandboxException):
        await done(commands.run("true", opts=RunCommandOpts(working_directory="/no/such/place")))


async def test_a_timeout_kills_the_whole_group(commands, folder):
    mark = f"timeout-{os.urandom(8).hex()}"
    began = time.monotonic()
    run = await done(commands.run(
        f"sleep 300 & exec -a {mark} sleep 300", opts=RunCommandOpts(timeout=timedelta(milliseconds=300))
    ))
    assert 0.2 < time.monotonic() - began < 30
    assert run.exit_code == -1
    assert run.complete is None
    left = await done(commands.run(f"pgrep -f '[t]imeout-{mark[8:]}' | wc -l"))
    assert text(left.logs.stdout).strip() == "0"


async def test_an_empty_command_is_refused(commands):
    with pytest.raises(SandboxException):
        await done(commands.run("   "))


@only_1_1
async def test_argv_is_taken_literally(commands):
    run = await done(commands.run(["printf", "%s|", "a b", "$HOME", "*", "'"]))
    assert "".join(message.text for message in run.logs.stdout) == "a b|$HOME|*|'|"
    assert run.exit_code == 0
    missing = await done(commands.run(["/no/such/program"]))
    assert missing.error is not None and missing.complete is None


@only_1_1
@pytest.mark.parametrize("value", [
    "two words, \"double\", $HOME, a\\b, \n, \u00e9",
    # The SDK writes a value with a single quote in another form, in which $NAME is expanded.
    "it's \"double\", a\\b, tab\tand\nline",
])
async def test_set_env_reaches_later_commands_and_sessions(commands, value):
    await done(commands.set_env("FROM_SET_ENV", value))
    run = await done(commands.run("printf %s \"$FROM_SET_ENV\""))
    assert "".join(message.text for message in run.logs.stdout) == value
    session = await done(commands.create_session())
    run = await done(commands.run_in_session(session, "printf %s \"$FROM_SET_ENV\""))
    await done(commands.delete_session(session))
    assert "".join(message.text for message in run.logs.stdout) == value


async def finished(commands, execd, execution_id):
    """The status of a command that has ended. The SDK can only ask, not wait, so the wait is for
    the end of the command's event stream."""
    url = f"http://127.0.0.1:{execd.port}/command/{execution_id}/events"
    async with httpx.AsyncClient(headers={TOKEN_HEADER: TOKEN}, timeout=30) as client:
        assert (await client.get(url)).status_code == 200
    return await done(commands.get_command_status(execution_id))


async def test_a_background_command_from_start_to_end(commands, execd, folder):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    began = await done(commands.run(f"echo one; echo two >&2; read x < {pipe}; echo $x; exit 5",
                                    opts=RunCommandOpts(background=True)))
    assert began.id and began.error is None
    assert began.exit_code is None, "a background command has no exit code when the call returns"
    status = await done(commands.get_command_status(began.id))
    assert status.id == began.id and status.running and status.exit_code is None
    assert "echo one" in status.content
    assert status.started_at is not None and status.finished_at is None
    # The two outputs are two pipes: what comes third is read third only when both were read before.
    while len((await done(commands.get_background_command_logs(began.id))).content.splitlines()) < 2:
        pass
    await done(commands.run(f"echo three > {pipe}"))
    status = await finished(commands, execd, began.id)
    assert status.exit_code == 5 and not status.running
    assert status.finished_at >= status.started_at
    logs = await done(commands.get_background_command_logs(began.id))
    assert sorted(logs.content.splitlines()) == ["one", "three", "two"]
    assert logs.cursor == len(logs.content.encode())
    again = await done(commands.get_background_command_logs(began.id, cursor=logs.cursor))
    assert again.content == "" and again.cursor == logs.cursor
    tail = await done(commands.get_background_command_logs(began.id, cursor=logs.cursor - 6))
    assert tail.content == "three\n"


async def test_a_background_command_can_be_interrupted(commands, execd):
    began = await done(commands.run("echo started; exec sleep 600", opts=RunCommandOpts(background=True)))
    await done(commands.interrupt(began.id))
    status = await finished(commands, execd, began.id)
    assert not status.running and status.exit_code == -1
    with pytest.raises(SandboxException):
        await done(commands.interrupt(began.id))


async def test_status_and_logs_of_a_foreground_command(commands):
    run = await done(commands.run("echo kept; exit 4"))
    status = await done(commands.get_command_status(run.id))
    assert (status.running, status.exit_code) == (False, 4)
    logs = await done(commands.get_background_command_logs(run.id))
    assert logs.content == "kept\n"


async def test_unknown_ids_are_errors(commands):
    for call in (commands.get_command_status, commands.get_background_command_logs, commands.interrupt):
        with pytest.raises(SandboxException):
            await done(call("0" * 32))
