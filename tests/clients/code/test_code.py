"""What people do with the code interpreter, in every language that needs no kernel."""

import asyncio
import base64
import struct
import threading
import zlib

import pytest
from conftest import done, texts
from opensandbox.models.execd import ExecutionHandlers
from opensandbox.models.execd_sync import ExecutionHandlersSync

LANGUAGES = ["python", "bash", "javascript", "typescript"]

# Sets x, then shows it plus one, on standard output.
STATE = {
    "python": ("x = {}", "print(x + 1)"),
    "bash": ("x={}", "echo $((x + 1))"),
    "javascript": ("let x = {}", "console.log(x + 1)"),
    "typescript": ("let x: number = {}", "console.log((x as number) + 1)"),
}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_state_stays_and_contexts_are_apart(interpreter, language):
    first, second = await interpreter.context(language), await interpreter.context(language)
    put, show = STATE[language]
    for context, value in ((first, 1), (second, 41)):
        assert (await interpreter.run(put.format(value), context=context)).error is None
    for context, value in ((first, "2"), (second, "42")):
        ran = await interpreter.run(show, context=context)
        assert texts(ran.logs.stdout).strip() == value


@pytest.mark.parametrize(
    "language, code, text",
    [("python", "6 * 7", "42"), ("javascript", "6 * 7", "42"), ("typescript", "(6 as number) * 7", "42")],
)
async def test_the_last_expression_is_the_result(interpreter, language, code, text):
    ran = await interpreter.run(code, language=language)
    assert [result.text for result in ran.result] == [text]
    assert ran.error is None and ran.id


@pytest.mark.parametrize(
    "language, code, name",
    [
        ("python", "nope", "NameError"),
        ("python", "x = = 1", "SyntaxError"),
        ("javascript", "nope", "ReferenceError"),
        ("typescript", "null!.x", "TypeError"),
        ("bash", "(exit 3)", "CommandExecError"),
    ],
)
async def test_errors_have_names_and_the_next_run_works(interpreter, language, code, name):
    context = await interpreter.context(language)
    ran = await interpreter.run(code, context=context)
    assert ran.error.name == name
    assert ran.error.traceback
    put, show = STATE[language]
    await interpreter.run(put.format(1), context=context)
    assert texts((await interpreter.run(show, context=context)).logs.stdout).strip() == "2"


async def test_output_is_seen_as_it_appears(interpreter):
    seen = []

    def hear(message):
        seen.append(message.text)

    async def hear_async(message):
        hear(message)

    handlers = (
        ExecutionHandlers(on_stdout=hear_async, on_stderr=hear_async)
        if interpreter.flavour == "async"
        else ExecutionHandlersSync(on_stdout=hear, on_stderr=hear)
    )
    code = "import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')"
    ran = await interpreter.run(code, language="python", handlers=handlers)
    assert sorted("".join(seen).split()) == ["one", "three", "two"]
    assert texts(ran.logs.stdout) == "one\nthree\n"
    assert texts(ran.logs.stderr) == "two\n"


ENDLESS = {
    "python": "print('up')\nwhile True: pass",
    "bash": "echo up; sleep 1000",
    "javascript": "console.log('up'); for (;;) {}",
    "typescript": "console.log('up'); await new Promise<void>(() => {})",
}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_interrupt_ends_the_run_and_keeps_the_state(interpreter, language):
    context = await interpreter.context(language)
    put, show = STATE[language]
    await interpreter.run(put.format(6), context=context)
    if interpreter.flavour == "async":
        execution = asyncio.get_running_loop().create_future()
        up = asyncio.Event()

        async def on_init(init):
            execution.set_result(init.id)

        async def on_stdout(message):
            up.set()

        handlers = ExecutionHandlers(on_init=on_init, on_stdout=on_stdout)
        run = asyncio.create_task(interpreter.run(ENDLESS[language], context=context, handlers=handlers))
        await asyncio.wait_for(up.wait(), 60)
        await interpreter.codes.interrupt(await execution)
        ran = await asyncio.wait_for(run, 60)
    else:
        began, up = [], threading.Event()
        handlers = ExecutionHandlersSync(
            on_init=lambda init: began.append(init.id), on_stdout=lambda message: up.set()
        )
        run = asyncio.create_task(
            asyncio.to_thread(interpreter.codes.run, ENDLESS[language], context=context, handlers=handlers)
        )
        assert await asyncio.to_thread(up.wait, 60)
        await asyncio.to_thread(interpreter.codes.interrupt, began[0])
        ran = await asyncio.wait_for(run, 60)
    assert ran.error is not None
    assert texts((await interpreter.run(show, context=context)).logs.stdout).strip() == "7"


async def test_contexts_run_at_the_same_time(interpreter):
    """Each waits for a file that only another one writes."""
    count = 4
    contexts = [await interpreter.context("python") for _ in range(count)]
    place = f"/tmp/ring-{contexts[0].id}"
    code = (
        "import os\nos.makedirs('{place}', exist_ok=True)\n"
        "open('{place}/{mine}', 'w').close()\n"
        "while not os.path.exists('{place}/{other}'): pass\n'met'"
    )
    codes = [code.format(place=place, mine=n, other=(n + 1) % count) for n in range(count)]
    if interpreter.flavour == "async":
        runs = [interpreter.codes.run(c, context=x) for c, x in zip(codes, contexts)]
    else:
        runs = [asyncio.to_thread(interpreter.codes.run, c, context=x) for c, x in zip(codes, contexts)]
    for ran in await asyncio.gather(*runs):
        assert ran.result[0].text == "'met'"


async def test_runs_in_one_context_wait_for_each_other(interpreter):
    context = await interpreter.context("python")
    await interpreter.run("n = 0", context=context)
    if interpreter.flavour == "async":
        runs = [interpreter.codes.run("n += 1", context=context) for _ in range(8)]
    else:
        runs = [asyncio.to_thread(interpreter.codes.run, "n += 1", context=context) for _ in range(8)]
    assert all(ran.error is None for ran in await asyncio.gather(*runs))
    assert (await interpreter.run("n", context=context)).result[0].text == "8"


async def test_contexts_are_found_listed_and_deleted(interpreter):
    from opensandbox.exceptions import SandboxApiException

    first, second = await interpreter.context("bash"), await interpreter.context("bash")
    assert first.language == "bash" and first.id != second.id
    assert (await done(interpreter.codes.get_context(first.id))).id == first.id
    listed = {context.id for context in await done(interpreter.codes.list_contexts("bash"))}
    assert {first.id, second.id} <= listed
    await done(interpreter.codes.delete_context(first.id))
    with pytest.raises(SandboxApiException) as gone:
        await done(interpreter.codes.get_context(first.id))
    assert gone.value.status_code == 404
    await done(interpreter.codes.delete_contexts("bash"))
    assert await done(interpreter.codes.list_contexts("bash")) == []


async def test_an_unknown_language_is_refused(interpreter):
    from opensandbox.exceptions import SandboxApiException

    with pytest.raises(SandboxApiException) as refused:
        await interpreter.context("cobol")
    assert refused.value.status_code == 400


async def raw_results(interpreter, context, code):
    """The client keeps only the text of a result; the whole is in the stream it reads."""
    import httpx

    endpoint = await done(interpreter.client.sandbox.get_endpoint(44772))
    headers = dict(getattr(endpoint, "headers", None) or {})
    body = {"context": {"id": context.id}, "code": code}
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"http://{endpoint.endpoint}/code", json=body, headers=headers)
    import json

    events = [json.loads(line) for line in answer.text.split("\n\n") if line.strip()]
    errors = [event["error"] for event in events if event["type"] == "error"]
    assert not errors, errors
    return [event["results"] for event in events if event["type"] == "result"]


def picture_size(png):
    """Width and height of a PNG whose parts all have their right checksums."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds, pixels = 8, [], b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack(">I", png[at + 8 + size : at + 12 + size])
        assert zlib.crc32(kind + data) == checksum, kind
        kinds.append(kind)
        pixels += data if kind == b"IDAT" else b""
        at += 12 + size
    assert kinds[0] == b"IHDR" and kinds[-1] == b"IEND"
    assert len(zlib.decompress(pixels)) > 0
    return struct.unpack(">II", png[16:24])


async def test_figures_are_pictures_and_tables_are_html(interpreter):
    context = await interpreter.context("python")
    found = await interpreter.run("import sys; sys.path.append('/science')", context=context)
    assert found.error is None
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.title('three')\n{}"
    for end in ("plt.show()", "plt.gcf()", ""):
        results = await raw_results(interpreter, context, figure.format(end))
        pictures = [result["image/png"] for result in results if "image/png" in result]
        assert len(pictures) == 1, end
        width, height = picture_size(base64.b64decode(pictures[0]))
        assert width > 100 and height > 100
    table = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"
    (result,) = await raw_results(interpreter, context, table)
    assert "<table" in result["text/html"] and "<td>y</td>" in result["text/html"]
    assert result["text"] == result["text/plain"] == "   a  b\n0  1  x\n1  2  y"
