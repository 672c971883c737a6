"""A complete agent on Palimpsest with the SDK of Anthropic. See ../../README.md."""

import json
import os
import sys

import anthropic
import grpc
from palimpsest.context.v1 import context_service_pb2 as rpc
from palimpsest.context.v1 import message_pb2 as say
from palimpsest.context.v1.context_service_pb2_grpc import ContextServiceStub

SESSION = os.environ.get("PALIMPSEST_SESSION", "projects/demo/sessions/agent")
MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
TOOLS = [{"name": "read_log", "description": "Reads the build's log.", "input_schema": {"type": "object"}}]


def read_log():
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def as_input(message):
    """Wraps an Anthropic message or response without changes."""
    payload = say.Payload(format=say.FORMAT_ANTHROPIC_MESSAGES, json=json.dumps(message).encode())
    return say.MessageInput(payload=payload)


def result_of(palimpsest, call):
    """Runs a tool. Palimpsest replaces a large result by a preview and a reference."""
    content = say.ToolResultContent(text=read_log())
    request = rpc.PersistToolResultRequest(
        session=SESSION, call=say.CallRef(tool_use_id=call.id), tool_name=call.name, content=content
    )
    stored = palimpsest.PersistToolResult(request)
    shown = stored.replacement if stored.HasField("replacement") else content
    return {"type": "tool_result", "tool_use_id": call.id, "content": shown.text}


def own_tools(palimpsest):
    """Returns the tools of Palimpsest. The model reads removed content with them."""
    request = rpc.ListToolsRequest(session=SESSION, format=say.FORMAT_ANTHROPIC_MESSAGES)
    return {tool.name: json.loads(tool.definition_json) for tool in palimpsest.ListTools(request).tools}


def answer_of(palimpsest, own, call):
    """Answers a tool call. Palimpsest runs its own tools, this program runs all others."""
    if call.name not in own:
        return result_of(palimpsest, call)
    tool_use = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
    payload = say.Payload(format=say.FORMAT_ANTHROPIC_MESSAGES, json=json.dumps(tool_use).encode())
    return json.loads(palimpsest.CallTool(rpc.CallToolRequest(session=SESSION, payload=payload)).tool_result_json)


def main(text):
    palimpsest = ContextServiceStub(
        grpc.insecure_channel(os.environ.get("PALIMPSEST_ADDRESS", "127.0.0.1:50051"))
    )
    model = anthropic.Anthropic()
    own = own_tools(palimpsest)
    tools = TOOLS + list(own.values())
    array, etag, new = [], b"", [{"role": "user", "content": text}]
    while True:
        request = rpc.PrepareContextRequest(
            session=SESSION, known_etag=etag, messages=[as_input(message) for message in new]
        )
        view = palimpsest.PrepareContext(request)
        array = array[: view.keep_messages] + [json.loads(message) for message in view.messages_json]
        etag = view.etag
        response = model.messages.create(model=MODEL, max_tokens=1_024, messages=array, tools=tools)
        # Appends the complete response. Palimpsest reads its usage, so token counts are exact afterwards.
        answer = as_input(response.to_dict())
        palimpsest.AppendMessages(rpc.AppendMessagesRequest(session=SESSION, messages=[answer]))
        if response.stop_reason != "tool_use":
            return "".join(block.text for block in response.content if block.type == "text")
        calls = [block for block in response.content if block.type == "tool_use"]
        new = [{"role": "user", "content": [answer_of(palimpsest, own, call) for call in calls]}]


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
