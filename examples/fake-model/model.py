"""A model that is none: it answers agents in the protocols of four vendors, on loopback, without a key.

To the first request that offers a shell it answers with one call of it, and to what the shell said with a sentence.
So an agent really does something, and what it does is the same every time. Only for tests and examples.

    python3 model.py [PORT [COMMAND]]        prints "listening" when it is
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
COMMAND = sys.argv[2] if len(sys.argv) > 2 else "echo written by the agent | tee agent.txt"
# What agents call the tool that runs a command.
SHELLS = ("bash", "shell", "shell_command", "exec_command", "local_shell", "run_shell_command")


def call(tools):
    """Name and arguments of a call of the shell among these tools (name: schema), if one is there."""
    for name, schema in tools.items():
        if name.lower() in SHELLS:
            known = (schema or {}).get("properties", {})
            arguments = {key: "run a command" for key in (schema or {}).get("required", [])
                         if known.get(key, {}).get("type") == "string"}
            key = "cmd" if "cmd" in known else "command"
            is_list = known.get(key, {}).get("type") == "array"
            return name, {**arguments, key: ["bash", "-lc", COMMAND] if is_list else COMMAND}
    return None


def sentence(said):
    """What a model would say of what its tool said: agents put words of their own around it, most with a colon."""
    lines = [line.strip() for line in (said[-1] if said else "nothing").split("Output:")[-1].splitlines()]
    return f"The command said: {next((line for line in lines if line and ': ' not in line), 'nothing')}"


def texts(value):
    """All texts below a value, joined."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return texts(value.get("text") or value.get("content") or value.get("output") or "")
    return "".join(texts(each) for each in value) if isinstance(value, list) else ""


def anthropic(path, body):
    """/v1/messages"""
    said = [texts(part.get("content")) for message in body["messages"] if isinstance(message["content"], list)
            for part in message["content"] if part.get("type") == "tool_result"]
    wanted = None if said else call({tool["name"]: tool.get("input_schema") for tool in body.get("tools", [])})
    if wanted:
        block = {"type": "tool_use", "id": "toolu_1", "name": wanted[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(wanted[1])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": sentence(said)}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", ""), "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}
    if not body.get("stream"):
        whole = {**block, "input": wanted[1]} if wanted else {**block, "text": delta["text"]}
        return None, {**message, "content": [whole], "stop_reason": "tool_use" if wanted else "end_turn"}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if wanted else "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [(event["type"], event) for event in events], None


def responses(path, body):
    """/v1/responses"""
    said = [texts(item.get("output")) for item in body["input"] if item.get("type", "").endswith("_output")]
    tools = {tool["name"]: tool.get("parameters") for tool in body.get("tools", []) if "name" in tool}
    wanted = None if said else call(tools)
    if wanted:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": wanted[0],
                "arguments": json.dumps(wanted[1])}
    else:
        text = sentence(said)
        item = {"type": "message", "id": "msg_1", "role": "assistant",
                "content": [{"type": "output_text", "text": text, "annotations": []}]}
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
             "total_tokens": 2}
    done = {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}
    events = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]
    return [(event["type"], event) for event in events], None


def gemini(path, body):
    """/v1beta/models/NAME:streamGenerateContent"""
    parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
    said = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    tools = {each["name"]: each.get("parametersJsonSchema") or each.get("parameters")
             for tool in body.get("tools", []) for each in tool.get("functionDeclarations", [])}
    wanted = None if said else call(tools)
    schema = body.get("generationConfig", {}).get("responseJsonSchema")
    if schema:
        # Which model a request is for is asked of a model.
        part = {"text": json.dumps({name: 1 if each["type"] == "INTEGER" else "" for name, each in
                                    schema["properties"].items()})}
    elif wanted:
        part = {"functionCall": {"name": wanted[0], "args": wanted[1]}}
    else:
        part = {"text": sentence([texts(each) for each in said])}
    answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
    return ([(None, answer)], None) if "stream" in path else (None, answer)


def chat(path, body):
    """/v1/chat/completions"""
    said = [texts(message.get("content")) for message in body["messages"] if message["role"] == "tool"]
    tools = {tool["function"]["name"]: tool["function"].get("parameters") for tool in body.get("tools") or []}
    wanted = None if said else call(tools)
    if wanted:
        function = {"name": wanted[0], "arguments": json.dumps(wanted[1])}
        message = {"role": "assistant", "content": None,
                   "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
    else:
        message = {"role": "assistant", "content": sentence(said)}
    finish, usage = "tool_calls" if wanted else "stop", {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    whole = {"id": "chat_1", "created": 1, "model": body.get("model", "")}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return None, {**whole, "object": "chat.completion", "choices": [choice], "usage": usage}
    pieces = [{"delta": message, "finish_reason": None}, {"delta": {}, "finish_reason": finish}]
    chunks = [{**whole, "object": "chat.completion.chunk", "choices": [{"index": 0, **piece}]} for piece in pieces]
    return [(None, chunk) for chunk in [*chunks, {**chunks[1], "choices": [], "usage": usage}]] + [(None, None)], None


ROUTES = {"/messages": anthropic, "/responses": responses, "GenerateContent": gemini, "generateContent": gemini,
          "/completions": chat}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        route = next((ROUTES[end] for end in ROUTES if self.path.split("?")[0].endswith(end)), None)
        if route is None:
            # Counting tokens, telemetry: agents ask for more than answers.
            return self.answer(b"{}", "application/json")
        events, whole = route(self.path, body)
        if events is None:
            return self.answer(json.dumps(whole).encode(), "application/json")
        lines = "".join(f"event: {name}\n" * bool(name) + f"data: {json.dumps(event) if event else '[DONE]'}\n\n"
                        for name, event in events)
        return self.answer(lines.encode(), "text/event-stream")

    def do_GET(self):
        self.answer(b'{"data": [], "models": []}', "application/json")

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print("listening", flush=True)
server.serve_forever()
