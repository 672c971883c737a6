"""The middleware inside of LangChain's agent, with chat models of Anthropic and OpenAI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cancelled import check_cancelled_run
from palimpsest import Palimpsest, UnavailableError
from palimpsest._originals import restored, with_call_ids
from palimpsest.langchain import PalimpsestMiddleware
from world import ANSWER, CALL, FOUND, LOG, READ_BACK, Provider, Server, fill

agents = pytest.importorskip("langchain.agents")

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import StructuredTool  # noqa: E402

# Chat models keep connections and TLS settings for the process.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def read_log() -> str:
    """Reads the log of the build."""
    return LOG


@pytest.fixture(params=["anthropic", "openai"])
def chat_model(request: pytest.FixtureRequest, provider: Provider, model: str) -> Any:
    if request.param == "anthropic":
        from langchain_anthropic import ChatAnthropic

        thinking = {"type": "enabled", "budget_tokens": 1_024}
        options: dict[str, Any] = {"model": model, "api_key": "key", "max_retries": 0, "thinking": thinking}
        return ChatAnthropic(base_url=provider.url, **options)
    from langchain_openai import ChatOpenAI

    keys: dict[str, Any] = {"api_key": "key", "max_retries": 0}
    return ChatOpenAI(model=model, base_url=f"{provider.url}/v1", **keys)


class Agent:
    """An agent with the middleware and a checkpointer."""

    def __init__(self, client: Palimpsest, chat_model: Any, thread: str) -> None:
        from langgraph.checkpoint.memory import InMemorySaver

        self.model = chat_model
        self.middleware = PalimpsestMiddleware("demo", client=client)
        self.graph = agents.create_agent(
            chat_model,
            tools=[read_log],
            system_prompt="Be brief.",
            middleware=[self.middleware],
            checkpointer=InMemorySaver(),
        )
        self.config: Any = {"configurable": {"thread_id": thread}}

    @staticmethod
    def input(text: str) -> Any:
        return {"messages": [{"role": "user", "content": text}]}

    def ask(self, text: str = "Why did the build fail?") -> list[Any]:
        messages: list[Any] = self.graph.invoke(self.input(text), self.config)["messages"]
        return messages


def sent(provider: Provider, model: str) -> list[str]:
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}, [it for it in requests if it["status"] != 200]
    return [str(it["body"]["messages"]) for it in requests]


def check(provider: Provider, model: str, messages: list[Any]) -> None:
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays] == [False, True, True]
    assert ["disk full" in it for it in arrays] == [False, False, True]
    # The state of the agent keeps the whole results.
    assert sum(it.content == LOG for it in messages) == 3
    assert str(messages[-1].text) == ANSWER


def test_parallel_calls_and_read_back(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {**CALL, "thinking": "Hm."}, READ_BACK, {"text": ANSWER})
    check(provider, model, Agent(client, chat_model, name).ask())
    if "thinking" in str(provider.requests(model)[0]["body"]):
        # The thinking of the response is part of the next request, with its signature.
        assert "signature" in sent(provider, model)[1]


def test_tokens_are_those_of_the_provider(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {"text": "Hello."}, {"text": ANSWER})
    agent = Agent(client, chat_model, name)
    agent.ask("Good morning.")
    first = agent.ask()[1].usage_metadata
    reported = agent.middleware.session(name).get()["counts"]["reported_tokens"]
    assert reported == first["total_tokens"]


async def test_async_and_streaming(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, CALL, READ_BACK, {"text": ANSWER}, {"text": "Yes."})
    agent = Agent(client, chat_model, name)
    texts = []
    async for chunk, _ in agent.graph.astream(agent.input("Why?"), agent.config, stream_mode="messages"):
        if type(chunk).__name__ == "AIMessageChunk":
            texts.append(str(chunk.text))
    # Async runs of LangGraph stream no chunks of the model before Python 3.11, with and without a middleware.
    if sys.version_info >= (3, 11):
        assert "".join(texts) == "I look." + ANSWER
    check(provider, model, (await agent.graph.aget_state(agent.config)).values["messages"])
    assert (await agent.graph.ainvoke(agent.input("Sure?"), agent.config))["messages"][-1].text == "Yes."


def test_compaction_and_undo(client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(8)])
    agent = Agent(client, chat_model, name)
    for number in range(5):
        agent.ask(f"question {number} " + "some words " * 500)
    session = agent.middleware.session(name)
    session.compact()
    agent.ask("after the compaction")
    assert session.undo()
    agent.ask("after the undo")
    arrays = sent(provider, model)
    assert len(arrays[5]) < len(arrays[4]) < len(arrays[6])


def test_a_prompt_that_is_too_long_is_retried_once(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(5)], {"fault": {"html": 413}})
    agent = Agent(client, chat_model, name)
    for number in range(5):
        agent.ask(f"question {number} " + "some words " * 500)
    agent.ask("after the rejection")
    statuses = [it["status"] for it in provider.requests(model)]
    assert statuses == [200] * 5 + [413, 200]


def test_a_call_with_malformed_arguments_keeps_its_error_result(client: Palimpsest, name: str) -> None:
    bad: Any = {"name": "read_log", "args": "{bad", "id": "c1", "error": None, "type": "invalid_tool_call"}
    good: Any = {"name": "read_log", "args": {}, "id": "c2", "type": "tool_call"}
    answers = [AIMessage("", invalid_tool_calls=[bad], tool_calls=[good]), AIMessage(ANSWER)]
    agent = Agent(client, Echo(messages=iter(answers)), name)
    agent.ask()
    received = agent.model.seen[1]
    assert sorted(it.tool_call_id for it in received if isinstance(it, ToolMessage)) == ["c1", "c2"]
    assert [it.invalid_tool_calls for it in received if isinstance(it, AIMessage)] == [[bad]]


class Echo(GenericFakeChatModel):
    """A model that records the messages of its requests."""

    seen: list[list[Any]] = []  # noqa: RUF012 - a field of Pydantic

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: Any, *arguments: Any, **options: Any) -> Any:
        self.seen.append(messages)
        return super()._generate(messages, *arguments, **options)


@pytest.mark.parametrize("call_id", ["functions.read_log:0", "c" * 60, "c1"])
def test_responses_whose_ids_the_service_replaces_stay(client: Palimpsest, name: str, call_id: str) -> None:
    call: Any = {"name": "read_log", "args": {}, "id": call_id, "type": "tool_call"}
    # The second response repeats the id.
    calls = [AIMessage("", tool_calls=[call], additional_kwargs={"reasoning_content": it}) for it in ("One.", "Two.")]
    agent = Agent(client, Echo(messages=iter([*calls, AIMessage(ANSWER)])), name)
    agent.ask()
    received = [it for it in agent.model.seen[2] if isinstance(it, AIMessage)]
    assert [it.additional_kwargs["reasoning_content"] for it in received] == ["One.", "Two."]
    assert {it["id"] for message in received for it in message.tool_calls} == {call_id}
    results = [it for it in agent.model.seen[2] if isinstance(it, ToolMessage)]
    assert [it.tool_call_id for it in results] == [call_id, call_id]
    assert all("palimpsest://" in str(it.content) for it in results)


def test_a_response_without_text_stays(client: Palimpsest, name: str) -> None:
    image: Any = {"type": "image", "url": "https://x.org/a.png"}
    history = [HumanMessage("Draw."), AIMessage([image]), HumanMessage("Think."), AIMessage("")]
    for number, messages in enumerate(([*history, HumanMessage("And?")], history)):
        agent = Agent(client, Echo(messages=iter([AIMessage(ANSWER)])), f"{name}.{number}")
        agent.graph.invoke({"messages": messages}, agent.config)
        assert [it.content for it in agent.model.seen[0] if isinstance(it, AIMessage)] == [[image], ""]


def test_equal_responses_are_matched_from_the_end() -> None:
    texts = ["a", "Done.", "b", "Done.", "c"]
    chats = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
    view = [{"role": "user", "content": "summary"}, *chats[2:-1], {"role": "user", "content": "c\n[id:a1]"}]
    chats, ids = with_call_ids(chats)
    shown = restored(view, chats, range(5), ids, lambda place, _: -place, lambda _: 99)
    assert shown == [99, 2, 3, -4]


def test_the_tools_of_the_service_read_the_lane(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    fill(client.session("demo", name))
    provider.script(model, CALL, READ_BACK, {"text": ANSWER})
    Agent(client, chat_model, name).ask()
    assert FOUND in sent(provider, model)[2]


def test_retries_fallbacks_and_approvals_are_composed(
    client: Palimpsest, provider: Provider, name: str, model: str
) -> None:
    from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelFallbackMiddleware, ToolRetryMiddleware
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    options: dict[str, Any] = {"base_url": f"{provider.url}/v1", "api_key": "key", "max_retries": 0}
    broken, working = f"broken-{model}", f"working-{model}"
    provider.script(broken, *[{"fault": {"html": 500}}] * 3)
    provider.script(working, CALL, READ_BACK, {"text": ANSWER})
    attempts: list[int] = []

    def read_log() -> str:
        """Reads the log of the build."""
        attempts.append(1)
        if len(attempts) % 2:
            raise ConnectionError("try again")
        return LOG

    middleware = PalimpsestMiddleware("demo", client=client)
    graph = agents.create_agent(
        ChatOpenAI(model=broken, **options),
        tools=[read_log],
        middleware=[
            ModelFallbackMiddleware(ChatOpenAI(model=working, **options)),
            ToolRetryMiddleware(initial_delay=0, jitter=False),
            HumanInTheLoopMiddleware(interrupt_on={"read_log": True}),
            middleware,
        ],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": name}}
    state: Any = graph.invoke(Agent.input("Why did the build fail?"), config)
    while "__interrupt__" in state:
        requests = state["__interrupt__"][0].value["action_requests"]
        # The tools of the service need no approval.
        assert {it["name"] for it in requests} == {"read_log"}
        decisions = [{"type": "approve"} for _ in requests]
        state = graph.invoke(Command(resume={"decisions": decisions}), config)
    check(provider, working, state["messages"])


def test_the_session_needs_a_name(server: Server, chat_model: Any) -> None:
    with Palimpsest(server.url) as client:
        graph = agents.create_agent(chat_model, middleware=[PalimpsestMiddleware("demo", client=client)])
        with pytest.raises(ValueError, match="thread_id"):
            graph.invoke(Agent.input("hello"))


async def test_an_agent_is_created_without_a_call(client: Palimpsest, name: str) -> None:
    # Nobody listens there. The agent is created nevertheless, and each of its calls fails.
    with Palimpsest("http://127.0.0.1:9", max_retries=0) as unreachable:
        agent = Agent(unreachable, Echo(messages=iter([])), name)
        with pytest.raises(UnavailableError):
            await agent.graph.ainvoke(agent.input("Hello."), agent.config)
        # A tool of the agent needs no server.
        agent = Agent(unreachable, Echo(messages=iter([])), name)
        call: Any = {"name": "read_log", "args": {}, "id": "c1", "type": "tool_call"}
        stored = {"messages": [HumanMessage("Why?"), AIMessage("", tool_calls=[call])]}
        await agent.graph.aupdate_state(agent.config, stored, as_node="model")
        with pytest.raises(UnavailableError):
            await agent.graph.ainvoke(None, agent.config)
        assert (await agent.graph.aget_state(agent.config)).values["messages"][-1].content == LOG
    # A run continues with a call of a stored response, whose agent has made no model call.
    fill(client.session("demo", name))
    agent = Agent(client, Echo(messages=iter([AIMessage(ANSWER)])), name)
    call = {"name": "SearchTranscript", "args": {"pattern": "x"}, "id": "c1", "type": "tool_call"}
    stored = {"messages": [HumanMessage("Why?"), AIMessage("", tool_calls=[call])]}
    await agent.graph.aupdate_state(agent.config, stored, as_node="model")
    state = await agent.graph.ainvoke(None, agent.config)
    assert state["messages"][-1].text == ANSWER
    assert [it.status for it in state["messages"] if isinstance(it, ToolMessage)] == ["success"]


def test_a_tool_with_the_name_of_one_of_the_service(client: Palimpsest, name: str) -> None:
    middleware = PalimpsestMiddleware("demo", client=client, session=name)
    snip = StructuredTool.from_function(read_log, name="Snip")
    graph = agents.create_agent(Echo(messages=iter([])), tools=[snip], middleware=[middleware])
    with pytest.raises(ValueError, match=r"names of tools of the service: Snip\."):
        graph.invoke(Agent.input("Hello."))


def test_a_model_without_tools(client: Palimpsest, provider: Provider, name: str, model: str) -> None:
    from langchain_openai import ChatOpenAI

    provider.script(model, {"text": ANSWER})
    keys: dict[str, Any] = {"api_key": "key", "max_retries": 0}
    middleware = PalimpsestMiddleware("demo", client=client, session=name, read_back=False)
    chat_model = ChatOpenAI(model=model, base_url=f"{provider.url}/v1", **keys)
    agents.create_agent(chat_model, middleware=[middleware]).invoke(Agent.input("Hello."))
    assert "tools" not in provider.requests(model)[0]["body"]


async def test_a_cancelled_run_leaves_no_request(name: str, tmp_path: Path) -> None:
    def prepare(client: Palimpsest) -> Any:
        agent = Agent(client, Echo(messages=iter([])), name)
        agent.middleware._read_back = False
        return lambda: agent.graph.ainvoke(agent.input("Hello."), agent.config)

    await check_cancelled_run(tmp_path / "data", name, prepare)
