"""The desktop as the computer of the OpenAI Agents SDK: an agent with a scripted model clicks and types in a page."""

import asyncio
import base64
import io

from conftest import KEY
from PIL import Image
from test_browser import box_of, chromium, page, picture, still  # noqa: F401


def test_an_agent_uses_the_desktop(server, browser_sandbox, page):
    from agents import Agent, ComputerTool, Model, ModelResponse, RunConfig, Runner, Usage
    from openai.types.responses import ResponseComputerToolCall, ResponseOutputMessage, ResponseOutputText
    from osb import AsyncClient, AsyncDesktop, Config
    from osb_openai_agents import OsbComputer

    still(browser_sandbox)
    left, top, _, _ = box_of(picture(browser_sandbox)[0], (250, 20, 90))
    steps = [
        {"type": "click", "button": "left", "x": left + 50, "y": top + 250},
        {"type": "type", "text": "typed by the agent"},
        {"type": "keypress", "keys": ["CTRL", "a"]},
        {"type": "screenshot"},
    ]
    seen = []

    class Scripted(Model):
        async def get_response(self, system_instructions, input, *rest, **more):
            seen.extend(item["output"]["image_url"] for item in input[-1:]
                        if isinstance(item, dict) and item.get("type") == "computer_call_output")
            if len(seen) < len(steps):
                item = ResponseComputerToolCall.model_validate({
                    "id": str(len(seen)), "call_id": str(len(seen)), "type": "computer_call", "status": "completed",
                    "action": steps[len(seen)], "pending_safety_checks": []})
            else:
                text = ResponseOutputText(text="done", annotations=[], type="output_text")
                item = ResponseOutputMessage(
                    id="last", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *given, **more):
            raise NotImplementedError

    async def run():
        async with AsyncClient(Config(server, KEY)) as client:
            desktop = AsyncDesktop(client.sandbox(browser_sandbox.sandbox.id))
            agent = Agent(name="worker", model=Scripted(), tools=[ComputerTool(OsbComputer(desktop))])
            return await Runner.run(agent, "type", run_config=RunConfig(tracing_disabled=True))

    # Playwright has a loop of its own in this thread.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(run())).result(timeout=120).final_output == "done"
    assert page.locator("#text").input_value() == "typed by the agent"
    assert page.evaluate("document.getElementById('text').selectionEnd") == len("typed by the agent")
    assert len(seen) == len(steps), "every step was answered with a picture"
    shown = Image.open(io.BytesIO(base64.b64decode(seen[-1].partition(",")[2])))
    assert shown.size == (1280, 800)
