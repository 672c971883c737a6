"""Side requests, whose arrays go to another session than the named one."""

from __future__ import annotations

from typing import Any

import anthropic

from palimpsest import AsyncPalimpsest, Palimpsest
from palimpsest.anthropic import ManagedMessages
from world import ANTHROPIC_TOOL, LOG, Provider, fill

LAST_LINE = {"tool_use_id": "c1", "tail_lines": 1}
READ = {"type": "tool_use", "id": "c2", "name": "ReadToolResult", "input": LAST_LINE}
USAGE = {"input_tokens": 1, "output_tokens": 1}
RESPONSE = {"type": "message", "role": "assistant", "model": "m", "content": [READ], "usage": USAGE}


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def side_request() -> list[Any]:
    call = {"type": "tool_use", "id": "c1", "name": "read_log", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": LOG}
    return [user("Write a title."), {"role": "assistant", "content": [call]}, user([result])]


def test_a_large_view_of_a_lane_is_streamed(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    context.create(policy_overrides={"limits": {"max_reply_bytes": 65_536}})
    fill(context)
    messages = [user("Write a title. " + "word " * 20_000)]
    lane = context.sync(model="m", messages=messages)
    assert lane.session != context.name
    assert lane.reply["view_omitted"]
    assert "word word" in str(lane.messages)


def test_the_tools_of_the_service_read_the_lane_of_a_view(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name, "anthropic_messages")
    context.tools()
    fill(context)
    lane = context.sync(model="m", messages=side_request())
    assert lane.session != context.name
    assert "disk full" in str(context.answer(RESPONSE, {}, view=lane))
    # The call is remembered, until another response has its id.
    assert context.run_tool(READ)["content"] == "disk full\n"
    view = context.sync(model="m", messages=[user("Another conversation.")], tools=[ANTHROPIC_TOOL])
    assert view.session == context.name
    assert "disk full" not in str(context.answer(RESPONSE, {}, view=view))


async def test_the_tools_of_the_service_read_the_lane_of_an_async_view(
    async_client: AsyncPalimpsest, name: str
) -> None:
    context = async_client.session("demo", name, "anthropic_messages")
    await context.tools()
    await context.sync(model="m", messages=[user("hello")], tools=[ANTHROPIC_TOOL])
    lane = await context.sync(model="m", messages=side_request())
    assert "disk full" in str(await context.answer(RESPONSE, {}, view=lane))


def test_managed_calls_read_the_lane(
    client: Palimpsest, claude: anthropic.Anthropic, provider: Provider, name: str, model: str
) -> None:
    context = client.session("demo", name, "anthropic_messages")
    fill(context)
    provider.script(model, {"calls": [{"name": "ReadToolResult", "input": LAST_LINE}]}, {"text": "A title."})
    messages = side_request()
    options: Any = {"model": model, "max_tokens": 100, "messages": messages, "tools": [ANTHROPIC_TOOL]}
    ManagedMessages(claude.messages, context).run({}, **options)
    assert "disk full" in str(messages[-2])
