"""A middleware for agents of LangChain: `create_agent(..., middleware=[PalimpsestMiddleware("demo")])`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ._adapter import Adapter, check_names, sendable, session_name
from ._calls import session_id_of
from ._originals import restored, with_call_ids
from ._threads import in_thread
from .client import Palimpsest
from .errors import JsonObject, is_too_long
from .session import Session


class PalimpsestMiddleware(AgentMiddleware[Any, Any, Any]):
    """Sends the view of a session to the model, and gives the model the tools of the service.

    The session has the id of the thread (`configurable.thread_id`). The state of the agent keeps the whole
    conversation. The middleware works with every chat model, and calls of `ainvoke` and `astream` run the
    requests to the service in threads. `read_back=False` leaves out the tools of the service.
    """

    def __init__(
        self,
        project: str,
        *,
        client: Palimpsest | None = None,
        session: str | None = None,
        read_back: bool = True,
    ) -> None:
        super().__init__()
        self._adapter = Adapter(project, client, "openai_chat")
        self._session = session
        self._read_back = read_back

    def session(self, thread_id: str | None) -> Session:
        """Returns the session of a thread, for example to undo a compaction."""
        return self._adapter.session(self._name(thread_id))

    def _name(self, thread_id: str | None) -> str:
        missing = "Pass `configurable.thread_id` in the config of the call, or `session` to the middleware."
        return session_name(self._session, thread_id, missing)

    def _running(self, request: ModelRequest[Any] | ToolCallRequest) -> str:
        # The config of the run is no alternative: tasks of Python 3.10 do not inherit its context variable.
        execution = getattr(request.runtime, "execution_info", None)
        return self._name(execution.thread_id if execution else None)

    def _show(self, name: str, request: ModelRequest[Any], too_long: Exception | None) -> _Shown:
        # Tools of `AgentMiddleware.tools` would be requested when the agent is created.
        own = [_tool(it) for it in self._adapter.definitions()] if self._read_back else []
        check_names(map(_tool_name, request.tools), [it.name for it in own])
        whole = request.override(tools=[*request.tools, *own])
        return _with_view(self._adapter.session(name), whole, too_long)

    def _may_be_own(self, request: ToolCallRequest) -> bool:
        # The tools of the service are those of model requests alone, so the agent does not have them.
        return self._read_back and request.tool is None

    def _is_own(self, request: ToolCallRequest) -> bool:
        # A run can begin with the calls of a stored response, before the tools are known.
        return any(it["name"] == request.tool_call["name"] for it in self._adapter.definitions())

    def _remember(self, name: str, shown: _Shown, response: ModelResponse[Any]) -> ModelResponse[Any]:
        calls = [call for message in response.result if isinstance(message, AIMessage) for call in message.tool_calls]
        for call in calls:
            self._adapter.lanes.remember((name, call["id"]), shown.session)
        return response

    def _run_own(self, request: ToolCallRequest) -> ToolMessage:
        name, call = self._running(request), request.tool_call
        call_id = call["id"] or ""
        lane = self._adapter.lanes.session_of((name, call_id), name)
        text = self._adapter.run_tool(lane, call_id, call["name"], call["args"])
        return ToolMessage(text, tool_call_id=call_id, name=call["name"])

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Calls the model with the view. A prompt that it rejects as too long is shortened once."""
        name = self._running(request)
        shown = self._show(name, request, None)
        try:
            response = handler(shown.request)
        except Exception as error:
            if not is_too_long(error):
                raise
            shown = self._show(name, request, error)
            response = handler(shown.request)
        return self._remember(name, shown, response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Calls the model with the view, as `wrap_model_call` does."""
        name = self._running(request)
        shown = await in_thread(self._show, name, request, None)
        try:
            response = await handler(shown.request)
        except Exception as error:
            if not is_too_long(error):
                raise
            shown = await in_thread(self._show, name, request, error)
            response = await handler(shown.request)
        return self._remember(name, shown, response)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Lets the service run calls of its tools."""
        if self._may_be_own(request) and self._is_own(request):
            return self._run_own(request)
        return handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Lets the service run calls of its tools."""
        if self._may_be_own(request) and await in_thread(self._is_own, request):
            return await in_thread(self._run_own, request)
        return await handler(request)


class _Shown(NamedTuple):
    """A request with a view, and the id of the session of the view."""

    request: ModelRequest[Any]
    session: str


def _tool(definition: JsonObject) -> BaseTool:
    def run(**_: Any) -> str:
        raise RuntimeError("The service runs this tool in wrap_tool_call of PalimpsestMiddleware.")

    return StructuredTool.from_function(
        run, name=definition["name"], description=definition["description"], args_schema=definition["input_schema"]
    )


def _tool_name(tool: BaseTool | dict[str, Any]) -> str:
    # A tool that the provider runs has a format of the provider.
    return str(tool.get("function", tool).get("name", "") if isinstance(tool, dict) else tool.name)


def _with_view(session: Session, request: ModelRequest[Any], too_long: Exception | None) -> _Shown:
    system = [request.system_message] if request.system_message else []
    chats, ids = with_call_ids([_to_chat(message) for message in request.messages])
    body = {
        "model": getattr(request.model, "model_name", None) or getattr(request.model, "model", ""),
        "messages": [*map(_to_chat, system), *chats],
        "tools": [convert_to_openai_tool(tool) for tool in request.tools],
    }
    parameters = {"last_response": _last_response(request.messages, chats)}
    view = session.sync(body, too_long=too_long, palimpsest=parameters)
    # Responses stay the objects of the agent, with thinking and signatures.
    messages = restored(sendable(view)[len(system) :], chats, request.messages, ids, _with_content, _new_message)
    return _Shown(request.override(messages=messages), session_id_of(view))


def _to_chat(message: AnyMessage) -> JsonObject:
    """Returns a message in OpenAI's Chat format. Only text and calls of a response are sent."""
    if not isinstance(message, AIMessage):
        converted: Any = convert_to_openai_messages(message)
        return dict(converted)
    chat: JsonObject = {"role": "assistant", "content": str(message.text)}
    calls = [(it["id"], it["name"], json.dumps(it["args"])) for it in message.tool_calls]
    # The arguments of these calls are no JSON. LangChain answers them with an error result.
    calls += [
        (it["id"], it["name"] or "", it["args"] or "") for it in message.invalid_tool_calls if it["id"] is not None
    ]
    if not calls and not chat["content"].strip():
        # A response without text, such as an image alone, still has a place in the conversation.
        chat["content"] = f"[{', '.join(it['type'] for it in message.content_blocks) or 'empty'}]"
    if calls:
        chat["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    return chat


def _last_response(messages: list[AnyMessage], chats: list[JsonObject]) -> JsonObject | None:
    """Returns the last response with its usage, so that the service counts tokens as the provider does."""
    pairs = zip(reversed(messages), reversed(chats), strict=True)
    last, chat = next(((it, chat) for it, chat in pairs if isinstance(it, AIMessage)), (None, {}))
    if last is None or not last.usage_metadata:
        return None
    usage = {
        "prompt_tokens": last.usage_metadata["input_tokens"],
        "completion_tokens": last.usage_metadata["output_tokens"],
    }
    choice = {"index": 0, "message": chat, "finish_reason": "tool_calls" if last.tool_calls else "stop"}
    name = last.response_metadata.get("model_name", "")
    completion = {"id": last.id, "object": "chat.completion", "model": name, "choices": [choice], "usage": usage}
    return {"format": "openai_chat", "json": completion}


def _with_content(message: AnyMessage, content: Any) -> AnyMessage:
    return message.model_copy(update={"content": content})


def _new_message(chat: JsonObject) -> AnyMessage:
    """Returns a message that the service made."""
    calls, invalid = [], []
    for call in chat.get("tool_calls") or []:
        try:
            calls.append(parse_tool_call(call, return_id=True))
        except OutputParserException:
            invalid.append(make_invalid_tool_call(call, None))
    if calls or invalid:
        return AIMessage(chat.get("content") or "", tool_calls=calls, invalid_tool_calls=invalid)
    converted: Any = convert_to_messages([chat])[0]
    return cast(AnyMessage, converted)
