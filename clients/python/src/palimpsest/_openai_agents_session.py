"""A `Session` of the OpenAI Agents SDK whose history is stored by the service."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from agents import SessionSettings, TResponseInputItem
from agents.memory import SessionABC

from ._json import copied
from ._openai_agents_context import PalimpsestContext
from ._threads import in_thread
from .client import Palimpsest
from .errors import AbortedError, AlreadyExistsError, InvalidArgumentError, JsonObject, NotFoundError
from .session import Session

_Result = TypeVar("_Result")
# The attribute of a message with the spelling of its item.
_SPELLING = "openai_agents.spelling"
# The type of an item that contains an item of the SDK.
_OPAQUE = "openai_agents.item"
# The service returns the `call_id` of these items under another name.
_RENAMED = ("local_shell_call_output",)
# A rewound message was popped. All others belong to the history.
_IN_HISTORY = ["visible", "re_emission"]


class PalimpsestSession(PalimpsestContext, SessionABC):
    """Stores the history of a conversation in the service, and sends the view of a session to the model.

    `run_config` and the tools use the session with the given id. The history is its subagent session
    `{session_id}.history`, which `get_items` returns completely and unchanged. Requests to the service run in threads.
    """

    def __init__(
        self,
        project: str,
        session_id: str,
        *,
        client: Palimpsest | None = None,
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
    ) -> None:
        client = client or Palimpsest()
        super().__init__(project, session_id, client=client)
        self.session_id = session_id
        self.session_settings: SessionSettings | None = SessionSettings().resolve(cast(Any, session_settings))
        self._history = client.session(project, f"{session_id}.history", "openai_responses")
        self._is_created = False

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Returns the history, or its latest items in chronological order."""
        count = self.session_settings.limit if limit is None and self.session_settings else limit
        return [item for _, item in await in_thread(self._stored, count)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Appends items to the history."""
        if items:
            await _to_end(self._append, copied(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes the latest item from the history and returns it."""
        return await _to_end(self._pop)

    async def clear_session(self) -> None:
        """Deletes the history and the view."""
        await _to_end(self._clear)

    def _stored(self, count: int | None) -> list[tuple[str, TResponseInputItem]]:
        if count is not None and count <= 0:
            return []
        query: JsonObject = {"filter.visibilities": _IN_HISTORY, "page_size": min(count or 1_000, 1_000)}
        stored: list[tuple[str, TResponseInputItem]] = []
        try:
            for message in self._history.messages(descending=True, **query):
                stored += [(message["id"], _item_of(message))]
                if len(stored) == count:
                    break
        except NotFoundError:
            return []
        return stored[::-1]

    def _append(self, items: list[JsonObject]) -> None:
        if not self._is_created:
            # Retention and deletion treat both sessions as one, because the history names its parent.
            _create(self.session)
            _create(self._history, parent_session=self.session.name)
            self._is_created = True
        try:
            self._history.append([_opaque(it) if it.get("type") in _RENAMED else _message_of(it) for it in items])
        except InvalidArgumentError:
            # The SDK has no rules for items, so a history can contain some that no provider accepts.
            self._history.append([_opaque(item) for item in items])

    def _clear(self) -> None:
        self._is_created = False
        self.session.delete(subagents=True)
        # The history is no subagent session if its parent was deleted and created again meanwhile.
        self._history.delete()

    def _pop(self) -> TResponseInputItem | None:
        while True:
            try:
                revision = self._history.get()["revision"]
            except NotFoundError:
                return None
            stored = self._stored(1)
            if not stored:
                return None
            message_id, item = stored[0]
            # Another revision means that another process has popped or added an item.
            with contextlib.suppress(AbortedError):
                self._history.rewind(before_message_id=message_id, expected_revision=revision)
                return item


async def _to_end(change: Callable[..., _Result], *arguments: Any) -> _Result:
    """Runs a change in a thread. A cancelled caller waits for its end, so that its next call sees the outcome."""
    task = asyncio.ensure_future(asyncio.to_thread(change, *arguments))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled
    return task.result()


def _create(session: Session, **fields: Any) -> None:
    with contextlib.suppress(AlreadyExistsError):
        session.create(**fields)


def _message_of(item: JsonObject) -> JsonObject:
    """Returns the message of an item. Its attribute has the parts of the item that the service spells otherwise."""
    has_text = item.get("type", "message") == "message" and isinstance(item.get("content"), str)
    spelling = {"fields": list(item), "content_is_text": has_text}
    return {
        "payload": {"format": "openai_responses", "json": item},
        "metadata": {"attributes": {_SPELLING: json.dumps(spelling)}},
    }


def _opaque(item: JsonObject) -> JsonObject:
    """Returns a message with an item that the service stores without reading it."""
    return {"payload": {"format": "openai_responses", "json": {"type": _OPAQUE, "item": item}}}


def _item_of(message: JsonObject) -> TResponseInputItem:
    item: JsonObject = message["messages"][0]
    if item["type"] == _OPAQUE:
        return cast(TResponseInputItem, item["item"])
    attribute = message["metadata"]["attributes"].get(_SPELLING)
    if attribute is not None:
        spelling = json.loads(attribute)
        if spelling["content_is_text"]:
            item["content"] = "".join(part["text"] for part in item["content"])
        # The service omits fields that are null, and adds the type of a message.
        item = {name: item.get(name) for name in spelling["fields"]}
    return cast(TResponseInputItem, item)
