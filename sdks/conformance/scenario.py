"""Runs scenarios: a runner in some language makes the calls, this program does everything else.

The runner is a child that reads one JSON object a line and answers one a line; README.md says which.
Calls carry a number and may overlap, so that one can wait while another interrupts it.
"""

import http.client
import itertools
import json
import os
import queue
import subprocess
import threading
import time
import uuid
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from matching import filled, mismatch, shown
from server import API_KEY, REPO

# No call of a scenario takes this long; a runner that hangs must not take the run with it.
CALL_SECONDS_MAX = 60
# A language's runtime, and in a fresh checkout its build.
RUNNER_SECONDS_MAX = 300


class Failed(Exception):
    """A step did not go as the scenario says."""


class Runner:
    def __init__(self, language, command):
        self.language = language
        self.numbers = itertools.count(1)
        self.answers = {}
        self.lock = threading.Lock()
        program = REPO / command[0]
        if not program.is_file():
            raise FileNotFoundError(f"{command[0]} is not there: {language} has no runner yet")
        self.process = subprocess.Popen(
            [program, *command[1:]], cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={k: v for k, v in os.environ.items() if not k.startswith("OPEN_SANDBOX_")},
        )
        self.ready = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        hello = self.ready.get(timeout=RUNNER_SECONDS_MAX)
        if hello is None:
            raise RuntimeError(f"the runner of {language} ended before it was ready")
        self.cancels = hello.get("cancels", True)

    def _read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("ready"):
                self.ready.put(message)
                continue
            with self.lock:
                waiting = self.answers.pop(message["id"], None)
            if waiting:
                waiting.put(message)
        self.ready.put(None)
        with self.lock:
            for waiting in self.answers.values():
                waiting.put({"error": {"kind": "runner", "message": "the runner ended"}})

    def start(self, call, on=None, arguments=None, name=None):
        """Sends a call; answers its number and where its answer will come."""
        answer = queue.SimpleQueue()
        with self.lock:
            number = next(self.numbers)
            self.answers[number] = answer
            message = {"id": number, "call": call, "with": arguments or {}}
            if on:
                message["on"] = on
            if name:
                message["as"] = name
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        return number, answer

    def cancel(self, number):
        with self.lock:
            self.process.stdin.write(json.dumps({"cancel": number}) + "\n")
            self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(CALL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Run:
    """One scenario in one language."""

    def __init__(self, scenario, runner, server, proxy, is_whole):
        self.scenario, self.runner, self.server, self.proxy = scenario, runner, server, proxy
        self.is_whole = is_whole
        self.running = {}
        self.variables = {
            "scenario": scenario["name"], "key": API_KEY, "server": server.address, "proxy": proxy.address,
            "host_paths": str(server.host_paths), "unique": uuid.uuid4().hex,
        }

    def go(self):
        self.proxy.reset(self.server.address)
        settings = {"domain": self.proxy.address, "api_key": API_KEY, **self.scenario.get("client", {})}
        self.call({"call": "client.new", "with": settings, "as": "client"})
        if "sandbox" in self.scenario:
            given = {"image": "host", **self.scenario["sandbox"]}
            self.call({"call": "sandbox.create", "on": "client", "with": given, "as": "sandbox", "keep": "sandbox"})
        try:
            for at, step in enumerate(self.scenario["steps"], 1):
                self.step(step, f"step {at}")
            if self.running:
                raise Failed(f"calls were never waited for: {', '.join(self.running)}")
        finally:
            self.proxy.command("release")
            self.proxy.command("clear")
            if self.server.process.poll() is not None:
                self.server.start()
            self.answer("runner.reset", self.runner.start("runner.reset"))

    def step(self, step, place):
        kinds = {
            "call": self.call, "wait": self.wait, "cancel": self.cancel, "proxy": self.order_proxy,
            "server": self.order_server, "requests": self.requests, "http": self.http, "repeat": self.repeat,
            "sweep": self.sweep,
        }
        try:
            return next(do for kind, do in kinds.items() if kind in step)(step)
        except StopIteration:
            raise Failed(f"{place}: {shown(step)} is no step") from None
        except Failed as error:
            about = step.get("call") or next(iter(step))
            raise Failed(f"{place} ({about}): {error}") from None

    def answer(self, what, started):
        try:
            return started[1].get(timeout=CALL_SECONDS_MAX)
        except queue.Empty:
            raise Failed(f"{what} did not answer within {CALL_SECONDS_MAX} s") from None

    def call(self, step):
        arguments = filled(step.get("with", {}), self.variables)
        handle = step.get("on") or ("client" if step["call"].startswith(("client.", "images.", "volumes.", "keys.", "tenants.")) else "sandbox")
        if step["call"] in ("client.new", "config.load"):
            handle = None
        if "until" in step:
            return self.collect(step, handle, arguments)
        started = self.runner.start(step["call"], handle, arguments, step.get("as"))
        if "background" in step:
            self.running[step["background"]] = (step["call"], started)
            return
        self.check(step, self.answer(step["call"], started))

    def collect(self, step, handle, arguments):
        """Repeats a call until what came together is what is wanted: a terminal gives its output in pieces."""
        whole, events = "", []
        while True:
            answer = self.answer(step["call"], self.runner.start(step["call"], handle, arguments))
            if "error" in answer:
                raise Failed(f"failed before {shown(step['until'])}: {answer['error']}; so far {shown(whole)}")
            event = answer["result"]
            if event is None:
                raise Failed(f"ended before {shown(step['until'])}; so far {shown(whole)} {shown(events)}")
            whole += event.get("text") or ""
            events.append(event)
            if mismatch({"text": whole, "last": event}, filled(step["until"], self.variables)) is None:
                break
        if "keep" in step:
            self.variables[step["keep"]] = {"text": whole, "events": events, "last": events[-1]}

    def check(self, step, answer):
        failure = answer.get("error")
        if "error" in step:
            if failure is None:
                raise Failed(f"was to fail with {shown(step['error'])} and answered {shown(answer.get('result'))}")
            reason = mismatch(failure, filled(step["error"], self.variables))
            if reason:
                raise Failed(f"failed otherwise than expected: {reason}; {shown(failure)}")
            if "keep" in step:
                self.variables[step["keep"]] = failure
            return
        if failure is not None:
            raise Failed(f"failed: {shown(failure)}")
        result = answer.get("result")
        if "expect" in step:
            reason = mismatch(result, filled(step["expect"], self.variables))
            if reason:
                raise Failed(reason)
        if "keep" in step:
            self.variables[step["keep"]] = result

    def wait(self, step):
        what, started = self.running.pop(step["wait"])
        self.check(step, self.answer(what, started))

    def cancel(self, step):
        self.runner.cancel(self.running[step["cancel"]][1][0])

    def order_proxy(self, step):
        self.proxy.command(filled(step["proxy"], self.variables))

    def order_server(self, step):
        order = step["server"]
        if order in ("stop", "restart"):
            self.server.stop()
        if order in ("start", "restart"):
            self.server.start()

    def requests(self, step):
        """What the proxy saw: how many requests like this there were, and what they carried."""
        wanted = filled(step["requests"], self.variables)
        seen = [request for request in self.proxy.requests
                if fnmatchcase(request["path"], wanted.get("path", "*"))
                and wanted.get("method", request["method"]) == request["method"]]
        reason = mismatch(len(seen), wanted["count"]) if "count" in wanted else None
        if reason:
            raise Failed(f"number of requests: {reason}; seen: {[(r['method'], r['path']) for r in seen]}")
        for request in seen:
            for name, value in wanted.get("headers", {}).items():
                reason = mismatch(request["headers"].get(name.lower()), value)
                if reason:
                    raise Failed(f"header {name} of {request['method']} {request['path']}: {reason}")
            if "target" in wanted:
                reason = mismatch(request["target"], wanted["target"])
                if reason:
                    raise Failed(reason)

    def http(self, step):
        """A plain request of the scenario's own, as a browser or another program would send it."""
        order = filled(step["http"], self.variables)
        url = urlsplit(order["url"] if "://" in order["url"] else f"http://{order['url']}")
        # Names below localhost are this machine (RFC 6761, section 6.3), whether or not its resolver knows.
        is_local = (url.hostname or "").endswith(".localhost")
        place = f"127.0.0.1:{url.port}" if is_local else url.netloc
        connection = http.client.HTTPConnection(place, timeout=CALL_SECONDS_MAX)
        try:
            path = url.path + (f"?{url.query}" if url.query else "")
            body = order.get("body")
            headers = {"Host": url.netloc, **(order.get("headers") or {})}
            if isinstance(body, (dict, list)):
                body, headers["Content-Type"] = json.dumps(body), "application/json"
            connection.request(order.get("method", "GET"), path or "/", body, headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        self.check(step, {"result": {"status": answer.status, "text": text}})

    def repeat(self, step):
        for number in range(filled(step["repeat"], self.variables)):
            self.variables["number"] = number
            for at, inner in enumerate(step["steps"], 1):
                self.step(inner, f"round {number}, step {at}")

    def sweep(self, step):
        """The steps once whole, then once for every byte at which the answer can be cut."""
        sweep = step["sweep"]
        stride = sweep.get("stride", 1) if self.is_whole else sweep["core_stride"]
        self.proxy.command("forget")
        self.variables["cut"] = None
        self.inside(step["steps"], "uncut")
        recorded = [each["body"] for each in self.proxy.bodies if self.fits(each, sweep)]
        if not recorded:
            raise Failed(f"no answer matched {shown(sweep)}")
        body = recorded[0]
        known = body.index(b"\n\n") + 2 if sweep.get("from") == "first_event" else 0
        for at in range(known, len(body) + 1, stride):
            self.proxy.command("clear")
            self.proxy.command({"cut": at, **{k: v for k, v in sweep.items() if k in ("method", "path")}})
            self.inside(step["steps"], f"cut after {at} of {len(body)} bytes")
        if known and "before" in step:
            for at in range(0, known - 2, max(1, stride)):
                self.proxy.command("clear")
                self.proxy.command({"cut": at, **{k: v for k, v in sweep.items() if k in ("method", "path")}})
                self.inside(step["before"], f"cut after {at} bytes, before the first event")
        self.proxy.command("clear")

    def fits(self, each, sweep):
        return each["method"] == sweep.get("method", each["method"]) and fnmatchcase(each["path"], sweep["path"])

    def inside(self, steps, place):
        for at, inner in enumerate(steps, 1):
            self.step(inner, f"{place}, step {at}")


def timed(scenario, runner, server, proxy, is_whole):
    """How a scenario went: nothing for well, or why not; and the seconds."""
    started = time.monotonic()
    try:
        Run(scenario, runner, server, proxy, is_whole).go()
        failure = None
    except Failed as error:
        failure = str(error)
    server.clean()
    return failure, time.monotonic() - started


def load(folder):
    scenarios = []
    for path in sorted(Path(folder).glob("*.json")):
        for scenario in json.loads(path.read_text()):
            scenario["file"] = path.stem
            scenarios.append(scenario)
    names = [scenario["name"] for scenario in scenarios]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SystemExit(f"conformance: two scenarios are called {', '.join(sorted(twice))}")
    return scenarios
