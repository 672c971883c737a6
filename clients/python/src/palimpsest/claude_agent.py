"""A `SessionStore` of the Claude Agent SDK: `ClaudeAgentOptions(session_store=PalimpsestSessionStore("demo"))`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import cast

from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

from ._claude_agent_entries import attributes_of, entries_of, entry_of, message_of, value_of
from .client import Palimpsest
from .errors import (
    AbortedError,
    AlreadyExistsError,
    InvalidArgumentError,
    JsonObject,
    NotFoundError,
    ResourceExhaustedError,
)
from .session import Session

# The attributes of sessions. A key of the SDK is no valid id, so the ids contain a digest of it.
_ID, _SUBPATH, _SUMMARY = "claude_agent.session_id", "claude_agent.subpath", "claude_agent.summary."
_EMPTY: JsonObject = {"entries": 0, "data": {}}


class PalimpsestSessionStore(SessionStore):
    """Stores the transcripts of Claude Code in the sessions of a project.

    The messages of a transcript are messages of the session, and its other entries are stored beside them. The
    transcript of a subagent is a subagent session. `SessionKey.project_key` is the `project_path` of the sessions.
    Requests to the service run in threads.
    """

    def __init__(self, project: str, *, client: Palimpsest | None = None) -> None:
        self._client = client or Palimpsest()
        self._project = project
        self._created: set[str] = set()

    def session(self, key: SessionKey) -> Session:
        """Returns the session of a transcript, for example to search it."""
        path = "/".join([key["project_key"], *_subpaths(key)])
        digest = hashlib.sha256(path.encode()).hexdigest()[:12]
        return self._client.session(self._project, f"{key['session_id']}.{digest}", "anthropic_messages")

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Appends entries of a transcript. An entry with a known `uuid` is stored once."""
        if entries:
            await asyncio.to_thread(self._append, key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Returns the entries of a transcript in order, or None if it does not exist.

        Entries that `Session.rewind` removed are left out, until `Session.restore` brings them back.
        """
        return await asyncio.to_thread(self._load, key)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Returns the ids of the transcripts of a project with the time of their last change."""
        sessions = await asyncio.to_thread(self._sessions, project_key)
        return [{"session_id": it["attributes"][_ID], "mtime": _milliseconds(it)} for it in sessions]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Returns the summaries of the SDK for the transcripts of a project."""
        sessions = await asyncio.to_thread(self._sessions, project_key)
        summaries = [(it, _summary_of(it)) for it in sessions]
        return [
            {"session_id": it["attributes"][_ID], "mtime": _milliseconds(it), "data": summary["data"]}
            for it, summary in summaries
            # The SDK reads a transcript whose summary is too large or does not have all entries.
            if summary["data"] is not None and summary["entries"] == it["counts"]["messages"]
        ]

    async def delete(self, key: SessionKey) -> None:
        """Deletes a transcript, and with the main transcript also those of its subagents."""
        self._created.clear()
        await asyncio.to_thread(self.session(key).delete, subagents=not _subpaths(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Returns the subpaths of the transcripts of subagents."""
        main = self.session(cast(SessionKey, key))
        listed = await asyncio.to_thread(self._listed, {"filter.parent_session": main.name})
        return [it["attributes"][_SUBPATH] for it in listed]

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        session = self.session(key)
        if session.name not in self._created:
            self._create(key)
            self._created.add(session.name)
        is_new = _store(session, entries)
        if not _subpaths(key) and any(is_new):
            _fold(session, key, [it for it, new in zip(entries, is_new, strict=True) if new])

    def _create(self, key: SessionKey) -> None:
        main: SessionKey = {"project_key": key["project_key"], "session_id": key["session_id"]}
        fields = {"project_path": key["project_key"], "attributes": {_ID: key["session_id"]}}
        with contextlib.suppress(AlreadyExistsError):
            self.session(main).create(**fields)
        for subpath in _subpaths(key):
            with contextlib.suppress(AlreadyExistsError):
                self.session(key).create(parent_session=self.session(main).name, attributes={_SUBPATH: subpath})

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        try:
            entries = entries_of(self.session(key).messages(page_size=1_000))
        except NotFoundError:
            return None
        return cast(list[SessionStoreEntry], entries) or None

    def _sessions(self, project_key: str) -> list[JsonObject]:
        listed = self._listed({"filter.project_path": project_key, "filter.main_only": True})
        # A session without messages was created as the parent of a subagent session.
        return [it for it in listed if _ID in it["attributes"] and it["counts"]["messages"]]

    def _listed(self, query: JsonObject) -> list[JsonObject]:
        return list(self._client.sessions(self._project, page_size=1_000, **query))


def _subpaths(key: SessionKey) -> list[str]:
    subpath = key.get("subpath")
    return [subpath] if subpath else []


def _milliseconds(session: JsonObject) -> int:
    return int(datetime.fromisoformat(session["update_time"].replace("Z", "+00:00")).timestamp() * 1_000)


def _store(session: Session, entries: Sequence[SessionStoreEntry]) -> list[bool]:
    """Appends entries and returns true for each one that is new."""
    try:
        reply = session.append([message_of(cast(JsonObject, it)) for it in entries])
    except InvalidArgumentError:
        # The messages of an entry can have a form that is unknown to the service.
        reply = session.append([message_of(cast(JsonObject, it), opaque=True) for it in entries])
    except AlreadyExistsError:
        if len(entries) == 1:
            return [False]
        return [is_new for it in entries for is_new in _store(session, [it])]
    return [it["outcome"] != "duplicate" for it in reply["append"]["messages"]]


def _summary_of(session: JsonObject) -> JsonObject:
    """Returns the summary of a session. Its `data` is None if it is too large for the attributes."""
    return value_of(session["attributes"], _SUMMARY) or _EMPTY


def _fold(session: Session, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
    """Adds entries to the summary of the session, which is in its attributes."""
    while True:
        stored = session.get()
        before, added = _summary_of(stored), entries
        if before["data"] is None:
            # A later entry can replace the value that was too large, so the summary is made of all entries.
            every = (entry_of(it) for it in session.messages(page_size=1_000))
            before, added = _EMPTY, cast(list[SessionStoreEntry], [it for it in every if it is not None])
        known: SessionSummaryEntry = {"session_id": key["session_id"], "mtime": 0, "data": before["data"]}
        folded = fold_session_summary(known if before["entries"] else None, key, added)
        count = before["entries"] + len(added)
        if _set_summary(session, key, stored, {"entries": count, "data": folded["data"]}):
            return


def _set_summary(session: Session, key: SessionKey, stored: JsonObject, summary: JsonObject) -> bool:
    """Stores a summary in the attributes. Returns false if another process changed the session meanwhile."""
    without_data = {**summary, "data": None}
    chunks = attributes_of(_SUMMARY, summary)
    if chunks is None:
        return _set_summary(session, key, stored, without_data)
    others = {name: value for name, value in stored["attributes"].items() if not name.startswith(_SUMMARY)}
    attributes = {**others, _ID: key["session_id"], **chunks}
    try:
        session.update(attributes=attributes, project_path=key["project_key"], expected_revision=stored["revision"])
    except AbortedError:
        return False
    except ResourceExhaustedError:
        # The attributes of the caller leave too little space.
        if summary == without_data:
            raise
        return _set_summary(session, key, stored, without_data)
    return True
