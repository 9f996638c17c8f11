"""The rules of `tools/tidy` about what stands in which file of the Rust code: lengths, statuses, logs,
and the sentences that ARCHITECTURE.md calls invariants.

Each rule is a function that yields (path, line, what is wrong). What a file may have of it all the
same is in `tools/tidy-exceptions.toml`.
"""

import re
import tomllib
from pathlib import Path

# A function longer than this does more than one thing; a test may be a table of cases.
FUNCTION_LINES_MAX = 70
TEST_FUNCTION_LINES_MAX = 140
# A file longer than this has more than one subject; tests are lists of cases.
FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 1000
# A handler takes a request apart, calls the service and writes the answer.
HANDLER_LINES_MAX = 40

# The one file of each program in which errors get the status of an answer.
STATUS_FILES = {
    "crates/server/src/http/error.rs",
    "crates/server/src/http/error/egress.rs",
    "crates/server/src/http/error/gateway.rs",
    "crates/server/src/http/error/readable.rs",
    "crates/execd/src/http/problem.rs",
}
ERROR_STATUS = re.compile(
    r"StatusCode::(BAD_REQUEST|UNAUTHORIZED|FORBIDDEN|NOT_FOUND|METHOD_NOT_ALLOWED|NOT_ACCEPTABLE|REQUEST_TIMEOUT|"
    r"CONFLICT|GONE|LENGTH_REQUIRED|PRECONDITION_FAILED|PAYLOAD_TOO_LARGE|URI_TOO_LONG|UNSUPPORTED_MEDIA_TYPE|"
    r"RANGE_NOT_SATISFIABLE|UNPROCESSABLE_ENTITY|TOO_MANY_REQUESTS|REQUEST_HEADER_FIELDS_TOO_LARGE|"
    r"INTERNAL_SERVER_ERROR|NOT_IMPLEMENTED|BAD_GATEWAY|SERVICE_UNAVAILABLE|GATEWAY_TIMEOUT)\b"
    r"|from_u16\([45]\d\d\)"
)
LOG = re.compile(r"\b(?:tracing::)?(?:trace|debug|info|warn|error)(?:_span)?!\s*\(")
# Reads or writes something, or asks what time it is.
INPUT_OUTPUT = re.compile(
    r"\bstd::(?:fs|process|env)\b|\b(?:TcpStream|TcpListener|UdpSocket|ToSocketAddrs)\b|\btokio::|\bhyper::|\bSystemTime::now\b|\bInstant::now\b|\bTimestamp::now\b"
    r"|\bstd::io::(?:stdin|stdout|stderr)\b"
)
# Crates that speak HTTP or SQL, or to a container engine.
TRANSPORTS = {"http", "http-body", "http-body-util", "hyper", "hyper-util", "axum", "tower", "reqwest", "sqlx",
              "rusqlite", "bollard", "httparse"}
# The parts of a sandbox's record that only the state machine changes.
STATE = re.compile(r"\.(?:state|status|reason)\s*=[^=>]")


def source(path):
    """The text without comments and without the tests at its end."""
    text = path.read_text()
    text = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, maxsplit=1, flags=re.M)[0]
    return "\n".join("" if line.lstrip().startswith("//") else line for line in text.split("\n"))


def is_test(path):
    # Fakes and the conformance suite are what tests are made of.
    parts = {"tests", "benches", "examples", "fuzz", "fake", "conformance"}
    return bool(parts & set(path.parts)) or path.stem in ("tests", "fake", "conformance", "testkit")


def product(paths, *crates):
    for path in paths:
        if path.suffix == ".rs" and path.parts[0] in ("crates", "sdks") and "src" in path.parts and not is_test(path):
            if not crates or path.parts[1] in crates:
                yield path


def matches(path, pattern, text=None):
    text = source(path) if text is None else text
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match


def functions(path):
    """Name, first line and number of lines of each function, by rustfmt's indentation."""
    lines = path.read_text().split("\n")
    head = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)")
    for number, line in enumerate(lines):
        match = head.match(line)
        if not match:
            continue
        indent = match[1]
        for end in range(number, len(lines)):
            if lines[end].startswith(indent + "}") or lines[end].startswith(indent) and lines[end].endswith(";") and (
                end == number or lines[end].startswith(indent + ")")
            ):
                yield match[2], number + 1, end - number + 1
                break


def function_length(paths):
    for path in paths:
        if path.suffix == ".rs" and path.parts[0] in ("crates", "sdks", "fuzz"):
            limit = TEST_FUNCTION_LINES_MAX if is_test(path) else FUNCTION_LINES_MAX
            for name, line, length in functions(path):
                if length > limit:
                    yield path, line, f"{name} has {length} lines; at most {limit}"


def file_length(paths):
    for path in paths:
        if path.suffix != ".rs" or path.parts[0] not in ("crates", "sdks", "fuzz", "tests"):
            continue
        length = len(path.read_text().splitlines())
        limit = TEST_FILE_LINES_MAX if is_test(path) or path.parts[0] == "tests" else FILE_LINES_MAX
        if length > limit:
            yield path, 1, f"{length} lines; split it by subject (at most {limit})"


def error_status(paths):
    for path in product(paths, "server", "execd", "proxy"):
        if str(path) not in STATUS_FILES:
            for line, match in matches(path, ERROR_STATUS):
                yield path, line, f"{match[0]}: errors get their status in {' or '.join(sorted(STATUS_FILES))}"


def logs(path):
    """The line and the arguments of each log statement."""
    text = source(path)
    for line, match in matches(path, LOG, text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield line, text[match.end():end - 1]


def log_names_sandbox_id(paths):
    for path in product(paths):
        for line, arguments in logs(path):
            fields = re.sub(r'"(?:[^"\\]|\\.)*"', '""', arguments)
            if re.search(r"(?:^|[,({]\s*)(?:sandbox|id)\s*=\s*[%?]|(?:^|,)\s*[%?](?:sandbox|id)\b", fields):
                yield path, line, "a sandbox's id is logged as `sandbox_id`"


def log_has_sources(paths):
    for path in product(paths):
        for line, arguments in logs(path):
            if re.search(r"%\s*(?:error|err|e|failure|source)\b(?!_|\()", arguments):
                yield path, line, "logged without its sources; write `error = %error_chain(&error)`"


def api_has_no_io(paths):
    for path in product(paths, "api"):
        for line, match in matches(path, INPUT_OUTPUT):
            yield path, line, f"{match[0]}: api is data; it does no I/O and knows no time"
    yield from manifest("crates/api/Cargo.toml", TRANSPORTS | {"tokio"})


def lifecycle_has_no_transport(paths):
    del paths
    yield from manifest("crates/lifecycle/Cargo.toml", TRANSPORTS)


def manifest(name, forbidden):
    path = Path(name)
    for crate, how in sorted(tomllib.loads(path.read_text()).get("dependencies", {}).items()):
        # What only a feature turns on, such as the conformance suite, is not in the product.
        if crate in forbidden and not (isinstance(how, dict) and how.get("optional")):
            yield path, 1, f"depends on {crate}"


def state_changes_in_machine(paths):
    for path in product(paths, "lifecycle"):
        # Snapshots have two states, and none of a sandbox's.
        if "machine" in path.parts or path.stem in ("machine", "snapshots"):
            continue
        for line, match in matches(path, STATE):
            yield path, line, f"`{match[0].strip()}`: state changes only through machine::step"


def handlers_hold_no_rules(paths):
    """Rules are in lifecycle, where a second API meets them too."""
    for path in product(paths, "server"):
        if path.parts[3:4] != ("http",) or path.stem in ("error", "violation", "extract", "access", "audit", "docs"):
            continue
        text = source(path)
        for line, _ in matches(path, re.compile(r"\bvalidate::|\ballowed_host_paths\b|\bmax_sandbox_timeout"), text):
            yield path, line, "a rule in a handler; it belongs into lifecycle, where every API meets it"
        async_heads = {match[1] for match in re.finditer(r"async fn (\w+)", text)}
        for name, line, length in functions(path):
            if name in async_heads and length > HANDLER_LINES_MAX and line <= text.count("\n"):
                yield path, line, f"{name} has {length} lines; a handler has at most {HANDLER_LINES_MAX}"


def sandbox_paths_by_descriptor(paths):
    """What a sandbox can change is opened below a descriptor (openat2), never found by its whole name."""
    for path in product(paths, "runtime"):
        for line, match in matches(path, re.compile(r"\bcanonicalize\(")):
            yield path, line, f"{match[0]}): a path that is resolved by name can be changed meanwhile"


def server_is_never_forked(paths):
    for path in product(paths, "runtime", "server", "lifecycle", "docker"):
        if "sys" in path.parts or "spawner" in path.parts or "init" in path.parts:
            continue
        for line, match in matches(path, re.compile(r"\bfork\(|\bpre_exec\(")):
            yield path, line, f"{match[0]}): a server process with threads is never forked; ask the spawner"


def execd_never_calls_out(paths):
    for path in product(paths, "execd"):
        for line, match in matches(path, re.compile(r"\blookup_host\(|\bto_socket_addrs\(|\bgetaddrinfo\b")):
            yield path, line, f"{match[0]}: execd never resolves a name, and never calls out of its sandbox"
    yield from manifest("crates/execd/Cargo.toml", {"reqwest", "hickory-resolver", "rustls", "ureq"})


def stdout_is_for_results(paths):
    for path in product(paths, "cli", "mcp", "osb"):
        if "output" in path.parts or path.stem in ("output", "main"):
            continue
        for line, match in matches(path, re.compile(r"\be?print(?:ln)?!\s*\(")):
            yield path, line, f"{match[0]}: results and messages are written in one place"


RULES = [
    function_length,
    file_length,
    error_status,
    log_names_sandbox_id,
    log_has_sources,
    api_has_no_io,
    lifecycle_has_no_transport,
    state_changes_in_machine,
    handlers_hold_no_rules,
    sandbox_paths_by_descriptor,
    server_is_never_forked,
    execd_never_calls_out,
    stdout_is_for_results,
]
