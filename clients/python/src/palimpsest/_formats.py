"""The request bodies, responses and tool calls of the providers' formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ._json import copied
from .errors import JsonObject

Format = Literal["anthropic_messages", "openai_chat", "openai_responses"]
# The fields of a request body that the service reads.
_READ_FIELDS = ("model", "system", "instructions", "tools", "messages", "input")

# The types of blocks in a tool result, with the fields of which a block has at least one. Objects of a list of data can
# have a `type` too.
_RESULT_BLOCKS: Mapping[Format, Mapping[str, Mapping[str, type]]] = {
    "anthropic_messages": {
        "text": {"text": str},
        "image": {"source": dict},
        "document": {"source": dict},
        "search_result": {"content": list},
        "tool_reference": {"tool_name": str},
        "browser_state": {"tabs": list},
    },
    "openai_chat": {
        "text": {"text": str},
        "image_url": {"image_url": dict},
        "input_audio": {"input_audio": dict},
        "file": {"file": dict},
    },
    "openai_responses": {
        "input_text": {"text": str},
        "input_image": {"image_url": str, "file_id": str},
        "input_file": {"file_data": str, "file_id": str, "file_url": str},
    },
}


@dataclass(frozen=True)
class ToolCall:
    """A tool call of a model. `json` is the call in the format of the provider."""

    format: Format
    id: str
    name: str
    input: JsonObject
    json: JsonObject


def array_field(body: Mapping[str, Any]) -> str:
    """Returns the name of the field with the array."""
    return "messages" if "messages" in body else "input"


def format_of_body(body: Mapping[str, Any], declared: Format | None) -> Format | None:
    """Returns the format of a body. None leaves the detection to the service."""
    if "messages" not in body:
        return "openai_responses"
    return declared if declared != "openai_responses" else "openai_chat"


def read_fields(body: Mapping[str, Any]) -> JsonObject:
    """Returns the part of a body that the service reads."""
    if body.get("previous_response_id") or body.get("conversation"):
        raise ValueError("Send the whole conversation in `input`: remove previous_response_id and conversation.")
    # The SDKs mark an omitted argument with an object of these types.
    is_omitted = {"NotGiven", "Omit", "NoneType"}
    return {name: body[name] for name in _READ_FIELDS if name in body and type(body[name]).__name__ not in is_omitted}


def view_target(body: Mapping[str, Any], body_format: Format | None) -> JsonObject | None:
    """Returns the target of the view, if the body enables thinking: without it, thinking blocks are omitted."""
    thinking = body.get("thinking")
    is_enabled = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
    if not is_enabled or body_format not in (None, "anthropic_messages"):
        return None
    return {"provider": "anthropic", "model": body.get("model", ""), "thinking": True}


def parse_call(call: Any) -> ToolCall:
    """Reads a call of any format: a `tool_use` block, an entry of `tool_calls`, or a `function_call` item."""
    parsed: JsonObject = copied(call)
    kind = parsed.get("type")
    if kind == "tool_use":
        return ToolCall("anthropic_messages", parsed["id"], parsed["name"], parsed["input"], parsed)
    if kind == "function_call":
        arguments = _arguments(parsed["arguments"])
        return ToolCall("openai_responses", parsed["call_id"], parsed["name"], arguments, parsed)
    if "function" in parsed:
        function = parsed["function"]
        return ToolCall("openai_chat", parsed["id"], function["name"], _arguments(function["arguments"]), parsed)
    raise ValueError(f"A {kind} is no tool call of a known format.")


def _arguments(text: str) -> JsonObject:
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


@dataclass(frozen=True)
class Response:
    """A response of a model: its format, its JSON, and the messages and tool calls in it."""

    format: Format
    json: JsonObject
    messages: list[JsonObject]
    calls: list[ToolCall]

    @property
    def is_final(self) -> bool:
        """True if the model has ended its turn: nothing has to be sent back to it."""
        return not self.calls and self.json.get("stop_reason") != "pause_turn"


def parse_response(response: Any) -> Response:
    """Reads a response of any format: an object of an SDK, or its JSON."""
    body: JsonObject = copied(response)
    if "choices" in body:
        message = body["choices"][0]["message"]
        # `parsed` is a field of the SDK, and the API rejects it.
        message.pop("parsed", None)
        calls = [parse_call(call) for call in message.get("tool_calls") or [] if call.get("function")]
        return Response("openai_chat", body, [message], calls)
    if "output" in body:
        output = body["output"]
        calls = [parse_call(item) for item in output if item["type"] == "function_call"]
        return Response("openai_responses", body, output, calls)
    content = body["content"]
    calls = [parse_call(block) for block in content if block["type"] == "tool_use"]
    # A message without content is rejected in a later request.
    messages = [{"role": "assistant", "content": content}] if content else []
    return Response("anthropic_messages", body, messages, calls)


def _is_result_block(value: Any, result_format: Format) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    fields = _RESULT_BLOCKS[result_format].get(kind, {}) if isinstance(kind, str) else {}
    return any(isinstance(value.get(name), field_type) for name, field_type in fields.items())


def result_of(call: ToolCall, output: Any, *, is_error: bool = False) -> JsonObject:
    """Returns the result of a call in its format. Output that is neither text nor content blocks becomes JSON text."""
    content = copied(output)
    # A list of other values would make all later requests of the conversation invalid.
    is_blocks = isinstance(output, list) and output and all(_is_result_block(it, call.format) for it in content)
    if not isinstance(output, str) and not is_blocks:
        content = json.dumps(content, ensure_ascii=False)
    if call.format == "anthropic_messages":
        result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
        return {**result, "is_error": True} if is_error else result
    if call.format == "openai_chat":
        return {"role": "tool", "tool_call_id": call.id, "content": content}
    return {"type": "function_call_output", "call_id": call.id, "output": content}


def new_messages(response: Response, results: list[JsonObject]) -> list[JsonObject]:
    """Returns the messages that follow the request: those of the response, and the results of its calls."""
    if response.format == "anthropic_messages" and results:
        return [*response.messages, {"role": "user", "content": results}]
    return [*response.messages, *results]
