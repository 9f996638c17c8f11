"""Sandbox: every public method that applies, asynchronous and synchronous."""

import io
import socket
import zipfile
from datetime import datetime, timedelta, timezone

import pytest
from conftest import BACKEND, IMAGE, done, only_1_1
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import Host, PVC, Volume


def text(messages):
    return "".join(message.text for message in messages)


async def test_the_first_page_example(client):
    """What the project's first page shows, as users type it."""
    from opensandbox.models import WriteEntry

    sandbox = await client.create(
        IMAGE, entrypoint=["sleep", "infinity"], env={"GREETING": "hello"}, timeout=timedelta(minutes=10)
    )
    execution = await done(sandbox.commands.run("echo 'Hello OpenSandbox!'"))
    assert execution.logs.stdout[0].text.rstrip("\n") == "Hello OpenSandbox!"
    await done(sandbox.files.write_files([
        WriteEntry(path="/tmp/hello.txt", data="Hello World", mode=644),
    ]))
    assert await done(sandbox.files.read_file("/tmp/hello.txt")) == "Hello World"
    echoed = await done(sandbox.commands.run("echo $GREETING"))
    assert text(echoed.logs.stdout).strip() == "hello"
    await done(sandbox.kill())
    with pytest.raises(SandboxApiException) as gone:
        await done(sandbox.get_info())
    assert gone.value.status_code == 404


async def test_info_says_what_was_asked_for(client):
    before = datetime.now(timezone.utc)
    sandbox = await client.create(
        metadata={"team": "blue", "job": "42"}, timeout=timedelta(minutes=5), entrypoint=["sleep", "600"]
    )
    info = await done(sandbox.get_info())
    assert info.id == sandbox.id
    assert info.status.state == "Running"
    assert info.entrypoint == ["sleep", "600"]
    assert info.image.image == IMAGE
    assert info.metadata == {"team": "blue", "job": "42"}
    assert timedelta(minutes=4) < info.expires_at - before < timedelta(minutes=6)
    assert abs((info.created_at - before).total_seconds()) < 60


async def test_no_timeout_means_no_expiry(client):
    sandbox = await client.create(timeout=None)
    assert (await done(sandbox.get_info())).expires_at is None


async def test_renew_moves_the_expiry(sandbox):
    before = datetime.now(timezone.utc)
    answer = await done(sandbox.renew(timedelta(minutes=33)))
    assert timedelta(minutes=32) < answer.expires_at - before < timedelta(minutes=34)
    info = await done(sandbox.get_info())
    assert abs((info.expires_at - answer.expires_at).total_seconds()) < 1


async def test_patch_metadata_merges_and_removes(client):
    sandbox = await client.create(metadata={"keep": "1", "drop": "2"})
    info = await done(sandbox.patch_metadata({"drop": None, "new": "3"}))
    assert info.metadata == {"keep": "1", "new": "3"}
    assert (await done(sandbox.get_info())).metadata == {"keep": "1", "new": "3"}


async def test_health_and_metrics(sandbox):
    assert await done(sandbox.is_healthy())
    metrics = await done(sandbox.get_metrics())
    assert metrics.cpu_count > 0
    assert 0 <= metrics.cpu_used_percentage <= 100
    assert 0 < metrics.memory_used_in_mib <= metrics.memory_total_in_mib
    assert metrics.memory_total_in_mib <= 512, "the sandbox's own limit, not the machine's memory"


async def test_pause_stops_and_resume_goes_on(client):
    sandbox = await client.create()
    session = await done(sandbox.commands.create_session())
    await done(sandbox.commands.run_in_session(session, "MARK=before"))
    await done(sandbox.pause())
    assert (await done(sandbox.get_info())).status.state == "Paused"
    resumed = await done(client.Sandbox.resume(sandbox.id, connection_config=client.config()))
    assert (await done(resumed.get_info())).status.state == "Running"
    marked = await done(resumed.commands.run_in_session(session, "echo $MARK"))
    assert text(marked.logs.stdout).strip() == "before"
    await done(resumed.close())


async def test_connect_finds_a_running_sandbox(client, sandbox):
    await done(sandbox.files.write_file("/tmp/note", "from the first"))
    other = await client.connect(sandbox.id)
    assert await done(other.files.read_file("/tmp/note")) == "from the first"
    await done(other.close())


async def test_endpoint_reaches_a_port_inside(sandbox):
    import urllib.request

    server = "import http.server,os;os.chdir('/tmp');http.server.test(http.server.SimpleHTTPRequestHandler,port=8123,bind='127.0.0.1')"
    from opensandbox.models.execd import RunCommandOpts

    await done(sandbox.files.write_file("/tmp/page.txt", "served from inside"))
    listing = (
        "exec 3<>/dev/tcp/127.0.0.1/8123 2>/dev/null"
    )
    await done(sandbox.commands.run(f"PATH=$PATH:/usr/bin /usr/bin/python3 -u -c \"{server}\" 2>&1 || busybox httpd -f -p 127.0.0.1:8123 -h /tmp",
                                    opts=RunCommandOpts(background=True)))
    # The wait happens inside, on the listener itself: the shell retries its connect.
    await done(sandbox.commands.run(f"bash -c 'until {listing}; do read -t 0.05 <> <(:); done'",
                                    opts=RunCommandOpts(timeout=timedelta(seconds=90))))
    endpoint = await done(sandbox.get_endpoint(8123))
    assert "://" not in endpoint.endpoint
    request = urllib.request.Request(f"http://{endpoint.endpoint}/page.txt", headers=endpoint.headers or {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.read() == b"served from inside"


async def test_a_sandbox_without_the_token_answers_nothing(sandbox):
    import urllib.error
    import urllib.request

    endpoint = await done(sandbox.get_endpoint(44772))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{endpoint.endpoint}/files/info?path=/etc", timeout=60)
    assert refused.value.code == 401


async def test_diagnostics_show_the_entrypoint(client):
    sandbox = await client.create(entrypoint=["sh", "-c", "echo entrypoint speaks; exec sleep 600"])
    logs = await done(sandbox.get_diagnostic_logs("container"))
    while not logs.content:  # The sandbox is ready when execd is, perhaps before the entrypoint spoke.
        logs = await done(sandbox.get_diagnostic_logs("container"))
    assert "entrypoint speaks" in logs.content
    events = await done(sandbox.get_diagnostic_events("runtime"))
    assert events.content
    with pytest.raises(SandboxApiException) as wrong:
        await done(sandbox.get_diagnostic_logs("nothing-like-this"))
    assert wrong.value.status_code == 400


async def test_a_snapshot_starts_a_new_sandbox(client):
    first = await client.create(env={"ONLY_FIRST": "yes"})
    await done(first.files.write_file("/opt/kept.txt", "kept"))
    snapshot = await done(first.create_snapshot("a-name"))
    manager = await client.manager()
    while snapshot.status.state == "Creating":
        snapshot = await done(manager.get_snapshot(snapshot.id))
    assert snapshot.status.state == "Ready"
    second = await client.create(None, snapshot_id=snapshot.id)
    assert await done(second.files.read_file("/opt/kept.txt")) == "kept"
    env = await done(second.commands.run("echo -${ONLY_FIRST}-"))
    assert text(env.logs.stdout).strip() == "--", "the old environment is not part of a snapshot"
    await done(second.kill())
    await done(manager.delete_snapshot(snapshot.id))
    await done(manager.close())


async def test_volumes_of_both_kinds(client, server):
    (server.host_paths / "in").mkdir(exist_ok=True)
    (server.host_paths / "in" / "given.txt").write_text("from the host")
    claim = f"claim-{client.flavour}"
    volumes = [
        Volume(name="in", host=Host(path=str(server.host_paths / "in")), mount_path="/in", read_only=True),
        Volume(name="work", pvc=PVC(claim_name=claim), mount_path="/work"),
    ]
    first = await client.create(volumes=volumes)
    assert await done(first.files.read_file("/in/given.txt")) == "from the host"
    refused = await done(first.commands.run("echo no > /in/new.txt"))
    assert refused.exit_code != 0 if hasattr(refused, "exit_code") else refused.error is not None
    await done(first.files.write_file("/work/result.txt", "survives"))
    await done(first.kill())
    second = await client.create(volumes=[Volume(name="work", pvc=PVC(claim_name=claim), mount_path="/data")])
    assert await done(second.files.read_file("/data/result.txt")) == "survives"


async def test_a_host_path_outside_the_list_is_refused(client):
    with pytest.raises(SandboxApiException) as refused:
        await client.create(volumes=[Volume(name="etc", host=Host(path="/etc"), mount_path="/x")])
    assert refused.value.status_code == 400
    assert "VOLUME::HOST_PATH_NOT_ALLOWED" in str(refused.value.error.code)


async def test_errors_are_typed(client):
    with pytest.raises(SandboxApiException) as unknown:
        await client.connect("no-such-sandbox")
    assert unknown.value.status_code == 404
    assert unknown.value.request_id
    with pytest.raises(SandboxApiException) as wrong:
        await client.create(metadata={"bad key!": "x"})
    assert wrong.value.status_code in (400, 422)


async def test_a_policy_that_nobody_could_enforce_is_refused(client):
    from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule

    with pytest.raises(SandboxApiException) as refused:
        await client.create(network_policy=NetworkPolicy(
            default_action="deny", egress=[NetworkRule(action="allow", target="https://example.com")]
        ))
    assert 400 <= refused.value.status_code < 502 and refused.value.status_code != 202


async def test_server_proxy_mode(server, client):
    from conftest import Client

    proxied = Client(client.flavour, server, use_server_proxy=True)
    try:
        sandbox = await proxied.create()
        out = await done(sandbox.commands.run("echo through the proxy"))
        assert text(out.logs.stdout).strip() == "through the proxy"
        await done(sandbox.files.write_file("/tmp/x", "y" * 100_000))
        assert await done(sandbox.files.read_file("/tmp/x")) == "y" * 100_000
    finally:
        await proxied.end()


@only_1_1
async def test_destroy_kills_and_closes(client):
    sandbox = await client.create()
    await done(sandbox.destroy())
    manager = await client.manager()
    with pytest.raises(SandboxApiException):
        await done(manager.get_sandbox_info(sandbox.id))
    await done(manager.close())
    client.made.clear()


@only_1_1
async def test_templates_are_refused_as_the_reference_does(client):
    from opensandbox.models.templates import TemplateFilter

    manager = await client.manager()
    with pytest.raises(SandboxApiException) as refused:
        await done(manager.list_templates(TemplateFilter()))
    assert refused.value.status_code == 501
    await done(manager.close())


def wheel(name, module):
    """A package without dependencies, made here: nothing is downloaded."""
    made = io.BytesIO()
    info = f"{name}-1.dist-info"
    files = {
        f"{name}.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(made, "w") as archive:
        for path, contents in files.items():
            archive.writestr(path, contents)
    return made.getvalue()


@pytest.mark.skipif(BACKEND != "embedded", reason="host is an image of the embedded runtime")
async def test_the_image_host_has_python_and_lets_pip_install(client):
    sandbox = await client.create("host")
    path = "/workspace/hello_pip-1-py3-none-any.whl"
    await done(sandbox.files.write_file(path, wheel("hello_pip", "WORD = 'installed'\n")))
    made = await done(sandbox.commands.run(f"pip install --no-index --no-deps {path}"))
    assert made.error is None, text(made.logs.stdout) + text(made.logs.stderr)
    said = await done(sandbox.commands.run("cd /; python -c 'import hello_pip; print(hello_pip.WORD)'"))
    assert text(said.logs.stdout).startswith("installed"), text(said.logs.stderr)
