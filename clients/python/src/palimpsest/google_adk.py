"""A plugin for Google's Agent Development Kit: `App(..., plugins=[PalimpsestPlugin("demo")])`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.events import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from . import _adapter
from . import _blocks as blocks
from ._adapter import Adapter
from ._blocks import Source
from ._threads import in_thread
from .client import Palimpsest
from .errors import JsonObject, is_too_long
from .session import Session


class PalimpsestPlugin(BasePlugin):
    """Sends the view of a session to the model, and gives the model the tools of the service.

    Each agent has a session. That of the root agent has the id of the session of ADK, and those of other agents end
    with the name of the agent. `session_name` returns other names. The events of the session of ADK stay whole.
    `read_back=False` leaves out the tools of the service. Requests to the service run in threads.
    """

    def __init__(
        self,
        project: str,
        *,
        client: Palimpsest | None = None,
        session_name: Callable[[ReadonlyContext], str] | None = None,
        read_back: bool = True,
    ) -> None:
        super().__init__(name="palimpsest")
        self._adapter = Adapter(project, client)
        self._session_name = session_name or _session_name
        self._read_back = read_back

    def session(self, name: str) -> Session:
        """Returns a session, for example to undo a compaction."""
        return self._adapter.session(name)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Adds the tools of the service, and replaces the contents of the request by the view."""
        if self._read_back:
            definitions = await in_thread(self._adapter.definitions)
            tools: list[BaseTool] = [_ServiceTool(self._adapter, self._session_name, it) for it in definitions]
            _adapter.check_names(llm_request.tools_dict, [tool.name for tool in tools])
            llm_request.append_tools(tools)
        await self._show(callback_context, llm_request, llm_request.contents, None)
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Repeats a request that the provider rejects as too long, once, with a shorter view and without streaming."""
        contents = llm_request.contents
        if not isinstance(contents, _Shown) or not is_too_long(error):
            return None
        agent: Any = callback_context.get_invocation_context().agent
        await self._show(callback_context, llm_request, contents.whole, error)
        try:
            responses: list[LlmResponse] = [
                it async for it in agent.canonical_model.generate_content_async(llm_request, stream=False)
            ]
            return responses[-1]
        except Exception as second:
            # The flow then raises the first rejection.
            if is_too_long(second):
                return None
            raise

    async def _show(
        self,
        context: CallbackContext,
        request: LlmRequest,
        whole: list[types.Content],
        too_long: Exception | None,
    ) -> None:
        session = self._adapter.session(self._session_name(context))
        ids = _CallIds(whole, _stripped_ids(context))
        shown, lane = await in_thread(_view, session, request, whole, ids, _usage(context), too_long)
        self._adapter.lanes.remember(_run(context), lane)
        request.contents = _Shown(shown, whole)


class _Shown(list[types.Content]):
    """The contents of a view, and the whole contents that they replace."""

    def __init__(self, shown: Iterable[types.Content], whole: list[types.Content]) -> None:
        super().__init__(shown)
        self.whole = whole


class _ServiceTool(BaseTool):
    """A tool that the service runs."""

    def __init__(
        self, adapter: Adapter, session_name: Callable[[ReadonlyContext], str], definition: JsonObject
    ) -> None:
        super().__init__(name=definition["name"], description=definition["description"])
        self._adapter = adapter
        self._name_of = session_name
        self._schema = definition["input_schema"]

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> str:
        """Runs a call."""
        session = self._adapter.lanes.session_of(_run(tool_context), self._name_of(tool_context))
        call_id = tool_context.function_call_id or self.name
        return await in_thread(self._adapter.run_tool, session, call_id, self.name, args)


def _session_name(context: ReadonlyContext) -> str:
    agent: Any = context._invocation_context.agent
    root = getattr(agent, "root_agent", agent)
    is_root = root is None or root.name == context.agent_name
    return context.session.id if is_root else f"{context.session.id}.{context.agent_name}"


def _run(context: ReadonlyContext) -> tuple[str, str]:
    return context.invocation_id, context.agent_name


def _events(context: CallbackContext) -> list[Event]:
    """Returns the events of the session without those that a rewind removes from the contents."""
    events = list(context.session.events)
    index = len(events) - 1
    while index >= 0:
        rewound = events[index].actions.rewind_before_invocation_id
        if rewound:
            start = next((at for at in range(index) if events[at].invocation_id == rewound), index)
            del events[start : index + 1]
            index = start
        index -= 1
    return events


def _usage(context: CallbackContext) -> tuple[int, int] | None:
    own = (it.usage_metadata for it in reversed(_events(context)) if it.author == context.agent_name)
    usage = next((it for it in own if it), None)
    if usage is None or not usage.prompt_token_count:
        return None
    return usage.prompt_token_count, (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)


def _view(
    session: Session,
    request: LlmRequest,
    whole: list[types.Content],
    ids: _CallIds,
    usage: tuple[int, int] | None,
    too_long: Exception | None,
) -> tuple[list[types.Content], str]:
    instruction = request.config.system_instruction
    return _adapter.view(
        session,
        [_source(content, ids) for content in whole],
        _part,
        lambda role, parts, _: types.Content(role="model" if role == "assistant" else "user", parts=parts),
        model=request.model or "",
        system=instruction if isinstance(instruction, str) else "",
        tools=[_tool(it) for tool in request.config.tools or [] for it in _declarations(tool)],
        usage=usage,
        too_long=too_long,
    )


def _declarations(tool: Any) -> list[types.FunctionDeclaration]:
    return getattr(tool, "function_declarations", None) or []


def _tool(declaration: types.FunctionDeclaration) -> JsonObject:
    schema = declaration.parameters_json_schema
    if schema is None and declaration.parameters:
        schema = declaration.parameters.model_dump(mode="json", exclude_none=True)
    return blocks.tool(declaration.name or "", declaration.description, schema)


def _stripped_ids(context: CallbackContext) -> dict[str, list[str]]:
    """Returns the ids of the calls of an agent that are in the contents without their ids, by the digest of the call.

    ADK removes its own ids, and calls that have neither a response nor a tool that runs long.
    """
    events = _events(context)
    in_contents = {response.id for event in events for response in event.get_function_responses()}
    in_contents |= {call_id for event in events for call_id in event.long_running_tool_ids or ()}
    ids: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.author == context.agent_name:
            for call in event.get_function_calls():
                if call.id in in_contents and call.id and call.id.startswith("adk-"):
                    ids[_digest(call)].append(call.id)
    return ids


class _CallIds:
    """The ids of calls and responses. ADK removes its own ids from the request, and keeps them in its events.

    Equal calls are matched from the end, so a call keeps its id if the beginning of the contents is removed. A call
    that is in no event gets an id with the number of the equal calls before it.
    """

    def __init__(self, contents: Iterable[types.Content], ids: dict[str, list[str]]) -> None:
        self._counts: Counter[str] = Counter()
        self._open: dict[str, deque[str]] = defaultdict(deque)
        calls = [part.function_call for content in contents for part in content.parts or [] if part.function_call]
        self._totals = Counter(_digest(call) for call in calls if not call.id)
        self._ids = ids

    def of_call(self, call: types.FunctionCall) -> str:
        """Returns the id of the next call."""
        if call.id:
            return call.id
        digest = _digest(call)
        following = self._totals[digest] - self._counts[digest]
        self._counts[digest] += 1
        ids = self._ids.get(digest, [])
        known = ids[-following] if following <= len(ids) else ""
        call_id = known or f"call_{digest}_{self._counts[digest]}"
        self._open[call.name or ""].append(call_id)
        return call_id

    def of_response(self, response: types.FunctionResponse) -> str:
        """Returns the id of the first open call of the tool."""
        name = response.name or ""
        return response.id or (self._open[name].popleft() if self._open[name] else f"call_{name}")


def _digest(call: types.FunctionCall) -> str:
    text = (call.name or "") + json.dumps(call.args, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source(content: types.Content, ids: _CallIds) -> Source[types.Content, types.Part]:
    items = [(_block(part, ids), part) for part in content.parts or []]
    if items and all(block is None for block, _ in items):
        # A message without text, such as a thought alone, still has a place in the conversation.
        part = items[0][1]
        fields = part.model_dump(exclude_none=True, exclude={"text"})
        items[0] = (blocks.text(f"[{', '.join(fields) or 'empty'}]"), part)
    return Source("assistant" if content.role == "model" else "user", content, items)


def _block(part: types.Part, ids: _CallIds) -> JsonObject | None:
    if part.thought:
        return None
    if part.function_call:
        return blocks.call(ids.of_call(part.function_call), part.function_call.name or "", part.function_call.args)
    if part.function_response:
        response = part.function_response
        files = [block for it in response.parts or [] if (block := _file(it))]
        content = [blocks.text(_response_text(response.response)), *files]
        return blocks.result(ids.of_response(response), content, is_error="error" in (response.response or {}))
    return _file(part) or blocks.text_or_none(part.text)


def _file(part: types.Part | types.FunctionResponsePart) -> JsonObject | None:
    blob, reference = part.inline_data, part.file_data
    if blob and blob.data is not None:
        return blocks.file(blob.mime_type or "", blob.data, blob.display_name or "")
    if reference and reference.file_uri:
        return blocks.file(reference.mime_type or "", reference.file_uri, reference.display_name or "")
    return None


def _response_text(response: dict[str, Any] | None) -> str:
    """Returns a response as text. ADK puts text into `result`, and MCP into `content`."""
    response = response or {}
    content = response.get("content")
    if isinstance(content, list) and all(isinstance(it, dict) and it.get("type") == "text" for it in content):
        return "\n".join(it["text"] for it in content)
    if response.keys() == {"result"} and isinstance(response["result"], str):
        return response["result"]
    return json.dumps(response, ensure_ascii=False, default=str)


def _part(block: JsonObject, original: types.Part | None) -> types.Part:
    """Returns the part for a block that the service changed or added."""
    if block["type"] == "tool_result":
        given = original.function_response if original else None
        response = given or types.FunctionResponse(id=block["tool_use_id"], name=block["tool_name"])
        inner = blocks.as_blocks(block["content"])
        files = [it for it in response.parts or [] if _file(it) in inner]
        text = "\n".join(it["text"] for it in inner if it["type"] == "text")
        field = "error" if block.get("is_error") else "result"
        changed = response.model_copy(update={"response": {field: text}, "parts": files or None})
        return types.Part(function_response=changed)
    if block["type"] == "tool_use":
        return types.Part(function_call=types.FunctionCall(id=block["id"], name=block["name"], args=block["input"]))
    text = blocks.plain_text(block)
    return original.model_copy(update={"text": text}) if original and original.text else types.Part(text=text)
