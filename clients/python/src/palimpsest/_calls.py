"""Requests of sessions and the meaning of their answers, shared by the sync and the async client."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._formats import Format, Response, ToolCall, format_of_body, read_fields, view_target
from ._transport import Request, check_id
from .errors import ApiError, JsonObject
from .view import View

# Events of the levels that change the view. A rewind by the array of the caller is none of them.
_UNDOABLE = ("content_snipped", "results_cleared", "spans_collapsed", "compacted")


@dataclass(frozen=True)
class SessionPath:
    """The ids of a session and its project."""

    project: str
    session: str

    def __post_init__(self) -> None:
        # An invalid id fails here, before a call with the wrong path reaches another session.
        check_id("project", self.project)
        check_id("session", self.session)

    @classmethod
    def of(cls, name: str) -> SessionPath:
        """Returns the ids in a resource name."""
        _, project, _, session = name.split("/")
        return cls(project, session)

    @property
    def name(self) -> str:
        """The resource name."""
        return f"projects/{self.project}/sessions/{self.session}"

    def create(self, fields: JsonObject) -> Request:
        """Returns the creation of the session."""
        request = self.change("CreateSession", {"session_id": self.session, "session": fields})
        return replace(request, session=None)

    def call(self, rpc: str, /, **fields: Any) -> Request:
        """Returns a call without a `request_id`: a read, a sync or a deletion."""
        return Request(rpc, self.project, self.session, fields)

    def change(self, rpc: str, fields: Mapping[str, Any]) -> Request:
        """Returns a change. The `request_id` makes its retries safe."""
        return self.call(rpc, **{"request_id": str(uuid.uuid4()), **fields})


def sync_request(
    path: SessionPath,
    body: Mapping[str, Any],
    declared: Format | None,
    last_response: Response | None,
    cache_breakpoints: bool | JsonObject,
    too_long: BaseException | str | None,
    parameters: Mapping[str, Any] | None,
) -> Request:
    """Returns the request of a sync. `parameters` overrides the values that the package sets."""
    body_format = format_of_body(body, declared)
    values: JsonObject = {"format": body_format, "target": view_target(body, body_format)}
    if last_response:
        values["last_response"] = {"format": last_response.format, "json": last_response.json}
    if cache_breakpoints:
        values["cache_breakpoints"] = cache_breakpoints if isinstance(cache_breakpoints, Mapping) else {}
    if too_long is not None:
        values["prompt_too_long"] = {"error_text": str(too_long)}
    values.update(parameters or {})
    given = {name: value for name, value in values.items() if value is not None}
    return path.call("SyncContext", **read_fields(body), palimpsest=given)


def view_stream(reply: JsonObject) -> Request | None:
    """Returns the request for the messages that a reply omits because of its size."""
    if not reply.get("view_omitted"):
        return None
    # A lane has a view of its own.
    lane = SessionPath.of(reply["session"])
    return lane.call("StreamContext", etag=reply["etag"], skip_messages=reply["keep_messages"])


def view_of(body: Mapping[str, Any], reply: JsonObject, chunks: Iterable[JsonObject]) -> View:
    """Returns the view of a reply, with the messages of its stream."""
    # A reply without its messages still has the system messages of the caller.
    messages = list(reply.get("messages", []))
    is_complete = not reply.get("view_omitted")
    for chunk in chunks:
        messages += chunk["messages"]
        is_complete = chunk["last"]
    if not is_complete:
        raise ApiError("The stream of the view ended early. Sync again.")
    return View(body, messages, reply)


def session_id_of(view: View) -> str:
    """Returns the id of the session that took the array of a view. That of a side request is a lane."""
    return SessionPath.of(view.session).session


def call_body(call: ToolCall) -> JsonObject:
    """Returns the body of `callTool`."""
    return {"payload": {"format": call.format, "json": call.json}}


class WatchPosition:
    """The revision after which a watch resumes, and the events that the service repeats then."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._repeatable: set[tuple[int, frozenset[str]]] = set()

    def is_new(self, element: JsonObject) -> bool:
        """Moves to an element. Returns true if it has an event that was not seen before."""
        self.revision = element["revision"]
        is_new = False
        if "event" in element:
            # Two events of one kind have different revisions. The kind is the name of a field.
            event = (element["event"]["revision"], frozenset(element["event"]))
            is_new = event not in self._repeatable
            self._repeatable.add(event)
        # Between two events of one revision, the position is before this revision.
        self._repeatable = {it for it in self._repeatable if it[0] > self.revision}
        return is_new


def undo_query() -> JsonObject:
    """Returns the query for the events that `undo_revision` reads."""
    return {"descending": True, "kinds": [*_UNDOABLE, "context_restored"]}


class UndoSearch:
    """Finds the revision before the last view-changing event that is not undone. Events arrive latest first."""

    def __init__(self) -> None:
        self._below: int | None = None

    def revision_before(self, event: JsonObject) -> int | None:
        """Returns the revision to restore, or None if an earlier event decides."""
        if self._below is not None and event["revision"] > self._below:
            return None
        if "context_restored" in event:
            self._below = event["context_restored"]["to_revision"]
            return None
        return int(event["revision"]) - 1
