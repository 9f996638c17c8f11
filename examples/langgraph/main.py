"""A graph of LangGraph around a sandbox: create, prepare, run, retry once where the run failed, inspect, clean up.

The first run fails on purpose, because a file is missing; the retry makes it. What came out is summed up by the last node,
by a model if ANTHROPIC_API_KEY is set and langchain-anthropic is installed, else by a sentence.

Prints:
    create: a sandbox
    prepare: job.py
    run: exit 1
    retry: input.txt
    run: exit 0
    inspect: total 6
    cleanup: done
    summary: the job ended with total 6 after 2 runs
"""

import os
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from osb import Sandbox

JOB = "print('total', sum(int(line) for line in open('/tmp/input.txt')), file=open('/tmp/output.txt', 'w'))"
RUNS_MAX = 2


class State(TypedDict, total=False):
    sandbox: Sandbox
    runs: int
    code: int
    found: str
    summary: str


def create(state: State) -> State:
    sandbox = Sandbox.create(os.environ.get("SANDBOX_IMAGE", "host"), resources={"cpu": "1", "memory": "512Mi"})
    print("create: a sandbox")
    return {"sandbox": sandbox, "runs": 0}


def prepare(state: State) -> State:
    state["sandbox"].files.write("/tmp/job.py", JOB)
    print("prepare: job.py")
    return {}


def run(state: State) -> State:
    done = state["sandbox"].commands.run(["python3", "/tmp/job.py"], timeout=60)
    print(f"run: exit {done.exit_code}")
    return {"runs": state["runs"] + 1, "code": done.exit_code}


def retry(state: State) -> State:
    state["sandbox"].files.write("/tmp/input.txt", "1\n2\n3\n")
    print("retry: input.txt")
    return {}


def inspect(state: State) -> State:
    found = state["sandbox"].files.read_text("/tmp/output.txt").strip()
    print(f"inspect: {found}")
    return {"found": found}


def cleanup(state: State) -> State:
    state["sandbox"].kill()
    print("cleanup: done")
    return {}


def summarise(state: State) -> State:
    told = f"the job ended with {state.get('found', 'nothing')} after {state['runs']} runs"
    if os.environ.get("ANTHROPIC_API_KEY"):
        from langchain_anthropic import ChatAnthropic

        told = ChatAnthropic(model=os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")).invoke(f"Sum up: {told}").content
    print(f"summary: {told}")
    return {"summary": told}


def after_run(state: State) -> str:
    if state["code"] == 0:
        return "inspect"
    return "retry" if state["runs"] < RUNS_MAX else "cleanup"


graph = StateGraph(State)
for node in (create, prepare, run, retry, inspect, cleanup, summarise):
    graph.add_node(node.__name__, node)
for one, other in ((START, "create"), ("create", "prepare"), ("prepare", "run"), ("retry", "run"),
                   ("inspect", "cleanup"), ("cleanup", "summarise"), ("summarise", END)):
    graph.add_edge(one, other)
graph.add_conditional_edges("run", after_run, ["inspect", "retry", "cleanup"])
graph.compile().invoke({})
