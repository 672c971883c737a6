"""The results of functions in the formats of the providers."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from palimpsest import Palimpsest
from palimpsest._formats import Format, ToolCall, result_of
from palimpsest.anthropic import ManagedMessages
from palimpsest.openai import ManagedCompletions, ManagedResponses
from world import ANSWER, ANTHROPIC_TOOL, CHAT_TOOL, PNG, RESPONSES_TOOL, Provider

FORMATS: list[Format] = ["anthropic_messages", "openai_chat", "openai_responses"]
# Values that are no content of a result in any format. Objects of the last ones have types of blocks.
DATA: list[Any] = [
    [],
    [1, 2],
    ["a", "b"],
    [["a"]],
    [None],
    [{"id": 1}],
    [{"type": "unknown", "text": "x"}],
    [{"type": "file", "name": "a.txt"}],
    [{"type": "document", "source": "a.pdf"}, {"type": "image", "url": "a.png"}],
    [{"type": ["text"], "text": "x"}],
    [{"type": "text"}, {"type": "input_text"}],
    {"a": 1},
    ({"type": "text", "text": "x"},),
    7,
    None,
    True,
]
CONTENT: dict[Format, list[Any]] = {
    "anthropic_messages": [
        {"type": "text", "text": "x"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
        {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]},
    ],
    "openai_chat": [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ],
    "openai_responses": [
        {"type": "input_text", "text": "x"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "input_file", "file_id": "file_1"},
    ],
}


def content_of(format_: Format, output: Any) -> Any:
    result = result_of(ToolCall(format_, "c1", "f", {}, {}), output)
    return result["output" if format_ == "openai_responses" else "content"]


@pytest.mark.parametrize("format_", FORMATS)
def test_data_becomes_json_text(format_: Format) -> None:
    for data in DATA:
        text = content_of(format_, data)
        assert isinstance(text, str), data
        assert json.loads(text) == json.loads(json.dumps(data))
    assert content_of(format_, "x") == "x"


@pytest.mark.parametrize("format_", FORMATS)
def test_content_blocks_of_the_api_stay(format_: Format) -> None:
    assert content_of(format_, CONTENT[format_]) == CONTENT[format_]
    # One element that is no block makes the list data.
    assert isinstance(content_of(format_, [*CONTENT[format_], {"id": 1}]), str)
    other = CONTENT["anthropic_messages" if format_ == "openai_responses" else "openai_responses"]
    assert isinstance(content_of(format_, other), str)


def outputs() -> Any:
    """Returns a function that returns another value with each call."""
    values = iter(DATA)
    return lambda: next(values)


def check(provider: Provider, model: str, run: Any) -> None:
    provider.script(model, *[{"calls": [{"name": "read_log"}]} for _ in DATA], {"text": ANSWER})
    run({"read_log": outputs()})
    assert [it["status"] for it in provider.requests(model)] == [200] * (len(DATA) + 1)


def test_a_run_with_anthropic_continues_after_each_output(
    client: Palimpsest, claude: anthropic.Anthropic, provider: Provider, name: str, model: str
) -> None:
    managed = ManagedMessages(claude.messages, client.session("demo", name))
    body: dict[str, Any] = {"model": model, "max_tokens": 100, "tools": [ANTHROPIC_TOOL]}
    check(provider, model, lambda tools: managed.run(tools, messages=[{"role": "user", "content": "Why?"}], **body))


def test_a_run_with_chat_completions_continues_after_each_output(
    client: Palimpsest, gpt: openai.OpenAI, provider: Provider, name: str, model: str
) -> None:
    managed = ManagedCompletions(gpt.chat.completions, client.session("demo", name))
    body: dict[str, Any] = {"model": model, "tools": [CHAT_TOOL]}
    check(provider, model, lambda tools: managed.run(tools, messages=[{"role": "user", "content": "Why?"}], **body))


def test_a_run_with_responses_continues_after_each_output(
    client: Palimpsest, gpt: openai.OpenAI, provider: Provider, name: str, model: str
) -> None:
    managed = ManagedResponses(gpt.responses, client.session("demo", name))
    body: dict[str, Any] = {"model": model, "tools": [RESPONSES_TOOL], "store": False}
    check(provider, model, lambda tools: managed.run(tools, input="Why?", **body))
