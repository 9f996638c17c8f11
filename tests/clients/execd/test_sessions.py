"""Every method of the SDK's sessions: a session is one live shell."""

from datetime import timedelta

import pytest
from conftest import done, only_1_1, text
from opensandbox.exceptions import SandboxException


@pytest.fixture
async def session(commands):
    session = await done(commands.create_session())
    yield session
    await done(commands.delete_session(session))


async def test_everything_a_shell_knows_persists(commands, session, folder):
    run = lambda command, **options: done(commands.run_in_session(session, command, **options))
    await run(f"plain=1; export EXPORTED='two\nlines'; f() {{ echo from-f $1; }}; cd {folder}; set -f")
    seen = await run("echo $plain; echo \"$EXPORTED\"; f x; pwd; echo *")
    assert text(seen.logs.stdout) == f"1\ntwo\nlines\nfrom-f x\n{folder}\n*\n"
    assert seen.exit_code == 0


async def test_streams_and_exit_codes(commands, session):
    run = await done(commands.run_in_session(session, "echo out; echo err >&2; (exit 9)"))
    assert text(run.logs.stdout) == "out\n"
    assert text(run.logs.stderr) == "err\n"
    assert run.exit_code == 9 and run.complete is None
    good = await done(commands.run_in_session(session, "true"))
    assert good.exit_code == 0 and good.complete is not None


async def test_a_working_directory_for_the_session_and_for_a_run(commands, folder):
    session = await done(commands.create_session(working_directory=str(folder)))
    run = await done(commands.run_in_session(session, "pwd"))
    assert text(run.logs.stdout) == f"{folder}\n"
    run = await done(commands.run_in_session(session, "pwd", working_directory="/"))
    assert text(run.logs.stdout) == "/\n"
    await done(commands.delete_session(session))
    with pytest.raises(SandboxException):
        await done(commands.create_session(working_directory="/no/such/place"))


async def test_a_timeout_ends_the_run_and_not_the_session(commands, session):
    await done(commands.run_in_session(session, "kept=yes"))
    late = await done(commands.run_in_session(session, "sleep 300", timeout=timedelta(milliseconds=300)))
    assert late.complete is None and late.error is not None
    after = await done(commands.run_in_session(session, "echo $kept"))
    assert text(after.logs.stdout) == "yes\n"


async def test_handlers_hear_a_run(sandbox, session):
    heard = []
    handlers = sandbox.handlers(
        on_init=lambda event: heard.append("init"),
        on_stdout=lambda event: heard.append(event.text.strip()),
        on_execution_complete=lambda event: heard.append("complete"),
    )
    await done(sandbox.commands.run_in_session(session, "echo one; echo two", handlers=handlers))
    assert heard == ["init", "one", "two", "complete"]


async def test_a_deleted_session_is_gone(commands):
    session = await done(commands.create_session())
    await done(commands.delete_session(session))
    with pytest.raises(SandboxException):
        await done(commands.run_in_session(session, "true"))


@only_1_1
async def test_deleting_an_unknown_session_is_an_error(commands):
    """0.1.10 does not look at the answer."""
    with pytest.raises(SandboxException):
        await done(commands.delete_session("0" * 32))
