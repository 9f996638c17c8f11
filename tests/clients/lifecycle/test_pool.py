"""The client-side pool: warm sandboxes are handed out, used, and nothing is left."""

from datetime import timedelta

from conftest import API_KEY, IMAGE, done, newer_than_0_1


async def test_a_pool_hands_out_ready_sandboxes(server, client):
    import opensandbox
    from opensandbox.config import ConnectionConfig, ConnectionConfigSync

    is_async = client.flavour == "async"
    if is_async:
        from opensandbox import AsyncSandboxPool as Pool, InMemoryAsyncPoolStateStore as Store
    else:
        from opensandbox import InMemoryPoolStateStore as Store
        Pool = getattr(opensandbox, "SandboxPool", None) or getattr(opensandbox, "SandboxPoolSync")
    spec = opensandbox.PoolCreationSpec(image=IMAGE, resource={"cpu": "1", "memory": "256Mi"})
    options = dict(
        pool_name=f"pool-{client.flavour}", max_idle=2, state_store=Store(), creation_spec=spec,
        connection_config=client.config(),
    )
    if not newer_than_0_1():
        options["reconcile_interval"] = timedelta(seconds=1)
    pool = Pool(**options)
    await done(pool.start())
    try:
        sandbox = await done(pool.acquire(sandbox_timeout=timedelta(minutes=5)))
        out = await done(sandbox.commands.run("echo pooled"))
        assert "pooled" in out.logs.stdout[0].text
        await done(sandbox.kill())
        await done(sandbox.close())
    finally:
        await done(pool.resize(0))
        await done(pool.release_all_idle())
        await done(pool.shutdown())
