"""A capability for agents of Pydantic AI: `Agent(..., capabilities=[PalimpsestCapability("demo")])`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import FunctionToolset, RetryModelRequest, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import (
    ERROR_OUTCOMES,
    BinaryContent,
    CachePoint,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from . import _adapter
from . import _blocks as blocks
from ._adapter import Adapter
from ._blocks import Source
from ._threads import in_thread
from .client import Palimpsest
from .errors import JsonObject, is_too_long
from .session import Session


class PalimpsestCapability(AbstractCapability[Any]):
    """Sends the view of a session to the model, and gives the model the tools of the service.

    The session has the id of the conversation (`conversation_id` of a run), or the name in `session`. The message
    history keeps the whole conversation. Requests to the service run in threads. `read_back=False` leaves out the tools
    of the service.
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
        self._adapter = Adapter(project, client)
        self._session = session
        self._read_back = read_back
        self._rejection: tuple[int, Exception] | None = None

    def session(self, conversation_id: str | None = None) -> Session:
        """Returns the session of a conversation, for example to undo a compaction."""
        return self._adapter.session(self._name(conversation_id))

    def _name(self, conversation_id: str | None) -> str:
        missing = "Pass `conversation_id`, or `session` to the capability."
        return _adapter.session_name(self._session, conversation_id, missing)

    async def for_run(self, ctx: RunContext[Any]) -> PalimpsestCapability:  # noqa: ARG002 - a hook
        """Returns the capability for one run, which remembers a rejected prompt."""
        return copy.copy(self)

    def get_toolset(self) -> Callable[[RunContext[Any]], Any] | None:
        """Returns the tools of the service."""
        return self._tools if self._read_back else None

    async def _tools(self, _: RunContext[Any]) -> FunctionToolset[Any]:
        definitions = await in_thread(self._adapter.definitions)
        return FunctionToolset([self._tool(it) for it in definitions])

    def _tool(self, definition: JsonObject) -> Tool[Any]:
        name = definition["name"]

        async def run(ctx: RunContext[Any], **arguments: Any) -> str:
            session = self._adapter.lanes.session_of(ctx.run_id, self._name(ctx.conversation_id))
            call_id = ctx.tool_call_id or name
            return await in_thread(self._adapter.run_tool, session, call_id, name, arguments)

        schema: Any = definition["input_schema"]
        tool: Tool[Any] = Tool.from_schema(run, name, definition["description"], schema, takes_ctx=True)
        return tool

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replaces the messages of this request by the view. The message history does not change."""
        too_long = self._rejection[1] if self._rejection and self._rejection[0] == ctx.run_step else None
        session = self._adapter.session(self._name(ctx.conversation_id))
        messages, lane = await in_thread(_view, session, request_context, too_long)
        self._adapter.lanes.remember(ctx.run_id, lane)
        return replace(request_context, messages=messages)

    async def on_model_request_error(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,  # noqa: ARG002 - a hook
        error: Exception,
    ) -> ModelResponse:
        """Repeats a request that the provider rejects as too long, once, with a shorter view."""
        is_rejection = isinstance(error, ModelContextWindowExceededError) or is_too_long(error)
        if not is_rejection or (self._rejection and self._rejection[0] == ctx.run_step):
            raise error
        self._rejection = (ctx.run_step, error)
        raise RetryModelRequest


@dataclass(frozen=True)
class _Piece:
    """One element of the list in a user prompt."""

    prompt: UserPromptPart
    content: Any


def _view(session: Session, request: ModelRequestContext, too_long: Exception | None) -> tuple[list[ModelMessage], str]:
    parameters = request.model_request_parameters
    instructions = [part.content for part in parameters.instruction_parts or []]
    prompts = [part for message in request.messages for part in message.parts if isinstance(part, SystemPromptPart)]
    messages, lane = _adapter.view(
        session,
        [_source(message) for message in request.messages],
        _part,
        _message,
        model=request.model.model_name,
        system="\n\n".join([*instructions, *(part.content for part in prompts)]),
        tools=[
            blocks.tool(it.name, it.description, it.parameters_json_schema)
            for it in [*parameters.function_tools, *parameters.output_tools]
        ],
        usage=_usage(request.messages),
        too_long=too_long,
    )
    # A system prompt stays, even if the message with it left the view.
    shown = {id(part) for message in messages for part in message.parts}
    hidden = [part for part in prompts if id(part) not in shown]
    return [ModelRequest(parts=hidden), *messages] if hidden else messages, lane


def _usage(messages: Sequence[ModelMessage]) -> tuple[int, int] | None:
    response = next((it for it in reversed(messages) if isinstance(it, ModelResponse)), None)
    if response is None or not response.usage.input_tokens:
        return None
    return response.usage.input_tokens, response.usage.output_tokens


def _source(message: ModelMessage) -> Source[ModelMessage, Any]:
    if isinstance(message, ModelResponse):
        items = [(_response_block(part), part) for part in message.parts]
        role = "assistant"
    else:
        items = [pair for part in message.parts for pair in _request_items(part)]
        role = "user"
    if items and all(block is None for block, _ in items):
        # A message without text, such as thinking alone, still has a place in the conversation.
        part = items[0][1]
        items[0] = (blocks.text(f"[{getattr(part, 'part_kind', 'empty')}]"), part)
    return Source(role, message, items)


def _response_block(part: Any) -> JsonObject | None:
    if isinstance(part, TextPart):
        return blocks.text_or_none(part.content)
    if isinstance(part, ToolCallPart):
        return blocks.call(part.tool_call_id, part.tool_name, part.args_as_dict())
    if isinstance(part, FilePart):
        return _content_block(part.content)
    return None


def _request_items(part: Any) -> list[tuple[JsonObject | None, Any]]:
    if isinstance(part, UserPromptPart):
        if isinstance(part.content, str):
            return [(blocks.text_or_none(part.content), part)]
        return [(_content_block(it), _Piece(part, it)) for it in part.content]
    if isinstance(part, ToolReturnPart):
        content = [_content_block(it) for it in part.content_items(mode="str")]
        is_error = part.outcome in ERROR_OUTCOMES
        return [(blocks.result(part.tool_call_id, [it for it in content if it], is_error=is_error), part)]
    if isinstance(part, RetryFeedbackPart):
        return [(blocks.text_or_none(part.model_response()), part)]
    return [(None, part)]


def _content_block(content: Any) -> JsonObject | None:
    if isinstance(content, str | TextContent):
        return blocks.text_or_none(content if isinstance(content, str) else content.content)
    if isinstance(content, CachePoint):
        return None
    if isinstance(content, BinaryContent):
        return blocks.file(content.media_type, content.data)
    if isinstance(content, UploadedFile):
        return blocks.document(f"[{content.media_type} {content.file_id}]")
    return blocks.file(content.media_type, content.url)


def _part(block: JsonObject, original: Any) -> Any:
    """Returns the part for a block that the service changed or added."""
    if isinstance(original, ToolReturnPart):
        return replace(original, content=_result_content(block["content"], original))
    if isinstance(original, _Piece):
        return replace(original, content=blocks.plain_text(block))
    if original is not None and block["type"] == "text":
        return replace(original, content=block["text"])
    if block["type"] == "tool_use":
        return ToolCallPart(block["name"], block["input"], tool_call_id=block["id"])
    if block["type"] == "tool_result":
        content = _result_content(block["content"], None)
        outcome: Any = "failed" if block.get("is_error") else "success"
        return ToolReturnPart(block["tool_name"], content, tool_call_id=block["tool_use_id"], outcome=outcome)
    return blocks.plain_text(block)


def _result_content(content: Any, original: ToolReturnPart[Any] | None) -> Any:
    """Returns the content of a result that the service changed. Files that stay are those of the original."""
    if isinstance(content, str):
        return content
    files = {json.dumps(_content_block(it)): it for it in (original.files if original else [])}
    return [files.get(json.dumps(block)) or blocks.plain_text(block) for block in content]


def _message(role: str, items: list[Any], base: ModelMessage | None) -> ModelMessage:
    if role == "assistant":
        parts: list[Any] = [TextPart(it) if isinstance(it, str) else it for it in items]
        return replace(base, parts=parts) if isinstance(base, ModelResponse) else ModelResponse(parts=parts)
    parts = []
    for item in items:
        if isinstance(item, _Piece):
            last = parts[-1] if parts else None
            if isinstance(last, list) and last[0].prompt is item.prompt:
                last.append(item)
            else:
                parts.append([item])
        else:
            parts.append(UserPromptPart(item) if isinstance(item, str) else item)
    shown = [_prompt(it) if isinstance(it, list) else it for it in parts]
    return replace(base, parts=shown) if isinstance(base, ModelRequest) else ModelRequest(parts=shown)


def _prompt(pieces: list[_Piece]) -> UserPromptPart:
    prompt = pieces[0].prompt
    content = [it.content for it in pieces]
    return prompt if blocks.is_same(content, prompt.content) else replace(prompt, content=content)
