"""A real server on the embedded runtime, one sandbox of the image opensandbox/code-interpreter,
and the published code interpreter in it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest
from code_interpreter import CodeInterpreterSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.sync import SandboxSync

# As in the published examples.
IMAGE = "opensandbox/code-interpreter:latest"
ENTRYPOINT = ["/opt/opensandbox/code-interpreter.sh"]
# The key of the first example on the published package's page.
API_KEY = "your-api-key"
# The names under which the published examples and their versions ask for it.
ALIASES = ", ".join(f'"opensandbox/code-interpreter:{tag}" = "{IMAGE}"' for tag in ("v1.0.1", "v1.0.2", "v1.1.0"))
# The server says READY=1 within this, also on a machine that is busy with other tests.
START_SECONDS_MAX = 60


@pytest.fixture(scope="session")
def server():
    if os.geteuid() != 0:
        message = "these tests make real sandboxes and need root: sudo make test-languages"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    home = Path(tempfile.mkdtemp(prefix="osb-languages-"))
    config, log = home / "config.toml", home / "server.log"
    # It stays bound here and is never listened on, so that nobody else gets it; the server may bind
    # it all the same, because both ask for SO_REUSEADDR.
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    config.write_text(
        f'[server]\nhost = "127.0.0.1"\nport = {port}\napi_key = "{API_KEY}"\n'
        f'[embedded]\ndata_dir = "{os.environ["OSB_TEST_DATA"]}"\nimage_aliases = {{ {ALIASES} }}\n'
        f'[store]\npath = "{home}/osb.db"\n'
    )
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(home / "notify"))
    notify.settimeout(START_SECONDS_MAX)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [os.environ["OSB_BIN"], "server", "--config", config],
            env={**os.environ, "NOTIFY_SOCKET": str(home / "notify")},
            stdout=out, stderr=subprocess.STDOUT,
        )
    try:
        while b"READY=1" not in notify.recv(4096):
            pass
    except TimeoutError:
        process.kill()
        pytest.fail(f"the server did not become ready:\n{log.read_text()}")
    yield f"127.0.0.1:{port}"
    reserved.close()
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=START_SECONDS_MAX)
    print(log.read_text()[-4000:])
    shutil.rmtree(home, ignore_errors=True)
    assert code == 0, f"the server ended with {code}"


@pytest.fixture(scope="session")
def sandbox(server):
    options = ConnectionConfigSync(
        api_key=API_KEY, domain=server, request_timeout=timedelta(seconds=120)
    )
    sandbox = SandboxSync.create(
        IMAGE, entrypoint=ENTRYPOINT, connection_config=options,
        resource={"cpu": "2", "memory": "2Gi"}, ready_timeout=timedelta(seconds=120),
    )
    yield sandbox
    sandbox.kill()
    sandbox.close()


@pytest.fixture(scope="session")
def interpreter(sandbox):
    return CodeInterpreterSync.create(sandbox)


class Context:
    """One context, and what its cells gave."""

    def __init__(self, interpreter, language):
        self.codes = interpreter.codes
        self.context = self.codes.create_context(language)

    def run(self, code, **options):
        return self.codes.run(code, context=self.context, **options)

    def stdout(self, code):
        execution = self.run(code)
        assert execution.error is None, execution.error
        return "".join(message.text for message in execution.logs.stdout)

    def value(self, code):
        execution = self.run(code)
        assert execution.error is None, execution.error
        return execution.result[-1].text

    def interrupted(self, code, sign):
        """Runs code that never ends and interrupts it, by the id of `init`, at its first output."""
        ids = []

        def on_stdout(message):
            if sign in message.text:
                threading.Thread(target=self.codes.interrupt, args=(ids[0],)).start()

        handlers = ExecutionHandlersSync(
            on_init=lambda init: ids.append(init.id), on_stdout=on_stdout
        )
        return self.run(code, handlers=handlers)


@pytest.fixture
def context(interpreter):
    made = []

    def make(language):
        made.append(Context(interpreter, language))
        return made[-1]

    yield make
    for one in made:
        interpreter.codes.delete_context(one.context.id)


@pytest.fixture
def raw_results(sandbox):
    """The results of a Python cell with all their media types, of which the SDK keeps one."""

    def run(code):
        endpoint = sandbox.get_endpoint(44772)
        body = json.dumps({"context": {"language": "python"}, "code": code}).encode()
        headers = {"Content-Type": "application/json", **(endpoint.headers or {})}
        request = urllib.request.Request(f"http://{endpoint.endpoint}/code", body, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            events = [json.loads(line) for line in answer if line.strip()]
        failed = [event["error"] for event in events if event["type"] == "error"]
        assert not failed, failed
        return [event["results"] for event in events if event["type"] == "result"]

    return run
