"""Runs one piece of code in a sandbox of its own, and says how it went in SandboxFusion's words."""

import base64
import binascii
import threading
import time
from typing import Any

from osb import ApiError, Client, OsbError, Sandbox
from osb.posix import has_timed_out

from .languages import LANGUAGES

# Where the code is, and where it runs.
PLACE = "/tmp/run_code"
# What is kept of what a program prints; one that prints more has it cut.
OUTPUT_CHARACTERS_MAX = 8 * 1024 * 1024
# A run may take so long unless the request says otherwise, in seconds, as at SandboxFusion.
TIMEOUT = 10.0
# A sandbox that was forgotten ends by itself so long after its code must have ended, in seconds.
LIFETIME_LEFT = 60.0


class Refused(Exception):
    """A request that makes no sense."""


class Runner:
    """Runs code, so much of it at once. `images` are those of languages that the usual image lacks."""

    def __init__(
        self, client: Client, image: str, images: dict[str, str] | None = None, at_once: int = 64, **options: Any
    ) -> None:
        self.client = client
        self.image = image
        self.images = images or {}
        self.options = options
        self._turns = threading.BoundedSemaphore(at_once)

    def run(self, request: Any) -> dict[str, Any]:
        """The answer to a request of `POST /run_code`."""
        order = Order(request)
        with self._turns:
            try:
                return self._run(order)
            except OsbError as error:
                # The code did nothing wrong, and the trainer must not learn from this.
                return answer("SandboxError", message=f"{error} ({error.code}): {error.remedy}")

    def _run(self, order: "Order") -> dict[str, Any]:
        options = dict(self.options)
        if order.memory_mb > 0:
            options["resources"] = {"cpu": "1", **options.get("resources", {}), "memory": f"{order.memory_mb}Mi"}
        lifetime = order.compile_timeout + order.run_timeout + LIFETIME_LEFT
        image = self.images.get(order.name, self.image)
        with Sandbox.create(image, client=self.client, lifetime=lifetime, **options) as sandbox:
            sandbox.files.create_directories(PLACE)
            for path, content in order.files.items():
                sandbox.files.write(f"{PLACE}/{path}", content)
            compiled = None
            if order.language.compile is not None:
                compiled = step(sandbox, order.language.compile, order.compile_timeout)
                if not is_well(compiled):
                    return answer("Failed", compiled=compiled)
            ran = step(sandbox, order.language.run, order.run_timeout, order.stdin)
            files = {path: fetched(sandbox, path) for path in order.fetch}
            files = {path: content for path, content in files.items() if content is not None}
            return answer("Success" if is_well(ran) else "Failed", compiled=compiled, ran=ran, files=files)


class Order:
    """A request, checked."""

    def __init__(self, request: Any) -> None:
        if not isinstance(request, dict):
            raise Refused("a request is a JSON object")
        self.name = text(request, "language")
        if self.name not in LANGUAGES:
            raise Refused(f"language {self.name!r} is not one of {', '.join(LANGUAGES)}")
        self.language = LANGUAGES[self.name]
        self.stdin = text(request, "stdin", None) or ""
        self.compile_timeout = number(request, "compile_timeout", TIMEOUT)
        self.run_timeout = number(request, "run_timeout", TIMEOUT)
        if self.compile_timeout <= 0 or self.run_timeout <= 0:
            raise Refused("compile_timeout and run_timeout are seconds, and more than none")
        self.memory_mb = int(number(request, "memory_limit_MB", -1))
        files = request.get("files") or {}
        if not isinstance(files, dict):
            raise Refused("files is an object of paths and base64")
        self.files = {inside(path): decoded(path, content) for path, content in files.items()}
        self.files[self.language.file] = text(request, "code").encode()
        fetch = request.get("fetch_files") or []
        if not isinstance(fetch, list):
            raise Refused("fetch_files is a list of paths")
        self.fetch = [inside(path) for path in fetch]


def text(request: dict[str, Any], name: str, *default: None) -> Any:
    found = request.get(name, *default)
    if isinstance(found, str) or (default and found is None):
        return found
    raise Refused(f"{name} is text")


def number(request: dict[str, Any], name: str, default: float) -> float:
    found = request.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise Refused(f"{name} is a number")
    return found


def inside(path: Any) -> str:
    """A path below the directory of the code."""
    if not isinstance(path, str) or not path or path.startswith("/") or ".." in path.split("/"):
        raise Refused(f"{path!r} is not a path below the working directory")
    return path


def decoded(path: str, content: Any) -> bytes:
    if content is None:
        return b""
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise Refused(f"the content of {path} is not base64: {error}") from error


def step(sandbox: Sandbox, command: str, timeout: float, stdin: str = "") -> dict[str, Any]:
    """Runs shell text to its end, and says how it went."""
    begun = time.monotonic()
    out, err = Kept(), Kept()
    # The shell becomes the program, so that a signal that ends it is seen.
    output = sandbox.commands.run(
        f"exec {command}", cwd=PLACE, timeout=timeout, stdin=stdin, on_stdout=out.take, on_stderr=err.take)
    took = time.monotonic() - begun
    if has_timed_out(output):
        return result("TimeLimitExceeded", took, None, out, err)
    if output.exit_code is None:
        return result("Error", took, None, out, err, output.error.value if output.error is not None else "")
    return result("Finished", took, output.exit_code, out, err)


class Kept:
    """Text that is printed, up to a length."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.left = OUTPUT_CHARACTERS_MAX

    def take(self, text: str) -> None:
        if self.left > 0:
            self.pieces.append(text[: self.left])
            self.left -= len(self.pieces[-1])

    def __str__(self) -> str:
        return "".join(self.pieces)


def result(status: str, took: float, code: int | None, out: Kept, err: Kept, why: str = "") -> dict[str, Any]:
    return {"status": status, "execution_time": took, "return_code": code, "stdout": str(out), "stderr": str(err) + why}


def is_well(result: dict[str, Any]) -> bool:
    return result["status"] == "Finished" and result["return_code"] == 0


def fetched(sandbox: Sandbox, path: str) -> str | None:
    """A file as base64; nothing where the code did not make it."""
    try:
        return base64.b64encode(sandbox.files.read(f"{PLACE}/{path}")).decode()
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def answer(
    status: str, message: str = "", compiled: dict[str, Any] | None = None, ran: dict[str, Any] | None = None,
    files: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {"status": status, "message": message, "compile_result": compiled, "run_result": ran,
            "executor_pod_name": None, "files": files or {}}
