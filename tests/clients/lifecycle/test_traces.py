"""Traces over OTLP: a collector of the test's own reads what the server sends with the published message types."""

import base64
import http.client
import http.server
import json
import subprocess
import threading

import pytest
from conftest import API_KEY, BACKEND, IMAGE, START_SECONDS_MAX, free_port, newer_than_0_1, serving

pytestmark = pytest.mark.skipif("not newer_than_0_1()", reason="no client has a part in it: it runs once")

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
# What the embedded backend does for a sandbox, one after the other.
PHASES = ["prepare image", "take network", "set up on disk", "start process"]


class Collector:
    """Takes traces, and refuses what the published messages do not have."""

    def __init__(self):
        collector = self
        self.spans = []
        self.paths = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                collector.paths.append(self.path)
                if self.path == "/v1/traces":
                    collector.take(body)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body):
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        # OTLP's JSON has ids in hexadecimal, protobuf's has bytes in base64.
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for key in ("traceId", "spanId", "parentSpanId"):
                        if key in span:
                            span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
        message = ParseDict(body, ExportTraceServiceRequest())
        for resource in message.resource_spans:
            named = {it.key: it.value.string_value for it in resource.resource.attributes}
            assert named["service.name"] == "opensandbox-server"
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()


def otel(endpoint, more=""):
    return f'[otel]\nenabled = true\nendpoint = "{endpoint}"\n{more}'


def call(address, method, path, body=None, **headers):
    connection = http.client.HTTPConnection(address, timeout=START_SECONDS_MAX)
    headers = {"OPEN-SANDBOX-API-KEY": API_KEY, "content-type": "application/json", **headers}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status < 300, text
    return json.loads(text) if text else None


def create(address, **headers):
    wanted = {
        "image": {"uri": IMAGE}, "timeout": 60, "resourceLimits": {"cpu": "1", "memory": "128Mi"},
        "entrypoint": ["sleep", "600"],
    }
    return call(address, "POST", "/v1/sandboxes", wanted, **headers)["id"]


@pytest.mark.skipif("BACKEND != 'embedded'", reason="the phases are those of the embedded backend")
def test_a_creation_is_one_trace_from_the_caller_to_the_steps_of_the_backend():
    with Collector() as collector:
        with serving(otel(collector.endpoint)) as server:
            sandbox = create(server.address, traceparent=f"00-{TRACE}-{CALLER}-01")
            path = f"/v1/sandboxes/{sandbox}/proxy/44772/ping"
            call(server.address, "GET", path, traceparent=f"00-{TRACE}-{CALLER}-01")
            call(server.address, "POST", f"/v1/sandboxes/{sandbox}/pause", traceparent=f"00-{TRACE}-{CALLER}-01")
            call(server.address, "GET", "/v1/sandboxes", traceparent=f"00-{TRACE}-{CALLER}-00")
        spans = [span for span in collector.spans if span.trace_id.hex() == TRACE]

    def named(name, above=None):
        found = [span for span in spans if span.name == name and above in (None, span.parent_span_id)]
        assert len(found) == 1, (name, sorted(span.name for span in spans))
        return found[0]

    requests = {
        (attributes["http.request.method"], attributes["url.path"]): (span, attributes)
        for span in spans if span.name == "request"
        for attributes in [{it.key: it.value.string_value for it in span.attributes}]
    }
    # The list is part of a trace that its caller does not record.
    assert sorted(requests) == [
        ("POST", "/v1/sandboxes"), ("POST", f"/v1/sandboxes/{sandbox}/pause")
    ]
    request, attributes = requests["POST", "/v1/sandboxes"]
    assert request.parent_span_id.hex() == CALLER
    assert attributes["http.response.status_code"] == "202" and attributes["request_id"]
    made = named("make sandbox", request.span_id)
    backend = named("create in backend", made.span_id)
    phases = [named(phase, backend.span_id) for phase in PHASES]
    ends = [backend.start_time_unix_nano]
    for phase in phases:
        assert ends[-1] <= phase.start_time_unix_nano <= phase.end_time_unix_nano <= backend.end_time_unix_nano
        ends.append(phase.end_time_unix_nano)
    assert named("connect to sandbox").parent_span_id.hex() == CALLER
    paused, _ = requests["POST", f"/v1/sandboxes/{sandbox}/pause"]
    named("pause sandbox", paused.span_id)
    # What nobody asked for within a trace is one of its own.
    others = {span.name for span in collector.spans if span.trace_id.hex() != TRACE}
    assert "delete sandbox" in others


def test_nothing_waits_for_a_collector_that_is_away():
    with serving(otel(f"http://127.0.0.1:{free_port()}")) as server:
        create(server.address)
        # The server goes on when the first export has failed, and says so.
        for line in follow(server.log):
            if "the collector does not get them" in line and "traces" in line:
                break
        create(server.address)


def follow(log):
    """The lines of a log, also those that are still to come; the test's own time limit ends it."""
    with subprocess.Popen(["tail", "-n", "+1", "-f", log], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield from process.stdout
        finally:
            process.kill()


def test_no_traces_are_sent_that_nobody_wants():
    with Collector() as collector:
        with serving(otel(collector.endpoint, "traces = false\n")) as server:
            create(server.address)
        assert "/v1/metrics" in collector.paths
        assert "/v1/traces" not in collector.paths
