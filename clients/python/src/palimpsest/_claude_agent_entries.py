"""The entries of transcripts of Claude Code as messages of the service."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import JsonObject

# The type of a block that contains an entry.
_OPAQUE = "claude_agent.entry"
# The attributes of a message that contain its entry without the content.
_ENVELOPE = "claude_agent.envelope."
# The service limits the size of one attribute, and of all attributes of a message or session together.
_CHUNK = 16_000
_MAX_CHUNKS = 3
# The service does not return these fields of blocks.
_OMITTED = "cache_control"


def message_of(entry: JsonObject, *, opaque: bool = False) -> JsonObject:
    """Returns the message for an entry. `entry_of` returns an equal entry for it."""
    message = None if opaque else _conversation(entry)
    if message is None:
        block = (
            {"type": _OPAQUE, "entry": entry} if _is_unicode(entry) else {"type": _OPAQUE, "json": json.dumps(entry)}
        )
        payload = {"format": "anthropic_messages", "json": {"role": "user", "content": [block]}}
        message = {"payload": payload, "metadata": {"transcript_only": True}}
    if entry.get("uuid"):
        message["id"] = _message_id(str(entry["uuid"]))
    return message


def entry_of(message: JsonObject) -> JsonObject | None:
    """Returns the entry of a message, or None if the message is none of an entry."""
    content: list[JsonObject] = message["messages"][0]["content"] if message["messages"] else []
    if content and content[0]["type"] == _OPAQUE:
        block = content[0]
        entry: JsonObject = block["entry"] if "entry" in block else json.loads(block["json"])
        return entry
    envelope: JsonObject | None = value_of(message["metadata"]["attributes"], _ENVELOPE)
    if envelope is None:
        return None
    is_text = envelope["message"]["content"] == ""
    envelope["message"]["content"] = "".join(block["text"] for block in content) if is_text else content
    return envelope


def entries_of(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """Returns the entries of messages, without those that a rewind removed from the view.

    Claude Code reads entries as a tree, so the entries that continue a removed message are left out too.
    """
    pairs = [(message, entry) for message in messages if (entry := entry_of(message)) is not None]
    if all(message["visibility"] != "rewound" for message, _ in pairs):
        return [entry for _, entry in pairs]
    parents: dict[str, str | None] = {it["uuid"]: it.get("parentUuid") for _, it in pairs if it.get("uuid")}
    kept: set[str] = set()
    for message, entry in pairs:
        if message["visibility"] not in ("rewound", "transcript_only"):
            # With its ancestors, because an agent that runs during the rewind still continues a removed message.
            ancestor = entry.get("uuid")
            while ancestor in parents and ancestor not in kept:
                kept.add(ancestor)
                ancestor = parents[ancestor]
    for message, entry in pairs:
        # The boundary of a compaction has no parent. It stays only as an ancestor of the summary.
        if message["visibility"] == "transcript_only" and entry.get("uuid") and entry.get("parentUuid") in kept:
            kept.add(entry["uuid"])

    def stays(message: JsonObject, entry: JsonObject) -> bool:
        node = entry.get("uuid") or entry.get("leafUuid")
        return node in kept if node in parents else message["visibility"] != "rewound"

    return [entry for message, entry in pairs if stays(message, entry)]


def attributes_of(name: str, value: JsonObject) -> dict[str, str] | None:
    """Returns attributes that contain a value as JSON, or None if the value is too large for them."""
    text = json.dumps(value)
    chunks = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
    if len(chunks) > _MAX_CHUNKS:
        return None
    return {f"{name}{index}": chunk for index, chunk in enumerate(chunks)}


def value_of(attributes: Mapping[str, str], name: str) -> JsonObject | None:
    """Returns the value that `attributes_of` wrote under a name, or None if there is none."""
    chunks = [attributes.get(f"{name}{index}", "") for index in range(_MAX_CHUNKS)]
    value: JsonObject | None = json.loads("".join(chunks)) if chunks[0] else None
    return value


def _conversation(entry: JsonObject) -> JsonObject | None:
    """Returns a message of the conversation, or None if the entry has no message that the service returns equal."""
    body: Any = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or not isinstance(body, dict) or not _is_unicode(body):
        return None
    content: Any = body.get("content")
    if body.get("role") != entry["type"] or not (isinstance(content, str) or _is_returned(content)):
        return None
    empty: str | list[Any] = "" if isinstance(content, str) else []
    attributes = attributes_of(_ENVELOPE, {**entry, "message": {**body, "content": empty}})
    if attributes is None:
        return None
    metadata: JsonObject = {"attributes": attributes, "machine_generated": entry.get("isMeta") is True}
    if entry.get("timestamp"):
        metadata["create_time"] = entry["timestamp"]
    return {"payload": {"format": "anthropic_messages", "json": body}, "metadata": metadata}


def _is_returned(content: Any) -> bool:
    """Returns true if the service returns equal blocks. It omits fields that are null, and cache breakpoints."""
    return isinstance(content, list) and all(
        isinstance(block, dict)
        and isinstance(block.get("type"), str)
        and _OMITTED not in block
        and None not in block.values()
        and (not isinstance(block.get("content"), list) or _is_returned(block["content"]))
        for block in content
    )


def _is_unicode(value: JsonObject) -> bool:
    """Returns false if a text has a half of a surrogate pair, which JSON of the service cannot contain."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _message_id(entry_id: str) -> str:
    """Returns the id of the message of an entry. Messages with the same id are stored once."""
    try:
        return str(uuid.UUID(entry_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, entry_id))
