"""The SDK's health check and metrics, and what happens without the token."""

import time
from datetime import timedelta

import pytest
from conftest import TOKEN_HEADER, create, done
from lifecycle import Lifecycle
from opensandbox.exceptions import SandboxException


async def test_health(sandbox):
    assert await done(sandbox.sdk.is_healthy()) is True


async def test_metrics_are_immediate_and_sane(sandbox):
    calls, seconds = [await done(sandbox.sdk.get_metrics())], []
    for _ in range(10):
        began = time.monotonic()
        calls.append(await done(sandbox.metrics.get_metrics("the-sandbox")))
        seconds.append(time.monotonic() - began)
    # A machine may be slow at any of them, but not at each.
    assert min(seconds) < 0.9, "every answer takes a second, as if something slept"
    for metrics in calls:
        assert metrics.cpu_count > 0
        assert 0 <= metrics.cpu_used_percentage <= 100
        assert 0 < metrics.memory_used_in_mib <= metrics.memory_total_in_mib
        assert abs(metrics.timestamp / 1000 - time.time()) < 60


@pytest.mark.parametrize("flavour", ["async", "sync"])
async def test_a_wrong_token_is_refused(execd, flavour):
    lifecycle = Lifecycle(f"127.0.0.1:{execd.port}", {TOKEN_HEADER: "wrong"})
    try:
        with pytest.raises(SandboxException):
            # 1.1.1 gives up at once; 0.1.10 asks again until its time is over.
            await create(flavour, lifecycle, ready_timeout=timedelta(seconds=1))
    finally:
        lifecycle.close()
