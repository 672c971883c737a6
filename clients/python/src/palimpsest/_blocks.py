"""Messages of a framework as messages of Anthropic's format, and back to the objects of the framework.

Blocks of this format have a counterpart in the messages of most frameworks, also images and errors in tool results.
The model of the agent can be one of any provider, because its own adapter writes the request.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ._call_ids import CallIds
from ._match import Key, last_places
from .errors import JsonObject

Message = TypeVar("Message")
Item = TypeVar("Item")
# The longest id of a call in Anthropic's format.
_LONGEST_ID = 64
# The service ends a user message with the id of its turn, if the model has the tool that removes turns.
_TURN_ID = re.compile(r"\n?\[id:\w+\]$")


@dataclass(frozen=True)
class Source(Generic[Message, Item]):
    """A message of a framework, and the block for each of its items.

    An item without a block, such as thinking, is not sent to the service. It stays with its message.
    """

    role: str
    message: Message
    items: Sequence[tuple[JsonObject | None, Item]]


@dataclass(frozen=True)
class Restored(Generic[Message, Item]):
    """A message of a view with the items of the framework. `base` is its last message of the framework, if any."""

    role: str
    items: list[Item]
    base: Message | None
    #: True if the message is `base` itself.
    is_unchanged: bool


def array(sources: Iterable[Source[Message, Item]]) -> list[JsonObject]:
    """Returns the whole array to send to the service."""
    messages = [(it.role, [block for block, _ in it.items if block is not None]) for it in sources]
    return [{"role": role, "content": blocks} for role, blocks in messages if blocks]


def with_call_ids(sources: Iterable[Source[Message, Item]]) -> tuple[list[Source[Message, Item]], CallIds]:
    """Returns the sources with ids of calls that the service keeps, and the original ids."""
    ids = CallIds(_LONGEST_ID)

    def known(block: JsonObject | None) -> JsonObject | None:
        if block is not None and block["type"] == "tool_use":
            return {**block, "id": ids.of_call(block["id"])}
        if block is not None and block["type"] == "tool_result":
            return {**block, "tool_use_id": ids.of_result(block["tool_use_id"])}
        return block

    return [replace(it, items=[(known(block), item) for block, item in it.items]) for it in sources], ids


def restore(
    view: Sequence[JsonObject],
    sources: Sequence[Source[Message, Item]],
    ids: CallIds,
    convert: Callable[[JsonObject, Item | None], Item],
) -> Iterator[Restored[Message, Item]]:
    """Yields the messages of a view. An unchanged block becomes its item.

    `convert` returns the item for any other block. Its second argument is the item that the block replaces. A result
    without an item has the name of its tool in `tool_name`.
    """
    known = [
        (number, index, block)
        for number, source in enumerate(sources)
        for index, (block, _) in enumerate(source.items)
        if block is not None
    ]
    shown = [(message["role"], block) for message in view for block in as_blocks(message["content"])]
    names = {block["id"]: block["name"] for _, block in shown if block["type"] == "tool_use"}
    found = last_places(
        [_key(role, block) for role, block in shown],
        [(number, _key(sources[number].role, block)) for number, _, block in known],
    )
    places = iter(None if it is None else known[it][:2] for it in found)
    for message in view:
        items: list[Item] = []
        base, position = -1, 0
        for block in as_blocks(message["content"]):
            place = next(places)
            if place is None:
                items.append(convert(_original(block, ids, names), None))
                continue
            number, index = place
            if number != base:
                items += _without_block(sources, base, position, None)
                base, position = number, 0
            items += _without_block(sources, base, position, index)
            position = index + 1
            original, item = sources[number].items[index]
            items.append(item if block == original else convert(_original(block, ids, names), item))
        items += _without_block(sources, base, position, None)
        last = sources[base] if base >= 0 else None
        is_unchanged = last is not None and is_same([item for _, item in last.items], items)
        yield Restored(message["role"], items, last.message if last else None, is_unchanged)


def _original(block: JsonObject, ids: CallIds, names: dict[str, str]) -> JsonObject:
    """Returns a block of the view with the id that the framework knows, and the name of the tool."""
    if block["type"] == "tool_use":
        return {**block, "id": ids.original(block["id"])}
    if block["type"] == "tool_result":
        call_id = block["tool_use_id"]
        return {**block, "tool_use_id": ids.original(call_id), "tool_name": names.get(call_id, "")}
    return block


def is_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Returns true if two lists have the same objects."""
    return len(one) == len(other) and all(it is that for it, that in zip(one, other, strict=True))


def _without_block(sources: Sequence[Source[Message, Item]], number: int, start: int, end: int | None) -> list[Item]:
    """Returns the items between two places of a message that have no block."""
    if number < 0:
        return []
    return [item for block, item in sources[number].items[start:end] if block is None]


def _key(role: str, block: JsonObject) -> Key:
    """Returns the identity of a block. Calls and results have ids, so their content can differ."""
    if block["type"] in ("tool_use", "tool_result"):
        return Key(f"{block['type']} {block.get('id') or block.get('tool_use_id')}", has_id=True)
    if block["type"] == "text":
        return Key(f"{role} text {without_turn_id(block['text'])}")
    return Key(f"{role} {json.dumps(block, sort_keys=True)}")


def without_turn_id(value: str) -> str:
    """Returns the text of a message without the id of its turn."""
    return _TURN_ID.sub("", value)


def as_blocks(content: Any) -> list[JsonObject]:
    """Returns content of a message or result as blocks."""
    return [text(content)] if isinstance(content, str) else list(content)


def text(value: str) -> JsonObject:
    """Returns a block with text."""
    return {"type": "text", "text": value}


def text_or_none(value: str | None) -> JsonObject | None:
    """Returns a block with text, or None for text that providers reject."""
    return text(value) if value and value.strip() else None


def call(call_id: str, name: str, arguments: Any) -> JsonObject:
    """Returns a block with a tool call."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments if isinstance(arguments, dict) else {}}


def result(call_id: str, content: Sequence[JsonObject], *, is_error: bool = False) -> JsonObject:
    """Returns a block with the result of a call. Results of text only are sent as text, which can be stored."""
    is_text = all(block["type"] == "text" for block in content)
    value: Any = "\n".join(block["text"] for block in content) if is_text else list(content)
    block = {"type": "tool_result", "tool_use_id": call_id, "content": value}
    return {**block, "is_error": True} if is_error else block


def file(media_type: str, data: bytes | str, name: str = "") -> JsonObject:
    """Returns a block with an image, a PDF or a text. `data` is the content or its URL.

    Other files are described in text, so that the service counts them and can remove them from the view.
    """
    kind = "image" if media_type.startswith("image/") else "document"
    if kind == "image" or media_type == "application/pdf":
        if isinstance(data, str):
            return {"type": kind, "source": {"type": "url", "url": data}}
        encoded = base64.b64encode(data).decode()
        return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": encoded}}
    if media_type.startswith("text/") and isinstance(data, bytes):
        return document(data.decode(errors="replace"))
    size = data if isinstance(data, str) else f"{len(data)} bytes"
    return document(f"[{' '.join(it for it in (name, media_type, size) if it)}]")


def document(value: str) -> JsonObject:
    """Returns a block with a text that is no text of the user."""
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": value}}


def tool(name: str, description: str | None, schema: Any) -> JsonObject:
    """Returns the definition of a tool."""
    return {"name": name, "description": description or "", "input_schema": schema or {"type": "object"}}


def plain_text(block: JsonObject) -> str:
    """Returns the text of a block that has no counterpart in the framework."""
    return str(block["text"]) if block["type"] == "text" else json.dumps(block, ensure_ascii=False)
