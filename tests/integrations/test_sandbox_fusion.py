"""SandboxFusion's `POST /run_code` on our sandboxes: by hand, and by verl's own client, which scores completions."""

import base64
import importlib.util
import json
import sys
import threading
from pathlib import Path

import pytest
import requests
from conftest import IMAGE, sandboxes
from osb import Client, Config
from osb_sandbox_fusion import Runner, serve


@pytest.fixture(scope="session")
def url(connection):
    server = serve(Runner(Client(), IMAGE, at_once=8), port=0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()
    assert not sandboxes(connection), "each sandbox ends with its request"


def run(url, code, language="python", **more):
    answer = requests.post(f"{url}/run_code", json={"code": code, "language": language, **more}, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_program_runs_with_its_input_and_files(url):
    data = base64.b64encode(b"one two").decode()
    code = "print(input()); print(open('in/data').read().split()); open('made', 'w').write('three')"
    told = run(url, code, stdin="hello\n", files={"in/data": data}, fetch_files=["made", "not-made"])
    assert (told["status"], told["compile_result"], told["files"]) == (
        "Success", None, {"made": base64.b64encode(b"three").decode()})
    ran = told["run_result"]
    assert (ran["status"], ran["return_code"], ran["stdout"], ran["stderr"]) == ("Finished", 0, "hello\n['one', 'two']\n", "")
    assert ran["execution_time"] > 0


def test_how_a_program_ends_is_told(url):
    failed = run(url, "import sys; print('before'); print('why', file=sys.stderr); sys.exit(3)")
    assert (failed["status"], failed["run_result"]["status"]) == ("Failed", "Finished")
    assert (failed["run_result"]["return_code"], failed["run_result"]["stdout"], failed["run_result"]["stderr"]) == (
        3, "before\n", "why\n")
    late = run(url, "print('begun', flush=True)\nwhile True: pass", run_timeout=0.5)["run_result"]
    assert (late["status"], late["return_code"], late["stdout"]) == ("TimeLimitExceeded", None, "begun\n")
    killed = run(url, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")["run_result"]
    assert (killed["status"], killed["return_code"]) == ("Finished", -1)


def test_memory_is_limited(url):
    told = run(url, "held = bytearray(600 * 2**20); print('fits')", memory_limit_MB=256)
    assert (told["status"], told["run_result"]["stdout"]) == ("Failed", "")
    assert run(url, "held = bytearray(600 * 2**20); print('fits')", memory_limit_MB=1024)["run_result"]["stdout"] == "fits\n"


@pytest.mark.parametrize("language, code", [
    ("bash", "read line; echo $line"),
    ("nodejs", "process.stdin.on('data', (text) => process.stdout.write(text))"),
    ("cpp", "#include <iostream>\n#include <string>\nint main() { std::string l; std::getline(std::cin, l); std::cout << l << '\\n'; }"),
    ("perl", "print <STDIN>"),
])
def test_languages(url, language, code):
    told = run(url, code, language, stdin="a line\n", compile_timeout=60)
    assert (told["status"], told["run_result"]["stdout"]) == ("Success", "a line\n"), told
    assert (told["compile_result"] is None) == (language != "cpp")


def test_what_does_not_compile_does_not_run(url):
    told = run(url, "int main() { return nothing; }", "cpp", compile_timeout=60)
    assert (told["status"], told["compile_result"]["status"], told["run_result"]) == ("Failed", "Finished", None)
    assert told["compile_result"]["return_code"] == 1 and "nothing" in told["compile_result"]["stderr"]


@pytest.mark.parametrize("order, why", [
    ({"language": "cobol", "code": ""}, "cobol"),
    ({"language": "python"}, "code"),
    ({"language": "python", "code": 1}, "code"),
    ({"language": "python", "code": "", "run_timeout": 0}, "timeout"),
    ({"language": "python", "code": "", "run_timeout": True}, "number"),
    ({"language": "python", "code": "", "files": {"../out": ""}}, "../out"),
    ({"language": "python", "code": "", "files": {"/etc/out": ""}}, "/etc/out"),
    ({"language": "python", "code": "", "files": {"a": "%"}}, "base64"),
    ({"language": "python", "code": "", "fetch_files": ["../../etc/passwd"]}, "passwd"),
    ([], "object"),
])
def test_what_makes_no_sense_is_refused(url, order, why):
    answer = requests.post(f"{url}/run_code", json=order, timeout=60)
    assert answer.status_code == 422 and why in answer.json()["detail"], answer.text


def test_http(url):
    assert requests.get(f"{url}/v1/ping", timeout=60).json() == "pong"
    assert requests.get(f"{url}/nothing", timeout=60).status_code == 404
    assert requests.post(f"{url}/run_code", data="{", timeout=60).status_code == 422
    assert requests.post(f"{url}/run_code", data=iter([b"{}"]), timeout=60).status_code == 413


def test_a_server_that_is_away_is_not_the_codes_fault(url):
    told = Runner(Client(Config("127.0.0.1:1")), IMAGE).run({"language": "python", "code": "print(1)"})
    assert (told["status"], told["run_result"]) == ("SandboxError", None)
    assert "cannot be reached" in told["message"]


@pytest.fixture(scope="session")
def verl():
    """The part of verl that calls SandboxFusion; the package around it wants everything that trains."""
    whole = importlib.util.find_spec("verl")
    place = Path(whole.submodule_search_locations[0]) / "utils/reward_score/sandbox_fusion"
    spec = importlib.util.spec_from_file_location(
        "verl_sandbox_fusion", place / "__init__.py", submodule_search_locations=[str(place)])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_verl_scores_completions(url, verl):
    cases = {"inputs": ["1 2\n", "3 4\n", "5 6\n", "7 8\n"], "outputs": ["3\n", "7\n", "11\n", "16\n"]}
    right = "Here it is:\n```python\na, b = map(int, input().split())\nprint(a + b)\n```"

    def score(completion, cases=cases, timeout=30):
        found, told = verl.compute_score(f"{url}/run_code", threading.Semaphore(4), 1024, completion, cases, timeout=timeout)
        return found, [each["status"] for each in told]

    # The last case has a wrong answer.
    assert score(right) == (0.75, ["success"] * 3 + ["wrong_answer"])
    assert score("```python\nraise ValueError()\n```")[0] == 0
    assert set(score("```python\nraise ValueError()\n```")[1]) == {"runtime_error"}
    assert score("```python\nwhile True: pass\n```", {"inputs": [""], "outputs": [""]}, timeout=1) == (0, ["timeout"])
    named = {"fn_name": "add", "inputs": ["1\n2"], "outputs": ["3"]}
    assert score("```python\ndef add(a, b):\n    return a + b\n```", json.dumps(named)) == (1.0, ["success"])
