"""Model calls with the SDKs of Anthropic and OpenAI against the strict fake provider."""

from __future__ import annotations

import logging
from typing import Any

import anthropic
import openai
import pytest

from palimpsest import AsyncPalimpsest, NotSendableError, Palimpsest, is_too_long
from palimpsest.anthropic import AsyncManagedMessages, ManagedMessages
from palimpsest.openai import (
    AsyncManagedCompletions,
    AsyncManagedResponses,
    ManagedCompletions,
    ManagedResponses,
)
from world import ANSWER, ANTHROPIC_TOOL, CHAT_TOOL, RESPONSES_TOOL, TURNS, USAGE, Provider, read_log


def question() -> list[Any]:
    return [{"role": "user", "content": "Why did the build fail?"}]


async def read_log_async() -> str:
    return read_log()


def check(provider: Provider, model: str, array: str, messages: list[Any]) -> None:
    """Checks the three requests of a run and the conversation of the agent."""
    requests = provider.requests(model)
    assert [it["status"] for it in requests] == [200, 200, 200]
    sent = [it["body"][array] for it in requests]
    assert "palimpsest://" in str(sent[1])
    assert all(len(str(it)) < 40_000 for it in sent)
    # Only the search of the service has found the last line.
    assert "disk full" not in str(sent[1])
    assert "disk full" in str(sent[2])
    assert str(messages).count("step 4999") >= 3
    assert ANSWER in str(messages[-1])


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_anthropic_run(
    client: Palimpsest, claude: anthropic.Anthropic, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    managed = ManagedMessages(claude.messages, client.session("demo", name), cache_breakpoints=True)
    messages = question()
    response = managed.run(
        {"read_log": read_log}, model=model, max_tokens=100, system="s", messages=messages, tools=[ANTHROPIC_TOOL]
    )
    assert text_of(response) == ANSWER
    check(provider, model, "messages", messages)
    assert "cache_control" in str(provider.requests(model)[2]["body"]["messages"])
    # The usage of each response was sent with the next sync.
    usages = [it["metadata"].get("usage") for it in managed.session.messages() if it["ordinal"] in (2, 4)]
    assert all(usages)


async def test_anthropic_run_async(
    async_client: AsyncPalimpsest, async_claude: anthropic.AsyncAnthropic, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    managed = AsyncManagedMessages(async_claude.messages, async_client.session("demo", name))
    messages = question()
    response = await managed.run(
        {"read_log": read_log_async}, model=model, max_tokens=100, messages=messages, tools=[ANTHROPIC_TOOL]
    )
    assert text_of(response) == ANSWER
    check(provider, model, "messages", messages)


def test_anthropic_stream(
    client: Palimpsest, claude: anthropic.Anthropic, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    context = client.session("demo", name)
    managed = ManagedMessages(claude.messages, context)
    messages, texts = question(), []
    for _ in TURNS:
        with managed.stream(model=model, max_tokens=100, messages=messages, tools=[ANTHROPIC_TOOL]) as stream:
            texts += list(stream.text_stream)
        messages += context.answer(stream.get_final_message(), {"read_log": read_log})
    assert "".join(texts) == "I look." + ANSWER
    check(provider, model, "messages", messages)
    provider.script(model, {"text": "Yes."})
    events = managed.create(model=model, max_tokens=100, messages=[*messages, *question()], stream=True)
    assert "message_stop" in [event.type for event in events]


async def test_anthropic_stream_async(
    async_client: AsyncPalimpsest, async_claude: anthropic.AsyncAnthropic, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    context = async_client.session("demo", name)
    managed = AsyncManagedMessages(async_claude.messages, context)
    messages = question()
    for _ in TURNS:
        async with managed.stream(model=model, max_tokens=100, messages=messages, tools=[ANTHROPIC_TOOL]) as stream:
            response = await stream.get_final_message()
        messages += await context.answer(response, {"read_log": read_log})
    check(provider, model, "messages", messages)


def test_chat_run_and_stream(client: Palimpsest, gpt: openai.OpenAI, provider: Provider, name: str, model: str) -> None:
    provider.script(model, *TURNS)
    context = client.session("demo", name)
    managed = ManagedCompletions(gpt.chat.completions, context)
    messages = [{"role": "system", "content": "Be brief."}, *question()]
    response = managed.run({"read_log": read_log}, model=model, messages=messages, tools=[CHAT_TOOL])
    assert response.choices[0].message.content == ANSWER
    check(provider, model, "messages", messages)
    provider.script(model, {"calls": [{"name": "read_log"}]})
    messages += question()
    with managed.stream(model=model, messages=messages, tools=[CHAT_TOOL]) as stream:
        final = stream.get_final_completion()
    messages += context.answer(final, {"read_log": read_log})
    provider.script(model, {"text": "Again."})
    chunks = managed.create(model=model, messages=messages, tools=[CHAT_TOOL], stream=True)
    assert "".join(it.choices[0].delta.content or "" for it in chunks if it.choices) == "Again."


async def test_chat_run_and_stream_async(
    async_client: AsyncPalimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    managed = AsyncManagedCompletions(async_gpt.chat.completions, async_client.session("demo", name))
    messages = question()
    await managed.run({"read_log": read_log_async}, model=model, messages=messages, tools=[CHAT_TOOL])
    check(provider, model, "messages", messages)
    provider.script(model, {"text": "Again."})
    async with managed.stream(model=model, messages=[*messages, *question()]) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "Again."


def reported(usage: Any) -> int:
    """Returns the tokens of a response with `USAGE`."""
    assert usage
    return int(usage.total_tokens)


def test_a_chat_stream_reports_its_usage(
    client: Palimpsest, gpt: openai.OpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {"text": ANSWER, "usage": USAGE}, {"text": ANSWER, "usage": USAGE})
    context = client.session("demo", name)
    managed = ManagedCompletions(gpt.chat.completions, context)
    messages = question()
    with managed.stream(model=model, messages=messages) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.done" in events
    messages += [*context.answer(final, {}), *question()]
    assert context.sync(model=model, messages=messages).tokens["total_tokens"] >= reported(final.usage) > 70_000
    # The caller decides: some servers with this API reject the field.
    with managed.stream(model=model, messages=messages, stream_options=openai.omit) as stream:
        assert stream.get_final_completion().usage is None


async def test_an_async_chat_stream_reports_its_usage(
    async_client: AsyncPalimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {"text": ANSWER, "usage": USAGE})
    managed = AsyncManagedCompletions(async_gpt.chat.completions, async_client.session("demo", name))
    async with managed.stream(model=model, messages=question()) as stream:
        final = await stream.get_final_completion()
    assert reported(final.usage) > 70_000


@pytest.mark.parametrize("include", [["reasoning.encrypted_content"], []])
def test_reasoning_items_with_their_encrypted_content_stay(
    client: Palimpsest, gpt: openai.OpenAI, provider: Provider, name: str, include: list[str]
) -> None:
    # Other models of the provider do not reason.
    model = f"gpt-5-{name}"
    provider.script(model, {**TURNS[0], "thinking": "Hm."}, TURNS[2])
    managed = ManagedResponses(gpt.responses, client.session("demo", name))
    managed.run({"read_log": read_log}, model=model, input="Why?", tools=[RESPONSES_TOOL], include=include)
    kinds = [it.get("type") for it in provider.requests(model)[1]["body"]["input"]]
    assert kinds.count("reasoning") == len(include)


async def test_a_run_does_not_stream(
    client: Palimpsest, async_client: AsyncPalimpsest, claude: Any, async_gpt: Any, provider: Provider, name: str
) -> None:
    managed = ManagedMessages(claude.messages, client.session("demo", name))
    with pytest.raises(ValueError, match="remove `stream`"):
        managed.run({}, model=name, max_tokens=1, messages=question(), stream=True)
    responses = AsyncManagedResponses(async_gpt.responses, async_client.session("demo", name))
    with pytest.raises(ValueError, match="remove `stream`"):
        await responses.run({}, model=name, input="Why?", stream=True)
    assert provider.requests(name) == []


def test_responses_run_and_stream(
    client: Palimpsest, gpt: openai.OpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    context = client.session("demo", name)
    managed = ManagedResponses(gpt.responses, context)
    items = question()
    response = managed.run(
        {"read_log": read_log}, model=model, instructions="Be brief.", input=items, tools=[RESPONSES_TOOL], store=False
    )
    assert response.output_text == ANSWER
    check(provider, model, "input", items)
    provider.script(model, {"calls": [{"name": "read_log"}]}, {"text": "Again."})
    items += question()
    with managed.stream(model=model, input=items, tools=[RESPONSES_TOOL], store=False) as stream:
        final = stream.get_final_response()
    items += context.answer(final, {"read_log": read_log})
    with managed.stream(model=model, input=items, tools=[RESPONSES_TOOL], store=False) as stream:
        assert stream.get_final_response().output_text == "Again."


async def test_responses_run_and_stream_async(
    async_client: AsyncPalimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    managed = AsyncManagedResponses(async_gpt.responses, async_client.session("demo", name))
    items = question()
    await managed.run({"read_log": read_log_async}, model=model, input=items, tools=[RESPONSES_TOOL], store=False)
    check(provider, model, "input", items)
    provider.script(model, {"text": "Again."})
    async with managed.stream(model=model, input=[*items, *question()], store=False) as stream:
        assert (await stream.get_final_response()).output_text == "Again."


def long_conversation() -> list[Any]:
    turns: list[Any] = []
    for number in range(30):
        turns += [{"role": "user", "content": f"question {number} " + "some words " * 400}]
        turns += [{"role": "assistant", "content": f"answer {number}"}]
    return [*turns, *question()]


def test_a_prompt_that_is_too_long_is_retried_once(
    client: Palimpsest, claude: anthropic.Anthropic, gpt: openai.OpenAI, provider: Provider, name: str, model: str
) -> None:
    small = f"{model}+window=20000"
    managed = ManagedMessages(claude.messages, client.session("demo", name))
    with managed.stream(model=small, max_tokens=100, messages=long_conversation()) as stream:
        assert stream.get_final_message().content
    assert [it["status"] for it in provider.requests(model)] == [400, 200]
    chat = ManagedCompletions(gpt.chat.completions, client.session("demo", f"{name}.chat"))
    assert chat.create(model=small, messages=long_conversation(), max_tokens=100).choices
    assert [it["status"] for it in provider.requests(model)] == [400, 200, 400, 200]
    # Other errors of the provider reach the caller at once.
    with pytest.raises(anthropic.BadRequestError) as caught:
        managed.create(model=f"{model}+status=400", max_tokens=100, messages=question())
    assert not is_too_long(caught.value)
    assert [it["status"] for it in provider.requests(model)][4:] == [400]


async def test_a_prompt_that_is_too_long_is_retried_once_async(
    async_client: AsyncPalimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    managed = AsyncManagedResponses(async_gpt.responses, async_client.session("demo", name))
    response = await managed.create(model=f"{model}+window=20000", input=long_conversation(), max_output_tokens=100)
    assert response.output_text
    assert [it["status"] for it in provider.requests(model)] == [400, 200]


def test_compaction_and_undo_in_the_middle_of_a_run(
    client: Palimpsest, claude: anthropic.Anthropic, provider: Provider, name: str, model: str
) -> None:
    context = client.session("demo", name)
    managed = ManagedMessages(claude.messages, context)
    messages = long_conversation()
    body: dict[str, Any] = {"model": model, "max_tokens": 100, "tools": [ANTHROPIC_TOOL]}
    provider.script(model, {"calls": [{"name": "read_log"}]}, *[{"text": ANSWER}] * 3)
    managed.run({"read_log": read_log}, messages=messages, **body)
    context.compact()
    messages += question()
    managed.run({"read_log": read_log}, messages=messages, **body)
    context.undo()
    messages += question()
    managed.run({"read_log": read_log}, messages=messages, **body)
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}
    sizes = [len(str(it["body"]["messages"])) for it in requests]
    assert sizes[2] < sizes[1] / 2
    assert sizes[3] > sizes[1]


def test_exceptions_of_tools_reach_the_model(
    client: Palimpsest, claude: anthropic.Anthropic, provider: Provider, name: str, model: str, caplog: Any
) -> None:
    def broken(path: str) -> str:
        raise OSError(f"no file {path}")

    caplog.set_level(logging.ERROR, "palimpsest")
    tool = {"name": "broken", "description": "d", "input_schema": {"type": "object"}}
    provider.script(model, {"calls": [{"name": "broken", "input": {"path": "/x"}}, {"name": "read_log"}]})
    managed = ManagedMessages(claude.messages, client.session("demo", name), read_back=False)
    messages = question()
    tools = [tool, ANTHROPIC_TOOL]
    managed.run({"broken": broken}, max_rounds=1, model=model, max_tokens=100, messages=messages, tools=tools)
    first, second = messages[-1]["content"]
    assert (first["is_error"], first["content"]) == (True, "OSError: no file /x")
    assert (second["is_error"], second["content"]) == (True, "LookupError: no tool has the name read_log")


def test_an_array_that_is_not_sendable_is_not_sent(
    client: Palimpsest, claude: anthropic.Anthropic, provider: Provider, name: str, model: str
) -> None:
    managed = ManagedMessages(claude.messages, client.session("demo", name))
    with pytest.raises(NotSendableError):
        managed.create(model=model, max_tokens=1, messages=[*question(), {"role": "assistant", "content": "It"}])
    assert not provider.requests(model)


def test_objects_of_the_sdk_are_messages(
    client: Palimpsest, claude: anthropic.Anthropic, gpt: openai.OpenAI, provider: Provider, name: str, model: str
) -> None:
    """The loop without helpers: the conversation contains objects of the SDKs."""
    provider.script(model, *[TURNS[0], TURNS[2]] * 2)
    context = client.session("demo", name, "anthropic_messages")
    messages = question()
    while True:
        view = context.sync(model=model, max_tokens=100, messages=messages, tools=[ANTHROPIC_TOOL, *context.tools()])
        response = claude.messages.create(**view.request)
        messages.append({"role": "assistant", "content": response.content})
        if response.stop_reason != "tool_use":
            break
        calls = [block for block in response.content if block.type == "tool_use"]
        results = [
            context.run_tool(it)
            if context.is_own(it)
            else {"type": "tool_result", "tool_use_id": it.id, "content": read_log()}
            for it in calls
        ]
        messages.append({"role": "user", "content": results})
    context = client.session("demo", f"{name}.chat", "openai_chat")
    messages = question()
    for _ in range(2):
        view = context.sync(model=model, messages=messages, tools=[CHAT_TOOL])
        message = gpt.chat.completions.create(**view.request).choices[0].message
        messages.append(message)
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": read_log()})
    assert messages[-1].content == ANSWER
