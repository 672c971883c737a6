"""The agent inside of LlamaIndex, with models of Anthropic and OpenAI."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("llama_index.llms.openai_like", reason="LlamaIndex has an environment of its own")

from llama_index.core.agent.workflow import AgentStream, AgentWorkflow
from llama_index.core.base.llms.types import AudioBlock, ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.tools import FunctionTool

from palimpsest import Palimpsest
from palimpsest._originals import restored, with_call_ids
from palimpsest.llama_index import PalimpsestAgent, _new_message, _to_chat, _with_content
from world import ANSWER, CALL, FOUND, LOG, READ_BACK, Provider, fill

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

# A red pixel.
PNG = b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="


def read_log() -> str:
    """Reads the log of the build."""
    return LOG


@pytest.fixture(params=["anthropic", "openai"])
def llm(request: pytest.FixtureRequest, provider: Provider, model: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    options: dict[str, Any] = {"model": model, "api_key": "key", "max_retries": 0}
    if request.param == "anthropic":
        llms = pytest.importorskip("llama_index.llms.anthropic")
        monkeypatch.setattr(llms.base, "is_function_calling_model", lambda _: True)
        monkeypatch.setattr(llms.base, "anthropic_modelname_to_contextsize", lambda _: 200_000)
        thinking = {"type": "enabled", "budget_tokens": 1_024}
        return llms.Anthropic(base_url=provider.url, thinking_dict=thinking, temperature=1, max_tokens=4_096, **options)
    llms = pytest.importorskip("llama_index.llms.openai_like")
    window = {"context_window": 200_000, "is_chat_model": True, "is_function_calling_model": True}
    return llms.OpenAILike(api_base=f"{provider.url}/v1", **window, **options)


@pytest.fixture
def agent(client: Palimpsest, llm: Any) -> PalimpsestAgent:
    return PalimpsestAgent("demo", client=client, tools=[read_log], llm=llm, system_prompt="Be brief.")


@pytest.fixture
def memory(name: str) -> Memory:
    return Memory.from_defaults(session_id=name, token_limit=10_000_000)


def sent(provider: Provider, model: str) -> list[str]:
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}, [it for it in requests if it["status"] != 200]
    return [str(it["body"]["messages"]) for it in requests]


def check(provider: Provider, model: str, messages: list[ChatMessage]) -> None:
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays[:3]] == [False, True, True]
    assert ["disk full" in it for it in arrays[:3]] == [False, False, True]
    assert sum(it.content == LOG for it in messages) == 3


async def test_a_tool_with_the_name_of_one_of_the_service(client: Palimpsest, llm: Any, memory: Memory) -> None:
    snip = FunctionTool.from_defaults(read_log, name="Snip")
    agent = PalimpsestAgent("demo", client=client, tools=[snip], llm=llm)
    with pytest.raises(ValueError, match=r"names of tools of the service: Snip\."):
        await agent.run("Hello.", memory=memory)


@pytest.mark.parametrize("streaming", [True, False])
async def test_parallel_calls_and_read_back(
    agent: PalimpsestAgent, memory: Memory, provider: Provider, model: str, streaming: bool
) -> None:
    provider.script(model, {**CALL, "thinking": "Hm."}, READ_BACK, {"text": ANSWER}, {"text": "Yes."})
    agent.streaming = streaming
    handler = agent.run("Why did the build fail?", memory=memory)
    texts = [it.delta async for it in handler.stream_events() if isinstance(it, AgentStream)]
    assert str(await handler) == ANSWER
    if streaming:
        assert "".join(texts) == "I look." + ANSWER
    check(provider, model, await memory.aget_all())
    assert str(await agent.run("Sure?", memory=memory)) == "Yes."
    if "thinking" in provider.requests(model)[0]["body"]:
        # The thinking of the response is part of the next request, with its signature.
        assert "signature" in sent(provider, model)[1]


async def test_an_agent_without_the_tools_of_the_service(
    client: Palimpsest, llm: Any, memory: Memory, provider: Provider, model: str
) -> None:
    provider.script(model, {"text": ANSWER})
    agent = PalimpsestAgent("demo", client=client, tools=[read_log], llm=llm, read_back=False)
    await agent.run("Hello.", memory=memory)
    assert len(provider.requests(model)[0]["body"]["tools"]) == 1


async def test_the_tools_of_the_service_read_the_lane(
    client: Palimpsest, agent: PalimpsestAgent, memory: Memory, provider: Provider, model: str
) -> None:
    fill(client.session("demo", memory.session_id))
    provider.script(model, CALL, READ_BACK, {"text": ANSWER})
    await agent.run("Why did the build fail?", memory=memory)
    assert FOUND in sent(provider, model)[2]


async def test_compaction_and_undo(agent: PalimpsestAgent, memory: Memory, provider: Provider, model: str) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(7)])
    for number in range(5):
        await agent.run(f"question {number} " + "some words " * 500, memory=memory)
    session = agent.session(memory.session_id)
    session.compact()
    await agent.run("after the compaction", memory=memory)
    assert session.undo()
    await agent.run("after the undo", memory=memory)
    sizes = [len(it) for it in sent(provider, model)]
    assert sizes[5] < sizes[4] < sizes[6]


async def test_a_prompt_that_is_too_long_is_retried_once(
    agent: PalimpsestAgent, memory: Memory, provider: Provider, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(5)], {"fault": {"html": 413}})
    for number in range(5):
        await agent.run(f"question {number} " + "some words " * 500, memory=memory)
    await agent.run("after the rejection", memory=memory)
    assert [it["status"] for it in provider.requests(model)] == [200] * 5 + [413, 200]


async def test_an_agent_in_a_workflow_with_handoffs(
    client: Palimpsest, llm: Any, memory: Memory, provider: Provider, model: str
) -> None:
    provider.script(
        model,
        {"calls": [{"name": "handoff", "input": {"to_agent": "second", "reason": "logs"}}]},
        CALL,
        {"text": ANSWER},
    )
    first = PalimpsestAgent("demo", client=client, name="first", description="Plans", llm=llm)
    second = PalimpsestAgent("demo", client=client, name="second", description="Reads", llm=llm, tools=[read_log])
    workflow = AgentWorkflow(agents=[first, second], root_agent="first")
    assert str(await workflow.run(user_msg="Why did the build fail?", memory=memory)) == ANSWER
    assert "palimpsest://" in sent(provider, model)[2]


async def test_images_stay_in_the_view(agent: PalimpsestAgent, memory: Memory, provider: Provider, model: str) -> None:
    provider.script(model, {"text": "Red."}, {"text": "Yes."})
    blocks: Any = [TextBlock(text="Which color?"), ImageBlock(image=PNG, image_mimetype="image/png")]
    await agent.run(ChatMessage(role="user", blocks=blocks), memory=memory)
    await agent.run("Sure?", memory=memory)
    assert [PNG.decode() in it for it in sent(provider, model)] == [True, True]


def test_other_blocks_of_a_user_input_stay_beside_its_id() -> None:
    audio = AudioBlock(audio=b"sound", format="wav")
    message = ChatMessage(role="user", blocks=[TextBlock(text="Who is that?"), audio])
    (chat,), ids = with_call_ids([_to_chat(message)])
    shown = {**chat, "content": "Who is that?\n[id:a1b2c3]"}
    (restored_message,) = restored([shown], [chat], [message], ids, _with_content, _new_message)
    assert restored_message.blocks == [TextBlock(text="Who is that?\n[id:a1b2c3]"), audio]


async def test_the_session_needs_a_name(agent: PalimpsestAgent) -> None:
    with pytest.raises(Exception, match="session_id"):
        await agent.run("hello", memory=ChatMemoryBuffer.from_defaults())


async def test_an_agent_is_created_without_a_call(llm: Any, memory: Memory) -> None:
    # Nobody listens there.
    with Palimpsest("http://127.0.0.1:9", max_retries=0) as unreachable:
        agent = PalimpsestAgent("demo", client=unreachable, llm=llm)
        with pytest.raises(Exception, match="Cannot reach"):
            await agent.run("hello", memory=memory)
