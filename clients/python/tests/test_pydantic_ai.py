"""The capability inside of agents of Pydantic AI, with models of Anthropic and OpenAI."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import openai
import pytest

from palimpsest import Palimpsest
from world import ANSWER, FOUND, LOG, PNG, TURNS, USAGE, Provider, fill, sent

pydantic_ai = pytest.importorskip("pydantic_ai", minversion="2.68")

from pydantic_ai.messages import (  # noqa: E402
    BinaryContent,
    CachePoint,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)

from palimpsest.pydantic_ai import PalimpsestCapability, _part  # noqa: E402


def read_log() -> str:
    """Reads the log of the build."""
    return LOG


@pytest.fixture(params=["anthropic", "openai", "responses"])
def chat_model(
    request: pytest.FixtureRequest,
    async_claude: anthropic.AsyncAnthropic,
    async_gpt: openai.AsyncOpenAI,
    model: str,
) -> Any:
    if request.param == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        settings: Any = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 4_096}
        return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=async_claude), settings=settings)
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind: Any = OpenAIChatModel if request.param == "openai" else OpenAIResponsesModel
    return kind(model, provider=OpenAIProvider(openai_client=async_gpt))


def agent_of(client: Palimpsest, chat_model: Any) -> tuple[Any, PalimpsestCapability]:
    capability = PalimpsestCapability("demo", client=client)
    tools, capabilities = [read_log], [capability]
    agent: Any = pydantic_ai.Agent(chat_model, system_prompt="Be brief.", tools=tools, capabilities=capabilities)
    return agent, capability


def check(provider: Provider, model: str, messages: list[Any]) -> None:
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays] == [False, True, True]
    assert ["disk full" in it for it in arrays] == [False, False, True]
    # The message history keeps the whole results.
    assert sum(getattr(part, "content", None) == LOG for it in messages for part in it.parts) == 3


async def test_parallel_calls_and_read_back(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {**TURNS[0], "thinking": "Hm."}, {**TURNS[1], "usage": USAGE}, TURNS[2])
    agent, capability = agent_of(client, chat_model)
    result = await agent.run("Why did the build fail?", conversation_id=name)
    assert result.output == ANSWER
    check(provider, model, result.all_messages())
    # The token count includes the usage of the last response.
    assert capability.session(name).get()["budget"]["used_tokens"] > 85_050
    if type(chat_model).__name__ == "AnthropicModel":
        assert "signature" in sent(provider, model)[1]


async def test_the_tools_of_the_service_read_the_lane(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    fill(client.session("demo", name))
    provider.script(model, *TURNS)
    agent, _ = agent_of(client, chat_model)
    await agent.run("Why did the build fail?", conversation_id=name)
    assert FOUND in sent(provider, model)[2]


def test_results_of_the_service_have_the_name_of_their_tool() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "tool_name": "read_log", "content": "Interrupted."}
    assert _part({**block, "is_error": True}, None).outcome == "failed"
    part = _part(block, None)
    assert (part.tool_name, part.content, part.outcome) == ("read_log", "Interrupted.", "success")


async def test_streaming(client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str) -> None:
    provider.script(model, *TURNS)
    agent, _ = agent_of(client, chat_model)
    async with agent.run_stream_events("Why did the build fail?", conversation_id=name) as events:
        collected = [event async for event in events]
    starts = [it.part.content for it in collected if it.event_kind == "part_start" and it.part.part_kind == "text"]
    deltas = [it.delta for it in collected if it.event_kind == "part_delta"]
    texts = [it.content_delta for it in deltas if it.part_delta_kind == "text"]
    assert len("".join([*starts, *texts])) == len("I look." + ANSWER)
    check(provider, model, collected[-1].result.all_messages())


async def test_compaction_and_undo(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(7)])
    agent, capability = agent_of(client, chat_model)
    history: list[Any] = []

    async def ask(text: str) -> None:
        result = await agent.run(text, message_history=history, conversation_id=name)
        history[:] = result.all_messages()

    for number in range(5):
        await ask(f"question {number} " + "some words " * 500)
    session = capability.session(name)
    session.compact()
    await ask("after the compaction")
    assert session.undo()
    await ask("after the undo")
    assert len(history) == 14
    arrays = sent(provider, model)
    assert len(arrays[5]) < len(arrays[4]) < len(arrays[6])
    requests = [str(it["body"]) for it in provider.requests(model)]
    # The system prompt of the first message stays after the compaction of this message.
    assert [it.count("Be brief.") for it in requests] == [1] * 7


async def test_a_prompt_that_is_too_long_is_retried_once(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    fault, answers = {"fault": {"html": 413}}, [{"text": f"answer {number}"} for number in range(5)]
    provider.script(model, *answers, fault, {"text": "Yes."}, fault, fault)
    agent, _ = agent_of(client, chat_model)
    history: list[Any] = []
    for number in range(5):
        text = f"question {number} " + "some words " * 500
        history = (await agent.run(text, message_history=history, conversation_id=name)).all_messages()
    result = await agent.run("after the rejection", message_history=history, conversation_id=name)
    assert result.output == "Yes."
    assert len(result.all_messages()) == 12
    requests = provider.requests(model)
    assert [it["status"] for it in requests] == [200] * 5 + [413, 200]
    assert len(str(requests[6]["body"])) < len(str(requests[5]["body"]))
    with pytest.raises(pydantic_ai.exceptions.ModelHTTPError):
        await agent.run("once more", message_history=result.all_messages(), conversation_id=name)
    assert [it["status"] for it in provider.requests(model)][7:] == [413, 413]


async def test_objects_of_the_history_reach_the_model_unchanged(client: Palimpsest, name: str) -> None:
    from pydantic_ai.models.function import FunctionModel

    image = BinaryContent(base64.b64decode(PNG), media_type="image/png")
    # The service accepts no id with this character.
    call = pydantic_ai.messages.ToolCallPart("read_log", {}, tool_call_id="a:1")
    history: list[Any] = [
        ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart(["See", image, CachePoint(), "and"])]),
        ModelResponse(parts=[ThinkingPart("Hm.", signature="s"), TextPart("I look.", id="t"), call]),
        ModelRequest(parts=[ToolReturnPart("read_log", ["text", image], tool_call_id="a:1")]),
        ModelResponse(parts=[ThinkingPart("Hm.")]),
        ModelRequest(parts=[UserPromptPart([VideoUrl("https://x.org/a.mp4"), ImageUrl("https://x.org/a.png")])]),
        ModelResponse(parts=[TextPart("Yes.")]),
    ]
    received: list[Any] = []

    def answer(messages: list[Any], _: Any) -> ModelResponse:
        received.extend(messages)
        return ModelResponse(parts=[TextPart("Done.")])

    # Without the tool that removes turns, no message of the user gets an id.
    agent: Any = pydantic_ai.Agent(FunctionModel(answer), capabilities=[WithoutTools("demo", client=client)])
    await agent.run("And?", message_history=history, conversation_id=name)
    assert [id(it) for it in received[:5]] == [id(it) for it in history[:5]]
    assert [part for it in received for part in it.parts][:-1] == [part for it in history for part in it.parts]


class WithoutTools(PalimpsestCapability):
    """The capability without the tools of the service."""

    def get_toolset(self) -> Any:
        return None


async def test_the_session_needs_a_name(client: Palimpsest) -> None:
    with pytest.raises(ValueError, match="conversation_id"):
        PalimpsestCapability("demo", client=client).session()


async def test_an_agent_without_the_tools_of_the_service(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider.script(model, {"text": ANSWER})
    capability = PalimpsestCapability("demo", client=client, session=name, read_back=False)
    chat_model = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=async_gpt))
    agent: Any = pydantic_ai.Agent(chat_model, tools=[read_log], capabilities=[capability])
    await agent.run("Hello.")
    assert len(provider.requests(model)[0]["body"]["tools"]) == 1
