"""A `FunctionAgent` of LlamaIndex whose model receives the view of a session."""

import json
import uuid
from collections.abc import Sequence
from typing import Any, cast

from llama_index.core.agent.workflow import AgentOutput, FunctionAgent
from llama_index.core.agent.workflow.agent_context import AgentContext
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import BaseModel, PrivateAttr
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import AsyncBaseTool, FunctionTool, ToolMetadata
from llama_index.core.workflow import Context

from ._adapter import Adapter, check_names, sendable, session_name
from ._calls import session_id_of
from ._originals import restored, with_call_ids
from ._threads import in_thread
from .client import Palimpsest
from .errors import JsonObject, is_too_long
from .session import Session

# The id of the session of the last view of a run. A side request has a session of its own.
_LANE = "palimpsest.session"


class _ServiceTool(FunctionTool):
    """A tool that the service runs."""


class PalimpsestAgent(FunctionAgent):
    """Sends the view of a session to the model, and gives the model the tools of the service.

    The session has the `session_id` of the `Memory` of a run, or is `session`. The memory keeps the whole
    conversation. `read_back=False` leaves out the tools of the service. The other arguments are those of
    `FunctionAgent`. Requests to the service run in threads.
    """

    _adapter: Adapter = PrivateAttr()
    _session: str | None = PrivateAttr()
    _read_back: bool = PrivateAttr()

    def __init__(
        self,
        project: str,
        *,
        client: Palimpsest | None = None,
        session: str | None = None,
        read_back: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._adapter = Adapter(project, client, "openai_chat")
        self._session = session
        self._read_back = read_back

    def session(self, session_id: str | None) -> Session:
        """Returns the session of a memory, for example to undo a compaction."""
        return self._adapter.session(self._name(session_id))

    def _name(self, session_id: str | None) -> str:
        missing = "Pass a `Memory` with a `session_id` to run(), or `session` to the agent."
        return session_name(self._session, session_id, missing)

    async def _with_own(self, tools: Sequence[AsyncBaseTool]) -> list[AsyncBaseTool]:
        """Returns tools with those of the service. The first step adds them to the agent, which runs calls of them."""
        if not self._read_back:
            return list(tools)
        given = [it for it in tools if not isinstance(it, _ServiceTool)]
        own = [self._tool(it) for it in await in_thread(self._adapter.definitions)]
        check_names([str(it.metadata.name) for it in given], [str(it.metadata.name) for it in own])
        self.tools = [*(it for it in self.tools or [] if not isinstance(it, _ServiceTool)), *own]
        return [*given, *own]

    async def take_step(
        self, ctx: AgentContext, llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: BaseMemory
    ) -> AgentOutput:
        """Calls the model with the view. A prompt that it rejects as too long is shortened once."""
        session = self.session(getattr(memory, "session_id", None))
        # The messages of a run are in the scratchpad until its end. The step of the base class would append them.
        scratchpad: list[ChatMessage] = await ctx.store.get(self.scratchpad_key, default=[])
        messages = [*llm_input, *scratchpad]
        await ctx.store.set(self.scratchpad_key, [])
        try:
            tools = await self._with_own(tools)
            view, lane = await in_thread(self._view, session, messages, tools, None)
            await ctx.store.set(_LANE, lane)
            try:
                return await super().take_step(ctx, view, tools, memory)
            except Exception as error:
                if not is_too_long(error):
                    raise
                view, lane = await in_thread(self._view, session, messages, tools, error)
                await ctx.store.set(_LANE, lane)
            return await super().take_step(ctx, view, tools, memory)
        finally:
            response = await ctx.store.get(self.scratchpad_key, default=[])
            await ctx.store.set(self.scratchpad_key, [*scratchpad, *response])

    def _view(
        self,
        session: Session,
        messages: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        too_long: Exception | None,
    ) -> tuple[list[ChatMessage], str]:
        chats, ids = with_call_ids([_to_chat(it) for it in messages])
        body = {
            "model": self.llm.metadata.model_name,
            "messages": chats,
            "tools": [it.metadata.to_openai_tool(skip_length_check=True) for it in tools],
        }
        view = session.sync(body, too_long=too_long)
        shown = restored(sendable(view), chats, messages, ids, _with_content, _new_message)
        return shown, session_id_of(view)

    def _tool(self, definition: JsonObject) -> _ServiceTool:
        name = definition["name"]

        async def run(ctx: Context[Any], **arguments: Any) -> str:
            memory: Any = await ctx.store.get("memory")
            lane = await ctx.store.get(_LANE, default=None)
            session = lane or self._name(getattr(memory, "session_id", None))
            # LlamaIndex does not pass the id of a call to its tool.
            call_id = f"call_{uuid.uuid4().hex}"
            return await in_thread(self._adapter.run_tool, session, call_id, name, arguments)

        metadata = ToolMetadata(definition["description"], name, _schema(definition["input_schema"]))
        return _ServiceTool(async_fn=run, metadata=metadata)


def _schema(parameters: JsonObject) -> type[BaseModel]:
    """Returns a class with a JSON schema of the service."""

    class Parameters(BaseModel):
        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> JsonObject:
            return parameters

    return Parameters


def _to_chat(message: ChatMessage) -> JsonObject:
    """Returns a message in OpenAI's Chat format. Only text, images and calls are sent."""
    role = message.role.value
    texts = [block.text for block in message.blocks if isinstance(block, TextBlock)]
    images = [block for block in message.blocks if isinstance(block, ImageBlock)]
    chat: JsonObject = {"role": role, "content": "\n".join(texts)}
    if message.role in (MessageRole.TOOL, MessageRole.FUNCTION):
        return {**chat, "role": "tool", "tool_call_id": message.additional_kwargs["tool_call_id"]}
    if images and message.role == MessageRole.USER:
        parts: list[JsonObject] = [{"type": "text", "text": text} for text in texts]
        chat["content"] = [*parts, *({"type": "image_url", "image_url": {"url": _url(it)}} for it in images)]
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if message.role == MessageRole.ASSISTANT and not calls and not chat["content"].strip():
        # A response without text, such as an image alone, still has a place in the conversation.
        chat["content"] = f"[{', '.join(it.block_type for it in message.blocks) or 'empty'}]"
    if calls:
        chat["tool_calls"] = [{"id": it.tool_call_id, "type": "function", "function": _function(it)} for it in calls]
    return chat


def _function(call: ToolCallBlock) -> JsonObject:
    is_text = isinstance(call.tool_kwargs, str)
    return {"name": call.tool_name, "arguments": call.tool_kwargs if is_text else json.dumps(call.tool_kwargs)}


def _url(image: ImageBlock) -> str:
    if image.url:
        return str(image.url)
    data = image.resolve_image(as_base64=True).read().decode()
    return f"data:{image.image_mimetype};base64,{data}"


def _with_content(message: ChatMessage, content: Any) -> ChatMessage:
    # The service does not know the other blocks, such as audio, so they stay.
    others = [block for block in message.blocks if not isinstance(block, (TextBlock, ImageBlock))]
    return message.model_copy(update={"blocks": [*_blocks(content), *others]})


def _new_message(chat: JsonObject) -> ChatMessage:
    """Returns a message that the service made."""
    blocks = _blocks(chat.get("content") or [])
    for call in chat.get("tool_calls") or []:
        function = call["function"]
        blocks.append(
            ToolCallBlock(tool_call_id=call["id"], tool_name=function["name"], tool_kwargs=function["arguments"])
        )
    options = {"tool_call_id": chat["tool_call_id"]} if "tool_call_id" in chat else {}
    return ChatMessage(role=MessageRole(chat["role"]), blocks=blocks, additional_kwargs=options)


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [TextBlock(text=content)] if content else []
    return [
        TextBlock(text=part["text"]) if part["type"] == "text" else ImageBlock(url=cast(Any, part["image_url"]["url"]))
        for part in content
    ]
