"""The messages of a framework in a view: an unchanged message stays the object of the framework."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .errors import JsonObject

Message = TypeVar("Message")


def restored(
    view: Iterable[JsonObject],
    pairs: Iterable[tuple[JsonObject, Message]],
    with_content: Callable[[Message, Any], Message],
    new_message: Callable[[JsonObject], Message],
) -> list[Message]:
    """Returns the messages of a view in OpenAI's Chat format.

    `pairs` has each message of the framework with the form in which it was synced. `with_content` returns a tool result
    with the content that replaces it, and `new_message` returns a message that the service made.
    """
    originals: dict[tuple[Any, ...], list[tuple[JsonObject, Message]]] = defaultdict(list)
    for chat, message in pairs:
        originals[_key(chat)].append((chat, message))
    shown: list[Message] = []
    for chat in view:
        found = originals[_key(chat)]
        if not found:
            shown.append(new_message(chat))
            continue
        synced, message = found.pop(0)
        is_replaced = chat["role"] == "tool" and synced["content"] != chat["content"]
        shown.append(with_content(message, chat["content"]) if is_replaced else message)
    return shown


def _key(chat: JsonObject) -> tuple[Any, ...]:
    """Returns the identity of a message in an array. Call ids are unique, so texts beside them do not matter."""
    calls = tuple(call["id"] for call in chat.get("tool_calls") or [])
    return (chat["role"], chat.get("tool_call_id") or calls or json.dumps(chat.get("content")))
