"""Harbor as published: its oracle agent solves tasks in sandboxes, several at a time."""

import json
import subprocess
import sys
from pathlib import Path

from conftest import IMAGE, sandboxes

TRIALS = 4
TASK = """schema_version = "1.4"
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 60.0
[environment]
docker_image = "{image}"
cpus = 1
memory_mb = 512
workdir = "/work"
{more}
"""
# Lines keep their ends on the way, and files their rights: the solution is a program that is run.
SOLUTION = "#!/bin/bash\nprintf 'one\\ntwo\\n' > /work/answer.txt\n"
CHECK = """#!/bin/bash
mkdir -p /logs/verifier
if [ "$(wc -l < /work/answer.txt)" = 2 ] && {more}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write_task(at, more="", check="true"):
    for name, text in {
        "task.toml": TASK.format(image=IMAGE, more=more), "instruction.md": "Write two lines.\n",
        "solution/solve.sh": SOLUTION, "tests/test.sh": CHECK.format(more=check),
    }.items():
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)
    (at / "environment").mkdir()
    return at


def run_job(task, jobs, trials):
    harbor = Path(sys.executable).parent / "harbor"
    done = subprocess.run(
        [harbor, "run", "--path", task, "--env", "opensandbox", "--agent", "oracle", "--ek", "protocol=http",
         "--ek", "health_check_poll_interval_sec=0.1", "--n-attempts", str(trials), "--n-concurrent", str(trials),
         "--jobs-dir", jobs, "--job-name", "job", "--yes", "--quiet"],
        capture_output=True, text=True, timeout=150, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    results = [json.loads(path.read_text()) for path in (jobs / "job").glob("*/result.json")]
    assert len(results) == trials, said
    return results


def test_the_oracle_solves_several_trials_at_once(server, tmp_path):
    results = run_job(write_task(tmp_path / "task"), tmp_path / "jobs", TRIALS)
    assert [result.get("exception_info") for result in results] == [None] * TRIALS
    assert [result["verifier_result"]["rewards"]["reward"] for result in results] == [1.0] * TRIALS
    assert sandboxes(server) == [], "Harbor deletes what it made"


def test_a_wrong_answer_has_no_reward(tmp_path):
    [result] = run_job(write_task(tmp_path / "task", check="false"), tmp_path / "jobs", 1)
    assert result["verifier_result"]["rewards"]["reward"] == 0.0
