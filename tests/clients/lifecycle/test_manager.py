"""SandboxManager: listing, filters, pages, and everything it does to sandboxes and snapshots."""

from datetime import datetime, timedelta, timezone

import pytest
from conftest import done
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SandboxFilter, SnapshotFilter


def items(page):
    return getattr(page, "sandbox_infos", None) or getattr(page, "items", None) or []


@pytest.fixture
async def manager(client):
    manager = await client.manager()
    yield manager
    await done(manager.close())


async def test_list_by_metadata_state_and_page(client, manager):
    mark = f"list-{client.flavour}"
    made = [await client.create(metadata={"mark": mark, "n": str(n)}) for n in range(3)]
    everything = await done(manager.list_sandbox_infos(SandboxFilter(metadata={"mark": mark})))
    assert {info.id for info in items(everything)} == {sandbox.id for sandbox in made}
    newest_first = [info.id for info in items(everything)]
    assert newest_first == [sandbox.id for sandbox in reversed(made)]
    one = await done(manager.list_sandbox_infos(SandboxFilter(metadata={"mark": mark, "n": "1"})))
    assert [info.id for info in items(one)] == [made[1].id]
    page = await done(manager.list_sandbox_infos(SandboxFilter(metadata={"mark": mark}, page=2, page_size=2)))
    assert [info.id for info in items(page)] == [made[0].id]
    assert page.pagination.total_items == 3 and not page.pagination.has_next_page
    await done(made[0].pause())
    paused = await done(manager.list_sandbox_infos(SandboxFilter(metadata={"mark": mark}, states=["Paused"])))
    assert [info.id for info in items(paused)] == [made[0].id]
    none = await done(manager.list_sandbox_infos(SandboxFilter(metadata={"mark": "nobody"})))
    assert items(none) == []


async def test_the_whole_life_through_the_manager(client, manager):
    sandbox = await client.create()
    assert (await done(manager.get_sandbox_info(sandbox.id))).status.state == "Running"
    await done(manager.pause_sandbox(sandbox.id))
    assert (await done(manager.get_sandbox_info(sandbox.id))).status.state == "Paused"
    with pytest.raises(SandboxApiException) as twice:
        await done(manager.pause_sandbox(sandbox.id))
    assert twice.value.status_code == 409
    await done(manager.resume_sandbox(sandbox.id))
    assert (await done(manager.get_sandbox_info(sandbox.id))).status.state == "Running"
    before = datetime.now(timezone.utc)
    renewed = await done(manager.renew_sandbox(sandbox.id, timedelta(minutes=20)))
    assert timedelta(minutes=19) < renewed.expires_at - before < timedelta(minutes=21)
    info = await done(manager.patch_sandbox_metadata(sandbox.id, {"a": "b"}))
    assert info.metadata == {"a": "b"}
    assert (await done(manager.get_diagnostic_events(sandbox.id, "runtime"))).content
    assert (await done(manager.get_diagnostic_logs(sandbox.id, "container"))) is not None
    await done(manager.kill_sandbox(sandbox.id))
    with pytest.raises(SandboxApiException) as gone:
        await done(manager.get_sandbox_info(sandbox.id))
    assert gone.value.status_code == 404


async def test_snapshots_through_the_manager(client, manager):
    sandbox = await client.create()
    snapshot = await done(manager.create_snapshot(sandbox.id, f"named-{client.flavour}"))
    while snapshot.status.state == "Creating":
        snapshot = await done(manager.get_snapshot(snapshot.id))
    assert snapshot.status.state == "Ready" and snapshot.sandbox_id == sandbox.id
    page = await done(manager.list_snapshots(SnapshotFilter(sandbox_id=sandbox.id)))
    listed = getattr(page, "snapshot_infos", None) or getattr(page, "items", None)
    assert [found.id for found in listed] == [snapshot.id]
    await done(manager.delete_snapshot(snapshot.id))
    with pytest.raises(SandboxApiException) as gone:
        await done(manager.get_snapshot(snapshot.id))
    assert gone.value.status_code == 404
