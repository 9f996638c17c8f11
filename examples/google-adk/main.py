"""An agent of google-adk whose hands are a sandbox: google-adk's own `OpenSandboxEnvironment`, and tools made of it.

With GOOGLE_API_KEY set the model is Gemini (ADK_MODEL); without, a scripted one that asks for two tools in turn.

Prints:
    run_command: 42
    read_text: six times seven
    answer: the sandbox computed 42 and the file says six times seven
"""

import asyncio
import os

from google.adk.agents import LlmAgent
from google.adk.integrations.opensandbox import OpenSandboxEnvironment
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

TASK = "Compute six times seven with a command, write how you did to notes.txt and read it back."
CALLS = [("run_command", {"command": "printf 'six times seven' > notes.txt; echo $((6 * 7))"}),
         ("read_text", {"path": "notes.txt"})]


class Scripted(BaseLlm):
    """Asks for the calls above, one after the other, and then says what they gave."""

    async def generate_content_async(self, llm_request, stream=False):
        given = [part.function_response.response["result"] for content in llm_request.contents
                 for part in content.parts if part.function_response]
        if len(given) < len(CALLS):
            name, arguments = CALLS[len(given)]
            part = types.Part(function_call=types.FunctionCall(name=name, args=arguments))
        else:
            part = types.Part(text=f"the sandbox computed {given[0]} and the file says {given[1]}")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main():
    environment = OpenSandboxEnvironment(image=os.environ.get("SANDBOX_IMAGE", "host"))
    await environment.initialize()

    async def run_command(command: str) -> str:
        """Runs a shell command in the sandbox and returns its output."""
        done = await environment.execute(command, timeout=60)
        return (done.stdout + done.stderr).strip()

    async def read_text(path: str) -> str:
        """Reads a text file of the sandbox."""
        return (await environment.read_file(path)).decode()

    model = os.environ.get("ADK_MODEL", "gemini-2.5-flash") if os.environ.get("GOOGLE_API_KEY") else Scripted(model="scripted")
    agent = LlmAgent(name="worker", model=model, instruction="You work in a sandbox.", tools=[run_command, read_text])
    try:
        runner = InMemoryRunner(agent=agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="somebody")
        message = types.Content(role="user", parts=[types.Part(text=TASK)])
        async for event in runner.run_async(user_id="somebody", session_id=session.id, new_message=message):
            for part in event.content.parts if event.content else []:
                if part.function_response:
                    print(f"{part.function_response.name}: {part.function_response.response['result']}")
                elif part.text:
                    print(f"answer: {part.text}")
    finally:
        await environment.close()


asyncio.run(main())
