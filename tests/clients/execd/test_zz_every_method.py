"""Runs last: every public method of the SDK's services was called by some test."""

import inspect

import pytest
from conftest import CALLED


def methods(service):
    return {name for name, _ in inspect.getmembers(service, inspect.isroutine) if not name.startswith("_")}


@pytest.mark.parametrize("kind", ["commands", "files", "metrics"])
async def test_every_method_was_called(request, sandbox, kind):
    if request.config.option.keyword or request.config.args != [str(request.config.rootpath)]:
        pytest.skip("only a part of the suite was asked for")
    called = {name for flavour, of, name in CALLED if (flavour, of) == (sandbox.flavour, kind)}
    # What the SDK makes an identity's files from; `files_with_identity` is its public form.
    assert methods(getattr(sandbox, kind).service) - called - {"with_identity"} == set()
