"""The plugin inside of Google's Agent Development Kit, with its model of Anthropic and one in Gemini's format."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from cancelled import check_cancelled_run
from palimpsest import Palimpsest
from world import ANSWER, FOUND, LOG, PNG, TURNS, USAGE, Provider, fill, sent

pytest.importorskip("google.adk")

from google.adk.agents import Agent, LoopAgent
from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[attr-defined]
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from pydantic import Field

from palimpsest.google_adk import PalimpsestPlugin, _part

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def read_log() -> str:
    """Reads the log of the build."""
    return LOG


@pytest.fixture
def chat_model(async_claude: anthropic.AsyncAnthropic, model: str) -> AnthropicLlm:
    claude = AnthropicLlm(model=model)
    claude.__dict__["_anthropic_client"] = async_claude
    return claude


class Conversation:
    """A session of ADK with the plugin."""

    def __init__(self, client: Palimpsest, chat_model: Any, name: str, **options: Any) -> None:
        self.plugin = PalimpsestPlugin("demo", client=client)
        agent = Agent(name="builder", model=chat_model, instruction="Be brief.", tools=[read_log], **options)
        self.runner = InMemoryRunner(app=App(name="build", root_agent=agent, plugins=[self.plugin]))
        self.name = name

    async def start(self) -> Any:
        service = self.runner.session_service
        return await service.create_session(app_name="build", user_id="user", session_id=self.name)

    async def ask(self, text: str, mode: StreamingMode = StreamingMode.NONE) -> list[Event]:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        config = RunConfig(streaming_mode=mode)
        run = self.runner.run_async(user_id="user", session_id=self.name, new_message=message, run_config=config)
        return [event async for event in run]

    async def events(self) -> list[Event]:
        service = self.runner.session_service
        session = await service.get_session(app_name="build", user_id="user", session_id=self.name)
        assert session
        return session.events


@pytest.fixture
async def conversation(client: Palimpsest, chat_model: Any, name: str) -> AsyncGenerator[Conversation, None]:
    conversation = Conversation(client, chat_model, name)
    await conversation.start()
    yield conversation
    await conversation.runner.close()


def texts(events: list[Event]) -> str:
    parts = [part for event in events if event.content for part in event.content.parts or []]
    return "".join(part.text or "" for part in parts if not part.thought)


async def check(provider: Provider, model: str, conversation: Conversation) -> None:
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays] == [False, True, True]
    assert ["disk full" in it for it in arrays] == [False, False, True]
    # The events of the session keep the whole results.
    responses = [response for event in await conversation.events() for response in event.get_function_responses()]
    assert sum(it.response == {"result": LOG} for it in responses) == 3


async def test_parallel_calls_and_read_back(conversation: Conversation, provider: Provider, model: str) -> None:
    provider.script(model, TURNS[0], {**TURNS[1], "usage": USAGE}, TURNS[2])
    assert texts(await conversation.ask("Why did the build fail?")) == "I look." + ANSWER
    await check(provider, model, conversation)
    # The token count includes the usage of the last response.
    assert conversation.plugin.session(conversation.name).get()["budget"]["used_tokens"] > 85_050


async def test_the_tools_of_the_service_read_the_lane(
    client: Palimpsest, conversation: Conversation, provider: Provider, name: str, model: str
) -> None:
    fill(client.session("demo", name))
    provider.script(model, *TURNS)
    await conversation.ask("Why did the build fail?")
    assert FOUND in sent(provider, model)[2]


def test_results_of_the_service_have_the_name_of_their_tool() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "tool_name": "read_log", "content": "Interrupted."}
    for is_error, field in ((False, "result"), (True, "error")):
        response = _part({**block, "is_error": is_error}, None).function_response
        assert response
        assert (response.name, response.response) == ("read_log", {field: "Interrupted."})


async def test_thinking(client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str) -> None:
    provider.script(model, {**TURNS[0], "thinking": "Hm."}, *TURNS[1:])
    thinking = types.ThinkingConfig(thinking_budget=1_024)
    config = types.GenerateContentConfig(thinking_config=thinking, max_output_tokens=4_096)
    conversation = Conversation(client, chat_model, name, generate_content_config=config)
    await conversation.start()
    await conversation.ask("Why did the build fail?")
    assert "signature" in sent(provider, model)[1]
    await conversation.runner.close()


async def test_streaming(conversation: Conversation, provider: Provider, model: str) -> None:
    provider.script(model, *TURNS)
    events = await conversation.ask("Why did the build fail?", StreamingMode.SSE)
    assert texts([event for event in events if event.partial]) == "I look." + ANSWER
    await check(provider, model, conversation)


async def test_compaction_and_undo(conversation: Conversation, provider: Provider, model: str) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(7)])
    for number in range(5):
        await conversation.ask(f"question {number} " + "some words " * 500)
    session = conversation.plugin.session(conversation.name)
    session.compact()
    await conversation.ask("after the compaction")
    assert session.undo()
    await conversation.ask("after the undo")
    arrays = sent(provider, model)
    assert len(arrays[5]) < len(arrays[4]) < len(arrays[6])
    assert len(await conversation.events()) == 14


@pytest.mark.parametrize("mode", [StreamingMode.NONE, StreamingMode.SSE])
async def test_a_prompt_that_is_too_long_is_retried_once(
    conversation: Conversation, provider: Provider, model: str, mode: StreamingMode
) -> None:
    fault, answers = {"fault": {"html": 413}}, [{"text": f"answer {number}"} for number in range(5)]
    provider.script(model, *answers, fault, {"text": "Yes."}, fault, fault)
    for number in range(5):
        await conversation.ask(f"question {number} " + "some words " * 500, mode)
    assert texts(await conversation.ask("after the rejection", mode)) == "Yes."
    requests = provider.requests(model)
    assert [it["status"] for it in requests] == [200] * 5 + [413, 200]
    assert len(str(requests[6]["body"])) < len(str(requests[5]["body"]))
    with pytest.raises(anthropic.APIStatusError):
        await conversation.ask("once more", mode)
    assert [it["status"] for it in provider.requests(model)][7:] == [413, 413]


class Echo(BaseLlm):
    """A model that records the contents of its requests, and gives its calls no ids, as Gemini does."""

    answers: list[list[types.Part]]
    received: list[list[types.Content]] = Field(default_factory=list)

    async def generate_content_async(
        self,
        llm_request: Any,
        stream: bool = False,  # noqa: ARG002 - the signature of the base class
    ) -> AsyncGenerator[LlmResponse, None]:
        self.received.append(list(llm_request.contents))
        yield LlmResponse(content=types.Content(role="model", parts=self.answers.pop(0)))


def function_call(name: str, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


async def test_calls_without_ids(client: Palimpsest, name: str) -> None:
    calls = [function_call("read_log"), function_call("read_log")]
    read_back = function_call("SearchTranscript", pattern="disk full")
    model = Echo(model="gemini-echo", answers=[calls, [read_back, *calls], [types.Part(text=ANSWER)]])
    conversation = Conversation(client, model, name)
    await conversation.start()
    assert texts(await conversation.ask("Why did the build fail?")) == ANSWER
    shown = ["".join(it.model_dump_json() for it in contents) for contents in model.received]
    assert [it.count("palimpsest://") for it in shown] == [0, 2, 4]
    assert ["disk full" in it for it in shown] == [False, False, True]
    # The ids of the service stay in its view.
    received = [part for it in model.received[1] for part in it.parts or []]
    functions = [part.function_call or part.function_response for part in received]
    assert [it.id for it in functions if it] == [None] * 4
    await conversation.runner.close()


async def test_calls_without_ids_stay_equal_in_trimmed_contents(client: Palimpsest, name: str) -> None:
    answers = [answer for _ in range(4) for answer in ([function_call("read_log")], [types.Part(text=ANSWER)])]
    conversation = Conversation(client, Echo(model="gemini-echo", answers=answers), name)
    # ADK keeps the contents of the last two questions.
    plugins = conversation.runner.plugin_manager.plugins
    plugins.insert(0, ContextFilterPlugin(num_invocations_to_keep=2))
    await conversation.start()
    for number in range(4):
        await conversation.ask(f"question {number}")
    stored = [it for session in client.sessions("demo") if name in session["name"] for it in calls_of(client, session)]
    events = [call.id for event in await conversation.events() for call in event.get_function_calls()]
    assert set(stored) == set(events)
    await conversation.runner.close()


@pytest.mark.parametrize("removal", ["cancelled", "rewound", "named"])
async def test_calls_that_are_not_in_the_contents_change_no_id(client: Palimpsest, name: str, removal: str) -> None:
    answers = [answer for _ in range(3) for answer in ([function_call("read_log")], [types.Part(text=ANSWER)])]
    conversation = Conversation(client, Echo(model="gemini-echo", answers=answers), name)
    session = await conversation.start()
    service = conversation.runner.session_service
    first = (await conversation.ask("question 1"))[0]
    others: list[str | None] = []
    if removal == "rewound":
        second = (await conversation.ask("question 2"))[0]
        await conversation.runner.rewind_async(
            user_id="user", session_id=name, rewind_before_invocation_id=second.invocation_id
        )
    else:
        # A cancelled run leaves a call without a response. An id that is not one of ADK stays in the contents.
        call = function_call("read_log")
        assert call.function_call
        call.function_call.id = "adk-cancelled" if removal == "cancelled" else "c1"
        await service.append_event(session, Event(author="builder", content=types.Content(role="model", parts=[call])))
        if removal == "named":
            response = types.FunctionResponse(id="c1", name="read_log", response={"result": "done"})
            content = types.Content(role="user", parts=[types.Part(function_response=response)])
            await service.append_event(session, Event(author="builder", content=content))
            others = ["c1"]
    last = (await conversation.ask("question 3"))[0]
    expected = [first.get_function_calls()[0].id, *others, last.get_function_calls()[0].id]
    query = {"filter.visibilities": ["visible"]}
    assert calls_of(client, {"name": name}, **query) == expected
    await conversation.runner.close()


def calls_of(client: Palimpsest, session: dict[str, Any], **query: Any) -> list[str]:
    """Returns the ids of the calls in the transcript of a session."""
    messages = client.session("demo", session["name"].split("/")[-1], "anthropic_messages").messages(**query)
    blocks = [block for it in messages for message in it["messages"] for block in message["content"]]
    return [block["id"] for block in blocks if block["type"] == "tool_use"]


async def test_parts_reach_the_model_unchanged(client: Palimpsest, name: str) -> None:
    image = types.Blob(data=base64.b64decode(PNG), mime_type="image/png")
    code = types.ExecutableCode(code="1", language=types.Language.PYTHON)
    call = types.FunctionCall(id="a", name="read_log", args={})
    picture = types.FunctionResponsePart(inline_data=types.FunctionResponseBlob(data=image.data, mime_type="image/png"))
    response = types.FunctionResponse(id="a", name="read_log", response={"lines": 2}, parts=[picture])
    video = types.FileData(file_uri="gs://a/b.mp4", mime_type="video/mp4")
    contents = {
        "user": [types.Part(text="See"), types.Part(inline_data=image)],
        "builder": [
            types.Part(text="Hm.", thought=True, thought_signature=b"s"),
            types.Part(executable_code=code),
            types.Part(function_call=call, thought_signature=b"t"),
        ],
        "user ": [types.Part(function_response=response)],
        "builder ": [types.Part(text="Hm.", thought=True), types.Part(text="Yes.")],
        "user  ": [types.Part(file_data=video)],
        "builder  ": [types.Part(text="Done.")],
    }
    model = Echo(model="gemini-echo", answers=[[types.Part(text="Yes.")]])
    conversation = Conversation(client, model, name)
    # Without the tool that removes turns, no message of the user gets an id.
    conversation.plugin._read_back = False
    session = await conversation.start()
    for author, parts in contents.items():
        role = "user" if author.startswith("user") else "model"
        event = Event(author=author.strip(), content=types.Content(role=role, parts=parts))
        await conversation.runner.session_service.append_event(session, event)
    await conversation.ask("And?")
    received = [part for it in model.received[0] for part in it.parts or []]
    assert received[:-1] == [part for parts in contents.values() for part in parts]
    await conversation.runner.close()


async def test_an_agent_in_a_loop_continues_its_response(client: Palimpsest, name: str) -> None:
    model = Echo(model="gemini-echo", answers=[[types.Part(text="one")], [types.Part(text="two")]])
    loop = LoopAgent(name="loop", sub_agents=[Agent(name="writer", model=model)], max_iterations=2)
    app = App(name="build", root_agent=loop, plugins=[PalimpsestPlugin("demo", client=client)])
    async with InMemoryRunner(app=app) as runner:
        await runner.run_debug("Count.", session_id=name, quiet=True)
    assert [[it.role for it in contents] for contents in model.received] == [["user"], ["user", "model"]]


async def test_each_agent_has_a_session(client: Palimpsest, chat_model: Any, provider: Provider, name: str) -> None:
    helper = Agent(name="helper", model=chat_model, description="Reads logs.")
    transfer = {"calls": [{"name": "transfer_to_agent", "input": {"agent_name": "helper"}}]}
    provider.script(chat_model.model, transfer, {"text": "I help."}, {"text": "Yes."})
    conversation = Conversation(client, chat_model, name, sub_agents=[helper])
    await conversation.start()
    assert texts(await conversation.ask("Help.")) == "I help."
    assert texts(await conversation.ask("Sure?")) == "Yes."
    titles = [it["name"].split("/")[-1] for it in client.sessions("demo") if name in it["name"]]
    assert sorted(titles) == [name, f"{name}.helper"]
    await conversation.runner.close()


async def test_a_tool_with_the_name_of_one_of_the_service(client: Palimpsest, name: str) -> None:
    conversation = Conversation(client, Echo(model="gemini-echo", answers=[]), name)
    agent: Any = conversation.runner.agent
    agent.tools.append(FunctionTool(Snip))
    await conversation.start()
    with pytest.raises(RuntimeError, match=r"names of tools of the service: Snip\."):
        await conversation.ask("Hello.")
    await conversation.runner.close()


def Snip() -> str:  # noqa: N802 - the name of a tool
    """Removes everything."""
    return ""


async def test_a_cancelled_run_leaves_no_request(name: str, tmp_path: Path) -> None:
    def prepare(client: Palimpsest) -> Any:
        conversation = Conversation(client, Echo(model="gemini-echo", answers=[]), name)
        conversation.plugin._read_back = False

        async def start() -> None:
            await conversation.start()
            await conversation.ask("Hello.")

        return start

    await check_cancelled_run(tmp_path / "data", name, prepare)
