"""A conversation manager for agents of Strands: `Agent(conversation_manager=PalimpsestConversationManager(...))`."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import AsyncGenerator
from typing import Any

from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AgentInitializedEvent, BeforeInvocationEvent, HookRegistry
from strands.middleware import InvokeModelContext, InvokeModelStage, MiddlewareNext
from strands.tools.tools import PythonAgentTool
from strands.types.exceptions import ContextWindowOverflowException
from strands.types.tools import ToolResult, ToolUse

from . import _adapter
from . import _blocks as blocks
from ._adapter import Adapter
from ._blocks import Source
from ._threads import in_thread
from .client import Palimpsest
from .errors import JsonObject, is_too_long
from .session import Session


class PalimpsestConversationManager(ConversationManager):
    """Sends the view of a session to the model, and gives the model the tools of the service.

    `agent.messages`, and a session manager of Strands, keep the whole conversation. Requests to the service run in
    threads. One agent uses a conversation manager. `read_back=False` leaves out the tools of the service.
    """

    def __init__(self, project: str, session: str, *, client: Palimpsest | None = None, read_back: bool = True) -> None:
        super().__init__()
        self._adapter = Adapter(project, client)
        self._name = session
        self._rejection: Exception | None = None
        self._lane = session
        self._read_back = read_back
        self._has_tools = False

    @property
    def session(self) -> Session:
        """The session, for example to undo a compaction."""
        return self._adapter.session(self._name)

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Adds the tools of the service and the middleware to the agent."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._on_initialized)
        registry.add_callback(BeforeInvocationEvent, self._add_tools)

    def _on_initialized(self, event: AgentInitializedEvent) -> None:
        event.agent.add_middleware(InvokeModelStage, self._invoke_model)

    async def _add_tools(self, event: BeforeInvocationEvent) -> None:
        # The agent is created without a request. Its tools are complete before its first model call.
        if self._read_back and not self._has_tools:
            tools = [self._tool(it) for it in await in_thread(self._adapter.definitions)]
            registry = event.agent.tool_registry
            _adapter.check_names(registry.registry, [tool.tool_name for tool in tools])
            for tool in tools:
                registry.register_tool(tool)
            self._has_tools = True

    def apply_management(self, agent: Any, **kwargs: Any) -> None:
        """Changes nothing: the messages of the agent stay whole."""

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ARG002 - a hook
        """Makes the repeated model call use a shorter view. A prompt is shortened once."""
        if e is None:
            return
        if self._rejection is not None:
            self._rejection = None
            raise e
        self._rejection = e

    async def _invoke_model(
        self, context: InvokeModelContext, next_fn: MiddlewareNext[InvokeModelContext, Any]
    ) -> AsyncGenerator[Any, None]:
        # A rejection belongs to the next repeat alone. `reduce_context` needs it only after another overflow.
        rejection, self._rejection = self._rejection, None
        view, self._lane = await in_thread(_view, self.session, context, rejection)
        try:
            async for event in next_fn(context.replace(messages=view)):
                yield event
        except Exception as error:
            is_overflow = isinstance(error, ContextWindowOverflowException)
            # The models of Strands do not recognize each form of this rejection.
            if not is_overflow and not is_too_long(error):
                raise
            self._rejection = rejection
            if is_overflow:
                raise
            raise ContextWindowOverflowException(str(error)) from error

    def _tool(self, definition: JsonObject) -> PythonAgentTool:
        name = definition["name"]

        def run(tool: ToolUse, **_: Any) -> ToolResult:
            text = self._adapter.run_tool(self._lane, tool["toolUseId"], name, tool["input"])
            return {"toolUseId": tool["toolUseId"], "status": "success", "content": [{"text": text}]}

        spec: Any = {
            "name": name,
            "description": definition["description"],
            "inputSchema": {"json": definition["input_schema"]},
        }
        return PythonAgentTool(name, spec, run)


def _view(session: Session, context: InvokeModelContext, too_long: Exception | None) -> tuple[list[Any], str]:
    messages: list[Any] = list(context.messages)
    # Middleware of Strands can add blocks that exist in this call only. They are no part of the conversation.
    trailing: list[Any] = []
    if context.dynamic_trailing_blocks:
        content = messages[-1]["content"]
        trailing = content[-context.dynamic_trailing_blocks :]
        messages[-1] = {**messages[-1], "content": content[: -context.dynamic_trailing_blocks]}
    config: Any = context.model.get_config()
    shown, lane = _adapter.view(
        session,
        [_source(message) for message in messages],
        _content,
        lambda role, content, base: {**(base or {"role": role}), "content": content},
        model=config.get("model_id", ""),
        system=_system(context.system_prompt),
        tools=[blocks.tool(it["name"], it["description"], _schema(it)) for it in context.tool_specs],
        usage=_usage(messages),
        too_long=too_long,
    )
    if trailing:
        shown[-1] = {**shown[-1], "content": [*shown[-1]["content"], *trailing]}
    return shown, lane


def _system(prompt: Any) -> str:
    return prompt or "" if not isinstance(prompt, list) else "\n".join(it["text"] for it in prompt if "text" in it)


def _schema(spec: Any) -> Any:
    schema = spec["inputSchema"]
    return schema.get("json", schema)


def _usage(messages: list[Any]) -> tuple[int, int] | None:
    response: Any = next((it for it in reversed(messages) if it["role"] == "assistant"), {})
    usage = response.get("metadata", {}).get("usage")
    # The input tokens of some models include those of the cache. The total always does.
    return (usage["totalTokens"] - usage["outputTokens"], usage["outputTokens"]) if usage else None


def _source(message: Any) -> Source[Any, Any]:
    items = [(_block(content), content) for content in message["content"]]
    if items and all(block is None for block, _ in items):
        # A message without text, such as reasoning alone, still has a place in the conversation.
        content = items[0][1]
        items[0] = (blocks.text(f"[{next(iter(content))}]"), content)
    return Source(message["role"], message, items)


def _block(content: Any) -> JsonObject | None:
    if "toolUse" in content:
        use = content["toolUse"]
        return blocks.call(use["toolUseId"], use["name"], use["input"])
    if "toolResult" in content:
        result = content["toolResult"]
        inner = [_block(it) for it in result["content"]]
        is_error = result.get("status") == "error"
        return blocks.result(result["toolUseId"], [it for it in inner if it], is_error=is_error)
    if "json" in content:
        return blocks.text(json.dumps(content["json"], ensure_ascii=False, default=str))
    if "guardContent" in content:
        return blocks.text_or_none(content["guardContent"]["text"]["text"])
    if "citationsContent" in content:
        return blocks.text_or_none("".join(it.get("text", "") for it in content["citationsContent"]["content"]))
    for kind in ("image", "document", "video", "audio"):
        if kind in content:
            return _file(kind, content[kind])
    return blocks.text_or_none(content.get("text"))


def _file(kind: str, file: Any) -> JsonObject:
    source, extension = file["source"], file["format"]
    fallback = f"{kind}/{extension}" if kind != "document" else "text/plain"
    media_type = mimetypes.guess_type(f"_.{extension}")[0] or fallback
    name = file.get("name", "")
    if "bytes" in source:
        return blocks.file(media_type, source["bytes"], name)
    return blocks.document(f"[{name or kind} {media_type} {source.get('location', {}).get('uri', '')}]")


def _content(block: JsonObject, original: Any) -> Any:
    """Returns the content block for a block that the service changed or added."""
    if block["type"] == "tool_result":
        status = "error" if block.get("is_error") else "success"
        result = original["toolResult"] if original else {"toolUseId": block["tool_use_id"], "status": status}
        places = {json.dumps(_block(it)): it for it in result.get("content", [])}
        content = [
            places.get(json.dumps(it)) or {"text": blocks.plain_text(it)} for it in blocks.as_blocks(block["content"])
        ]
        return {"toolResult": {**result, "content": content}}
    if block["type"] == "tool_use":
        return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
    return {"text": blocks.plain_text(block)}
