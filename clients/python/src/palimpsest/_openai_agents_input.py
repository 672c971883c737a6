"""The filter of model inputs and the tools of the service, for the OpenAI Agents SDK."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from agents import AgentBase, FunctionTool, Handoff, RunContextWrapper, Tool, handoff
from agents.models import get_default_model
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.models.interface import Model
from agents.models.openai_responses import Converter
from agents.run_config import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from ._calls import session_id_of
from ._openai_agents_usage import LastUsage
from ._threads import in_thread
from .errors import JsonObject
from .session import Session

_logger = logging.getLogger("palimpsest")
# The session and the agent of the last model call of this task, and the session of its view.
_lane: ContextVar[tuple[str, str, str]] = ContextVar("palimpsest_lane", default=("", "", ""))


def input_filter(
    session: Session, run_model: str | Model | None
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Returns a value for `RunConfig.call_model_input_filter`, which replaces the input by the view of a session.

    `run_model` is the model of the `RunConfig`, which the filter does not receive. The run, and a `Session` of the
    SDK, keep the whole conversation. Requests to the service run in threads. The usage of responses is known if the
    agent has the `tools` of the same session.
    """

    async def filter_input(data: CallModelData[Any]) -> ModelInputData:
        usage, agent, items = LastUsage.of(session), data.agent, list(data.model_data.input)
        model = _name(run_model or agent.model)
        context = usage.context(agent.name, items)
        tools = await _definitions(data, model, context or RunContextWrapper(data.context))
        body: JsonObject = {"model": model, "tools": tools, "input": items}
        if data.model_data.instructions:
            body["instructions"] = data.model_data.instructions
        parameters = {"last_response": usage.last_response(agent.name, model, items)}
        view = await in_thread(session.sync, body, palimpsest=parameters)
        usage.expect(agent.name, context, items)
        # The agent calls its tools before its next model call, in this task or in its children.
        lane = session_id_of(view)
        _lane.set((session.name, agent.name, lane))
        # A run that continues from a `RunState` begins with calls of tools.
        session._state.lanes.remember(("agent", agent.name), lane)
        shown: Any = [_with_id(item) for item in view.request["input"]]
        return ModelInputData(shown, data.model_data.instructions)

    return filter_input


def _with_id(item: JsonObject) -> JsonObject:
    """Returns an item of a view in the form that all models of the SDK accept.

    The view has no ids of messages, because the Responses API rejects the id of a message without its reasoning item.
    For Chat Completions, the SDK reads a response only with an id. For the Responses API, it removes this id.
    """
    if item.get("type") == "message" and item.get("role") == "assistant":
        return {"id": FAKE_RESPONSES_ID, **item}
    return item


def _name(model: str | Model | None) -> str:
    if model is None:
        return get_default_model()
    name = str(model if isinstance(model, str) else getattr(model, "model", ""))
    if not name:
        _logger.warning("%s has no attribute `model`, so its context window is unknown.", type(model).__name__)
    return name


async def _definitions(data: CallModelData[Any], model: str, context: RunContextWrapper[Any]) -> list[Any]:
    """Returns the tools of the request, and those of handoffs. The service counts their tokens."""
    agent = data.agent
    handoffs = [it if isinstance(it, Handoff) else handoff(it) for it in agent.handoffs]
    own = await agent.get_all_tools(context)
    try:
        converted = Converter.convert_tools(
            own,
            # A handoff can be disabled by a function, which only the SDK evaluates.
            [it for it in handoffs if it.is_enabled is not False],
            allow_opaque_tool_search_surface=True,
            model=model,
            tool_choice=agent.model_settings.tool_choice,
        )
    except Exception as error:
        # The model of the run can accept tools that the Responses API does not know.
        _logger.warning("The tools of the agent are not counted: %s", type(error).__name__)
        return []
    return list(converted.tools)


def tools(session: Session) -> list[Tool]:
    """Returns the tools of the service. The first call for a session makes a request."""
    return [_tool(session, definition) for definition in session.tools("openai_responses")]


def _lane_of(session: Session, agent: str) -> str:
    name, caller, lane = _lane.get()
    is_known = (name, caller) == (session.name, agent)
    return lane if is_known else session._state.lanes.session_of(("agent", agent), session._path.session)


def _tool(session: Session, definition: JsonObject) -> Tool:
    name = definition["name"]

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        call = {"type": "function_call", "call_id": context.tool_call_id, "name": name, "arguments": arguments}
        lane = _lane_of(session, context.agent.name if context.agent else "")
        session._state.lanes.remember(context.tool_call_id, lane)
        return (await in_thread(session.run_tool, call))["output"]

    def is_enabled(context: RunContextWrapper[Any], agent: AgentBase[Any]) -> bool:
        # The filter receives no context of the run, which has the usage. The SDK passes it here before each call.
        LastUsage.of(session).observe(agent.name, context)
        return True

    description, schema = definition["description"], definition["parameters"]
    return FunctionTool(name, description, schema, invoke, strict_json_schema=False, is_enabled=is_enabled)
