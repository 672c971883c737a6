"""The messages of a framework in a view: an unchanged message stays the object of the framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ._blocks import without_turn_id
from ._call_ids import CallIds
from ._match import Key, last_places
from .errors import JsonObject

Message = TypeVar("Message")
# The longest id of a call in OpenAI's Chat format.
_LONGEST_ID = 40


def with_call_ids(messages: Sequence[JsonObject]) -> tuple[list[JsonObject], CallIds]:
    """Returns messages of OpenAI's Chat format with ids of calls that the service keeps, and the original ids."""
    ids = CallIds(_LONGEST_ID)
    return [_renamed(message, ids.of_call, ids.of_result) for message in messages], ids


def restored(
    view: Sequence[JsonObject],
    synced: Sequence[JsonObject],
    messages: Sequence[Message],
    ids: CallIds,
    with_content: Callable[[Message, Any], Message],
    new_message: Callable[[JsonObject], Message],
) -> list[Message]:
    """Returns the messages of a view in OpenAI's Chat format.

    `synced` has the form in which each of `messages` was synced. `with_content` returns a message with the content that
    replaces it, and `new_message` returns a message that the service made.
    """
    places = last_places([_key(chat) for chat in view], [(number, _key(chat)) for number, chat in enumerate(synced)])
    shown: list[Message] = []
    for chat, place in zip(view, places, strict=True):
        if place is None:
            shown.append(new_message(_renamed(chat, ids.original, ids.original)))
            continue
        is_replaced = chat["role"] != "assistant" and synced[place]["content"] != chat["content"]
        shown.append(with_content(messages[place], chat["content"]) if is_replaced else messages[place])
    return shown


def _renamed(chat: JsonObject, of_call: Callable[[Any], Any], of_result: Callable[[Any], Any]) -> JsonObject:
    if chat.get("tool_calls"):
        return {**chat, "tool_calls": [{**call, "id": of_call(call["id"])} for call in chat["tool_calls"]]}
    if "tool_call_id" in chat:
        return {**chat, "tool_call_id": of_result(chat["tool_call_id"])}
    return chat


def _key(chat: JsonObject) -> Key:
    """Returns the identity of a message in an array. Ids of calls are unique, so texts beside them do not matter."""
    ids = [call["id"] for call in chat.get("tool_calls") or []] or chat.get("tool_call_id")
    if ids:
        return Key(f"{chat['role']} {json.dumps(ids)}", has_id=True)
    content = chat.get("content") or ""
    if isinstance(content, str):
        return Key(f"{chat['role']} {without_turn_id(content)}")
    return Key(f"{chat['role']} {json.dumps([_without_turn_id(part) for part in content])}")


def _without_turn_id(part: JsonObject) -> JsonObject:
    return {**part, "text": without_turn_id(part["text"])} if part.get("type") == "text" else part
