"""What an agent may not do is refused before anything happens, and the message says the limit."""

from conftest import IMAGE, stdio

LIMITS = [
    "--allow-image", IMAGE, "--max-resource", "memory=256Mi", "--max-resource", "cpu=1",
    "--max-lifetime", "120", "--max-sandboxes", "1", "--no-network", "--no-volumes",
    "--own-sandboxes-only",
]


async def test_limits(server):
    async with stdio(server) as free, stdio(server, *LIMITS) as bound:
        foreign = (await free.call("sandbox_create", image=IMAGE))["sandbox_id"]
        kept = (await free.call("snapshot_create", sandbox_id=foreign))["snapshot_id"]
        right = {"image": IMAGE, "timeout_seconds": 120, "resource": {"memory": "128Mi"}}

        async def refused(**change):
            return await bound.refused("sandbox_create", **{**right, **change})

        assert "not allowed" in await refused(image="somewhere/else:1")
        assert "120 seconds" in await refused(timeout_seconds=121)
        assert "256Mi" in await refused(resource={"memory": "1Gi"})
        assert "network" in await refused(network_policy={"defaultAction": "allow"})
        volume = {"name": "v", "mount_path": "/v", "host_path": str(server.host_paths)}
        assert "volumes" in await refused(volumes=[volume])

        own = (await bound.call("sandbox_create", **right))["sandbox_id"]
        assert "1 sandboxes" in await refused()
        assert "120 seconds" in await bound.refused("sandbox_renew", sandbox_id=own, timeout_seconds=999)
        links = await bound.call("command_run", sandbox_id=own, command="ls /sys/class/net; cat /proc/net/route")
        reach = await bound.call(
            "command_run", sandbox_id=own, timeout_seconds=20,
            command="timeout 2 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' && echo reached")
        assert reach["exit_code"] != 0, (reach, links)

        for tool in ("sandbox_get_info", "sandbox_connect", "sandbox_kill", "sandbox_pause", "snapshot_create"):
            assert "not made here" in await bound.refused(tool, sandbox_id=foreign), tool
        assert "not made here" in await bound.refused(
            "command_run", sandbox_id=foreign, command="id", connect_if_missing=True)
        assert "not made here" in await bound.refused("sandbox_restore", snapshot_id=kept)
        assert "not made here" in await bound.refused("snapshot_delete", snapshot_id=kept)
        listed = await bound.call("sandbox_list")
        assert [info["id"] for info in listed["sandbox_infos"]] == [own]

        await bound.call("sandbox_kill", sandbox_id=own)
        again = await bound.call("sandbox_create", **right)
        await bound.call("sandbox_kill", sandbox_id=again["sandbox_id"])
        await free.call("sandbox_kill", sandbox_id=foreign)
        await free.call("snapshot_delete", snapshot_id=kept)


async def test_limits_from_a_file(server, tmp_path):
    file = tmp_path / "limits.toml"
    file.write_text('allow_image = ["nothing/*"]\nmax_resource = { cpu = "1" }\n')
    async with stdio(server, "--limits", str(file)) as session:
        assert "nothing/*" in await session.refused("sandbox_create", image=IMAGE)
