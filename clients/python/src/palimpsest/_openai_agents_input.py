"""The filter of model inputs and the tools of the service, for the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agents import AgentBase, FunctionTool, Tool
from agents.run_config import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from ._calls import session_id_of
from .errors import JsonObject
from .session import Session


def input_filter(session: Session) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Returns a value for `RunConfig.call_model_input_filter`, which replaces the input by the view of a session.

    The run, and a `Session` of the SDK, keep the whole conversation. Requests to the service run in threads.
    """

    async def filter_input(data: CallModelData[Any]) -> ModelInputData:
        model = data.agent.model
        body: JsonObject = {"model": model if isinstance(model, str) else getattr(model, "model", "")}
        body["input"] = data.model_data.input
        if data.model_data.instructions:
            body["instructions"] = data.model_data.instructions
        view = await asyncio.to_thread(session.sync, body)
        # The agent calls its tools before its next model call.
        session._state.lanes.remember(_key(data.agent), session_id_of(view))
        items: Any = view.request["input"]
        return ModelInputData(items, data.model_data.instructions)

    return filter_input


def tools(session: Session) -> list[Tool]:
    """Returns the tools of the service, for `Agent(tools=...)`. The model reads removed content with them."""
    return [_tool(session, definition) for definition in session.tools("openai_responses")]


def _key(agent: AgentBase[Any] | None) -> tuple[str, str]:
    return "agent", agent.name if agent else ""


def _tool(session: Session, definition: JsonObject) -> Tool:
    name = definition["name"]

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        call = {"type": "function_call", "call_id": context.tool_call_id, "name": name, "arguments": arguments}
        lanes = session._state.lanes
        lanes.remember(context.tool_call_id, lanes.session_of(_key(context.agent), session._path.session))
        return (await asyncio.to_thread(session.run_tool, call))["output"]

    description, schema = definition["description"], definition["parameters"]
    return FunctionTool(name, description, schema, invoke, strict_json_schema=False)
