"""The part that adapters for frameworks with messages of their own share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _blocks as blocks
from ._blocks import Item, Message, Source
from ._calls import session_id_of
from ._formats import Format
from ._lanes import Lanes
from .client import Palimpsest
from .errors import JsonObject, NotSendableError
from .session import Session
from .view import View

FORMAT: Format = "anthropic_messages"


class Adapter:
    """The sessions of a project, and the tools of the service. Arrays are synced in a format, and tools in `FORMAT`."""

    def __init__(self, project: str, client: Palimpsest | None, array_format: Format = FORMAT) -> None:
        self._client = client or Palimpsest()
        self._project = project
        self._format: Format = array_format
        self._definitions: list[JsonObject] | None = None
        self.lanes = Lanes()

    def session(self, name: str) -> Session:
        """Returns a session. Makes no call."""
        return self._client.session(self._project, name, self._format)

    def definitions(self) -> list[JsonObject]:
        """Returns the definitions of the tools of the service. They are requested once."""
        if self._definitions is None:
            self._definitions = self.session("tools").tools(FORMAT)
        return self._definitions

    def run_tool(self, session: str, call_id: str, name: str, arguments: Any) -> str:
        """Runs a call of a tool of the service."""
        content = self.session(session).run_tool(blocks.call(call_id, name, arguments))["content"]
        return "\n".join(blocks.plain_text(block) for block in blocks.as_blocks(content))


def view(
    session: Session,
    sources: Sequence[Source[Message, Item]],
    convert: Callable[[JsonObject, Item | None], Item],
    build: Callable[[str, list[Item], Message | None], Message],
    *,
    model: str,
    system: str,
    tools: list[JsonObject],
    usage: tuple[int, int] | None,
    too_long: BaseException | None,
) -> tuple[list[Message], str]:
    """Returns the messages of the view as those of the framework, and the id of the session that took the array.

    Unchanged messages are the same objects.

    `build` returns a message with a role, items, and the message of the framework that it replaces. `usage` has the
    input and output tokens of the last response in the array.
    """
    sources, ids = blocks.with_call_ids(sources)
    messages = blocks.array(sources)
    if not messages:
        return [source.message for source in sources], session._path.session
    body = {"model": model, "system": system, "tools": tools, "messages": messages}
    parameters = {"last_response": _last_response(model, messages, usage)} if usage else {}
    reply = session.sync(body, too_long=too_long, palimpsest=parameters)
    shown = [
        it.base if it.is_unchanged and it.base is not None else build(it.role, it.items, it.base)
        for it in blocks.restore(sendable(reply), sources, ids, convert)
    ]
    return shown, session_id_of(reply)


def session_name(fixed: str | None, given: str | None, missing: str) -> str:
    """Returns the fixed name of a session, or else the id of the framework's conversation. Without both, `missing`."""
    name = fixed or given
    if not name:
        raise ValueError(missing)
    return name


def check_names(given: Iterable[str], own: Iterable[str]) -> None:
    """Raises `ValueError` if a tool of an agent has the name of a tool of the service."""
    shared = set(own).intersection(given)
    if shared:
        names = ", ".join(sorted(shared))
        raise ValueError(f"The agent already has tools with the names of tools of the service: {names}.")


def sendable(view: View) -> list[JsonObject]:
    """Returns the messages of a view, or raises `NotSendableError`."""
    # The model class of the framework knows if the model accepts a conversation that ends with a response.
    if not view.sendable and view.not_sendable_reason != "ends_with_assistant":
        raise NotSendableError(view.not_sendable_reason)
    return view.messages


def _last_response(model: str, messages: list[JsonObject], usage: tuple[int, int]) -> JsonObject | None:
    """Returns the last response as the provider's body, so that its tokens are exact. None if there is none."""
    content = next((it["content"] for it in reversed(messages) if it["role"] == "assistant"), None)
    if content is None:
        return None
    counts = {"input_tokens": usage[0], "output_tokens": usage[1]}
    response = {"type": "message", "role": "assistant", "model": model, "content": content, "usage": counts}
    return {"format": FORMAT, "json": response}
