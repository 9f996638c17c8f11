"""Every tool, called by the official client over both transports, against a real server."""

import asyncio
import base64

from conftest import IMAGE, stdio

PNG = base64.b64encode(
    bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
                  "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082")
).decode()


async def test_every_tool(server, transport):
    async with transport(server) as session:
        offered = {tool.name for tool in (await session.raw.list_tools()).tools}
        made = await session.call(
            "sandbox_create", image=IMAGE, timeout_seconds=300, env={"GREETING": "hello"},
            metadata={"suite": "mcp"}, resource={"cpu": "1", "memory": "512Mi"},
            volumes=[{"name": "shared", "mount_path": "/shared", "host_path": str(server.host_paths)}],
        )
        one = made["sandbox_id"]
        assert made["info"]["status"]["state"] == "Running"
        await sandboxes(session, one)
        await commands(session, one)
        await code(session, one)
        await files(session, one)
        await resources(session, one)
        await snapshots(session, one)
        await session.call("sandbox_kill", sandbox_id=one)
        assert "404" in await session.refused("sandbox_get_info", sandbox_id=one)
        assert session.called == offered, f"not called: {offered - session.called}"


async def sandboxes(session, one):
    assert (await session.call("sandbox_connect", sandbox_id=one))["sandbox_id"] == one
    info = await session.call("sandbox_get_info", sandbox_id=one)
    assert info["image"] == {"image": IMAGE} and info["metadata"]["suite"] == "mcp"
    listed = await session.call(
        "sandbox_list", filter={"states": ["running"], "metadata": {"suite": "mcp"}})
    assert one in [info["id"] for info in listed["sandbox_infos"]]
    assert listed["pagination"]["page"] == 1
    renewed = await session.call("sandbox_renew", sandbox_id=one, timeout_seconds=900)
    assert renewed["expires_at"] > info["expires_at"]
    assert (await session.call("sandbox_get_metrics", sandbox_id=one))["memory_total_in_mib"] > 0
    assert (await session.call("sandbox_healthcheck", sandbox_id=one))["healthy"] is True
    endpoint = await session.call("sandbox_get_endpoint", sandbox_id=one, port=8080)
    assert endpoint["endpoint"].endswith("/8080") and endpoint["url"].startswith("http://")
    assert endpoint["headers"]
    # This server has no gateway, and says so; tests/clients/lifecycle/test_gateway.py has one.
    assert "ingress gateway" in await session.refused("sandbox_get_link", sandbox_id=one, port=8080)
    assert (await session.call("sandbox_pause", sandbox_id=one))["status"]["state"] == "Paused"
    assert (await session.call("sandbox_resume", sandbox_id=one))["status"]["state"] == "Running"
    diagnostics = await session.call("sandbox_get_diagnostics", sandbox_id=one, kind="events")
    assert diagnostics["content"]
    assert "no state" in await session.refused("sandbox_list", filter={"states": ["sleepy"]})
    unknown = await session.refused("sandbox_healthcheck", sandbox_id="no-such-sandbox")
    assert "connect_if_missing" in unknown


async def commands(session, one):
    run = await session.call(
        "command_run", sandbox_id=one, command="echo $GREETING $A; cat; pwd >&2; exit 3",
        working_directory="/tmp", env={"A": "b"}, stdin="given\n", timeout_seconds=30)
    assert run["logs"]["stdout"][0]["text"] == "hello b\ngiven\n"
    assert run["logs"]["stderr"][0]["text"] == "/tmp\n"
    assert run["exit_code"] == 3 and run["error"]["value"] == "3" and run["complete"] is None
    late = await session.call("command_run", sandbox_id=one, command="sleep 60", timeout_seconds=0.1)
    assert late["exit_code"] == -1
    long = await session.call("command_run", sandbox_id=one, command="seq 100000")
    assert long["truncated"] and long["logs"]["stdout"][0]["text"].endswith("100000\n")
    text, page = "", {"cursor": 0, "more": True}
    while page["more"]:
        page = await session.call(
            "command_logs", sandbox_id=one, execution_id=long["id"], cursor=page["cursor"])
        text += page["content"]
    assert text == "".join(f"{number}\n" for number in range(1, 100001))
    assert page["exit_code"] == 0
    background = await session.call(
        "command_run", sandbox_id=one, command="echo begun; touch /tmp/begun; exec sleep 600", background=True)
    # An interrupt at once could come before the first word.
    await session.call("command_run", sandbox_id=one, command="until [ -e /tmp/begun ]; do :; done")
    # It has not ended: nobody knows its code.
    assert background["running"] is True
    assert background["exit_code"] is None and background["complete"] is None
    named = {"sandbox_id": one, "execution_id": background["id"]}
    assert (await session.call("command_status", **named))["running"] is True
    listed = await session.call("command_list", sandbox_id=one)
    assert background["id"] in [command["id"] for command in listed["result"]]
    await session.call("command_interrupt", **named)
    ended = await session.call("command_logs", **named)
    assert ended["content"] == "begun\n" and ended["running"] is False


async def code(session, one):
    await session.call("code_run", sandbox_id=one, code="x = 20")
    value = await session.call("code_run", sandbox_id=one, code="print('said'); x + 1")
    assert value["result"][0]["text"] == "21" and value["logs"]["stdout"][0]["text"] == "said\n"
    failed = await session.call("code_run", sandbox_id=one, code="1 / 0")
    assert failed["error"]["name"] == "ZeroDivisionError"
    late = await session.call(
        "code_run", sandbox_id=one, code="import time; time.sleep(60)", timeout_seconds=0.2)
    assert late["error"]
    picture = await session.answer(
        "code_run", sandbox_id=one,
        code=f"class P:\n def _repr_png_(self):\n  import base64; return base64.b64decode('{PNG}')\nP()")
    assert [block.type for block in picture.content] == ["text", "image"], picture.content
    assert picture.content[1].data == PNG and picture.content[1].mime_type == "image/png"
    context = await session.call("code_context_create", sandbox_id=one, language="python")
    own = {"sandbox_id": one, "context_id": context["context_id"]}
    unset = await session.call("code_run", code="x", **own)
    assert unset["error"]["name"] == "NameError"
    listed = await session.call("code_context_list", sandbox_id=one)
    assert context["context_id"] in [found["context_id"] for found in listed["result"]]
    running = asyncio.Event()

    async def progress(done, total, message):
        running.set()

    work = asyncio.create_task(session.raw.call_tool(
        "code_run", {"code": "import time\nwhile True: print('on', flush=True); time.sleep(0.05)", **own},
        progress_callback=progress))
    await asyncio.wait_for(running.wait(), 20)
    await session.call("code_interrupt", **own)
    assert (await work).structured_content["error"]["name"] == "KeyboardInterrupt"
    await session.call("code_context_delete", **own)


async def files(session, one):
    here = {"sandbox_id": one}
    await session.call("file_create_directories", entries=[{"path": "/tmp/m/n", "mode": 700}], **here)
    await session.call("file_write", path="/tmp/m/a.txt", content="alpha\nbeta\n", mode=640, **here)
    assert (await session.call("file_read", path="/tmp/m/a.txt", **here))["content"] == "alpha\nbeta\n"
    part = await session.call("file_read", path="/tmp/m/a.txt", range_header="bytes=0-4", **here)
    assert part["content"] == "alpha"
    line = await session.call("file_read", path="/tmp/m/a.txt", first_line=2, line_count=1, **here)
    assert line["content"].strip() == "beta"
    replaced = await session.call(
        "file_replace_contents",
        entries=[{"path": "/tmp/m/a.txt", "old_content": "alpha", "new_content": "gamma"}], **here)
    assert replaced["result"] == [{"path": "/tmp/m/a.txt", "replaced_count": 1}]
    await session.call(
        "file_move", entries=[{"source": "/tmp/m/a.txt", "destination": "/tmp/m/b.txt"}], **here)
    found = await session.call("file_search", path="/tmp/m", pattern="*.txt", **here)
    assert [(entry["path"], entry["mode"]) for entry in found["result"]] == [("/tmp/m/b.txt", 640)]
    listed = await session.call("file_list_directory", path="/tmp/m", **here)
    assert {(entry["path"], entry["type"]) for entry in listed["result"]} == {
        ("/tmp/m/b.txt", "file"), ("/tmp/m/n", "directory")}
    await session.call("file_write_binary", path="/tmp/m/p.png", content_base64=PNG, **here)
    picture = await session.answer("file_read_binary", path="/tmp/m/p.png", **here)
    assert picture.content[1].data == PNG, picture.content
    raw = base64.b64encode(bytes(range(256))).decode()
    await session.call("file_write_binary", path="/tmp/m/raw", content_base64=raw, **here)
    assert (await session.call("file_read_binary", path="/tmp/m/raw", **here))["content_base64"] == raw
    assert "file_read_binary" in await session.refused("file_read", path="/tmp/m/raw", **here)
    await session.call("file_write", path="/tmp/m/l1", content="ü", encoding="latin-1", **here)
    latin = await session.call("file_read", path="/tmp/m/l1", encoding="latin-1", **here)
    assert latin["content"] == "ü"
    await session.call("file_delete", paths=["/tmp/m/b.txt"], **here)
    assert "/tmp/m/b.txt" in await session.refused("file_read", path="/tmp/m/b.txt", **here)
    await session.call("file_delete_directories", paths=["/tmp/m"], **here)


async def resources(session, one):
    templates = (await session.raw.list_resource_templates()).resource_templates
    assert len(templates) == 3
    listed = (await session.raw.list_resources()).resources
    assert f"sandbox://{one}/logs" in [str(resource.uri) for resource in listed]
    await session.call("file_write", sandbox_id=one, path="/tmp/a b", content="text")
    read = await session.raw.read_resource(f"sandbox://{one}/files/tmp/a%20b")
    assert read.contents[0].text == "text"
    run = await session.call("command_run", sandbox_id=one, command="echo logged")
    read = await session.raw.read_resource(f"sandbox://{one}/commands/{run['id']}/logs")
    assert read.contents[0].text == "logged\n"
    await session.raw.read_resource(f"sandbox://{one}/logs")


async def snapshots(session, one):
    await session.call("file_write", sandbox_id=one, path="/root/kept", content="kept")
    kept = await session.call("snapshot_create", sandbox_id=one, name="before")
    assert kept["state"] == "Ready"
    listed = await session.call("snapshot_list", sandbox_id=one)
    assert [found["snapshot_id"] for found in listed["result"]] == [kept["snapshot_id"]]
    restored = await session.call("sandbox_restore", snapshot_id=kept["snapshot_id"])
    again = restored["sandbox_id"]
    read = await session.call("file_read", sandbox_id=again, path="/root/kept")
    assert read["content"] == "kept"
    await session.call("sandbox_kill", sandbox_id=again)
    await session.call("snapshot_delete", snapshot_id=kept["snapshot_id"])


async def test_progress_and_cancellation(server, transport):
    async with transport(server) as session:
        one = (await session.call("sandbox_create", image=IMAGE))["sandbox_id"]
        told, running = [], asyncio.Event()

        async def progress(done, total, message):
            told.append((done, message))
            running.set()

        command = "echo $$ > /tmp/pid; while :; do echo alive; read -t 0.1 x <> <(:); done"
        work = asyncio.create_task(session.raw.call_tool(
            "command_run", {"sandbox_id": one, "command": f"exec bash -c '{command}'"},
            progress_callback=progress))
        await asyncio.wait_for(running.wait(), 20)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert told[0][1] == "alive", told
        # The command is gone: the server interrupted it when the client left the call.
        gone = await session.call(
            "command_run", sandbox_id=one, timeout_seconds=20,
            command="tail --pid=$(cat /tmp/pid) -f /dev/null; echo gone")
        assert gone["logs"]["stdout"][0]["text"] == "gone\n", gone
        await session.call("sandbox_kill", sandbox_id=one)


async def test_answers_are_what_a_model_needs_to_read(server):
    async with stdio(server) as session:
        made = await session.answer("sandbox_create", image=IMAGE)
        one = made.structured_content["sandbox_id"]
        assert one in made.content[0].text and len(made.content[0].text) < 200, made.content

        async def read(tool, **arguments):
            return (await session.answer(tool, sandbox_id=one, **arguments)).content[0].text

        assert await read("code_run", code="sum(range(10))") == "45"
        assert await read("command_run", command="echo out") == "out"
        assert await read("command_run", command="true") == "done; it printed nothing"
        failed = await read("command_run", command="echo out; echo err >&2; exit 3")
        assert failed == "out\nstderr: err\nexit code 3"
        assert "ZeroDivisionError" in await read("code_run", code="1 / 0")
        begun = await read("command_run", command="exec sleep 600", background=True)
        assert begun.startswith("running in the background, execution_id ")
        execution = begun.split()[5].rstrip(";")
        assert "still running" in await read("command_logs", execution_id=execution)
        assert "exit" not in begun
        await session.call("file_write", sandbox_id=one, path="/tmp/f", content="a\nb\n")
        assert await read("file_read", path="/tmp/f") == "a\nb\n"
        await session.call("sandbox_kill", sandbox_id=one)


async def test_wrong_arguments_are_told(server):
    async with stdio(server) as session:
        missing = await session.refused("command_run", sandbox_id="x")
        assert "command" in missing
        wrong = await session.refused("sandbox_create", image=IMAGE, timeout_seconds="long")
        assert "timeout_seconds" in wrong or "invalid type" in wrong
        half = await session.refused("sandbox_create", image=IMAGE, auth_username="me")
        assert "auth_password" in half
