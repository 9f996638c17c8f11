"""langchain-opensandbox as published, with LangChain's own suite for sandboxes."""

import pytest
from conftest import IMAGE
from langchain_opensandbox import OpenSandboxSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests
from opensandbox.sync import SandboxSync

PATH = {"PATH": "/opt/names:/usr/local/bin:/usr/bin:/bin"}
# It puts a line end between the pieces of output, which have their own since SDK 1.0 and are pieces of a line where
# a line is long; and it has one error for every upload and download that fails.
DOUBLED = "line ends are added to output that has them"
ONE_ERROR = "a relative path is told as another error"
KNOWN = {
    "test_write_new_file": DOUBLED, "test_write_special_characters": DOUBLED, "test_write_unicode_content": DOUBLED,
    "test_read_binary_file_100_kib": DOUBLED, "test_aread_binary_file_100_kib": DOUBLED,
    "test_awrite_aread_large_text_payload": DOUBLED,
    "test_download_error_invalid_path_relative": ONE_ERROR, "test_upload_relative_path_returns_invalid_path": ONE_ERROR,
}


class TestOpenSandbox(SandboxIntegrationTests):
    @pytest.fixture(autouse=True)
    def known(self, request):
        if reason := KNOWN.get(request.node.originalname):
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture(scope="class")
    def sandbox(self, connection):
        sandbox = SandboxSync.create(IMAGE, env=PATH, resource={"cpu": "1", "memory": "512Mi"})
        # The suite calls the program by this name, which Debian has not, and /usr is the machine's.
        sandbox.commands.run("mkdir -p /opt/names && ln -s /usr/bin/python3 /opt/names/python")
        yield OpenSandboxSandbox(sandbox=sandbox)
        sandbox.kill()
        sandbox.close()
