"""Images and volumes by API: our extension, which no published client knows, so plain HTTP."""

import hashlib
import http.client
import io
import json
import os
import shutil
import tarfile

import pytest
from conftest import API_KEY, BACKEND

pytestmark = pytest.mark.skipif(BACKEND != "embedded", reason="other backends have tools of their own")

SECONDS_MAX = 60


@pytest.fixture
def call(server):
    def call(method, path, body=None, expect=200):
        connection = http.client.HTTPConnection(server.address, timeout=SECONDS_MAX)
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(method, f"/v1{path}", body, {"OPEN-SANDBOX-API-KEY": API_KEY})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == expect, content
        is_json = answer.getheader("content-type", "").startswith("application/json")
        return json.loads(content) if is_json else content

    return call


def rootfs():
    """A root filesystem of one static program, and a file that makes it like no other, as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.add(shutil.which("busybox"), "sleep")
        entry = tarfile.TarInfo("etc/greeting")
        text = os.urandom(64)
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return out.getvalue()


def names(call):
    return {name: image for image in call("GET", "/images")["items"] for name in image["references"]}


def test_an_image_is_imported_used_exported_and_pruned_while_the_server_runs(call):
    [imported] = call("POST", "/images/import?name=example.org/greeting:1", rootfs())["ids"]
    listed = names(call)["example.org/greeting:1"]
    assert listed["id"] == imported and listed["sizeBytes"] > 0 and listed["users"] == 0
    sandbox = call("POST", "/sandboxes", {
        "image": {"uri": "example.org/greeting:1"}, "resourceLimits": {"cpu": "1"},
        "entrypoint": ["/sleep", "1000"], "timeout": 60}, expect=202)
    assert names(call)["example.org/greeting:1"]["users"] == 1

    archive = call("GET", "/images/export?reference=example.org/greeting:1")
    with tarfile.open(fileobj=io.BytesIO(archive)) as layout:
        blobs = [entry for entry in layout if entry.name.startswith("blobs/sha256/") and entry.isfile()]
        for blob in blobs:
            content = layout.extractfile(blob).read()
            assert hashlib.sha256(content).hexdigest() == blob.name.rsplit("/", 1)[1]
        assert len(blobs) >= 3

    call("DELETE", "/images/example.org%2Fgreeting:1", expect=204)
    assert "example.org/greeting:1" not in names(call)
    call("DELETE", "/images/example.org/greeting:1", expect=404)
    # What a sandbox stands on stays until the sandbox is gone.
    call("POST", "/images/prune")
    assert imported in {image["id"] for image in call("GET", "/images")["items"]}
    call("DELETE", f"/sandboxes/{sandbox['id']}", expect=204)

    # The archive carries its name along.
    [again] = call("POST", "/images/import", archive)["ids"]
    assert names(call)["example.org/greeting:1"]["id"] == again
    call("DELETE", f"/images/{again}", expect=204)
    gone = call("POST", "/images/prune")
    assert again not in {image["id"] for image in call("GET", "/images")["items"]}, gone
    assert gone["images"] >= 1 and gone["bytes"] > 0
    assert call("GET", "/images")["usage"]["layersBytes"] >= 0


def test_what_is_no_image_is_refused(call):
    refused = call("POST", "/images/import?name=example.org/bad:1", b"\x1f\x8bnot an archive", expect=400)
    assert refused["code"] == "IMAGE::INVALID"
    assert call("POST", "/images/import", rootfs(), expect=400)["message"]


def test_volumes_are_made_shown_with_their_users_and_removed(call):
    made = call("POST", "/volumes", {"name": "shelf"}, expect=201)
    assert made["users"] == [] and made["createdAt"]
    mount = {"name": "v", "mountPath": "/mnt", "pvc": {"claimName": "shelf"}}
    sandbox = call("POST", "/sandboxes", {
        "image": {"uri": "host"}, "resourceLimits": {"cpu": "1"}, "timeout": 60,
        "entrypoint": ["tail", "-f", "/dev/null"], "volumes": [mount]}, expect=202)
    [shelf] = [volume for volume in call("GET", "/volumes")["items"] if volume["name"] == "shelf"]
    assert shelf["users"] == [sandbox["id"]]
    assert call("DELETE", "/volumes/shelf", expect=409)["code"] == "VOLUME::IN_USE"
    call("DELETE", f"/sandboxes/{sandbox['id']}", expect=204)
    call("DELETE", "/volumes/shelf", expect=204)
    assert call("DELETE", "/volumes/shelf", expect=404)["code"] == "VOLUME::NOT_FOUND"
    call("POST", "/volumes", {"name": "../shelf"}, expect=400)
