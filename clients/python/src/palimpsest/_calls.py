"""Requests of sessions and the meaning of their answers, shared by the sync and the async client."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ._formats import Format, Response, ToolCall, format_of_body, read_fields, view_target
from ._transport import Request
from .errors import ApiError, JsonObject
from .view import View

# Events of the levels that change the view. A rewind by the array of the caller is none of them.
_UNDOABLE = ("content_snipped", "results_cleared", "spans_collapsed", "compacted")


@dataclass(frozen=True)
class SessionPath:
    """The path of a session below `/v1`."""

    project: str
    session: str

    @property
    def name(self) -> str:
        """The resource name."""
        return f"projects/{self.project}/sessions/{self.session}"

    def create(self, fields: JsonObject) -> Request:
        """Returns the creation of the session."""
        body = {"request_id": str(uuid.uuid4()), "session_id": self.session, "session": fields}
        return Request("POST", f"/projects/{self.project}/sessions", body)

    def read(self, suffix: str = "", **query: Any) -> Request:
        """Returns a read of the session."""
        return Request("GET", f"/{self.name}{suffix}", query=query)

    def post(self, suffix: str, body: JsonObject) -> Request:
        """Returns a call without a `request_id`: a read, or a sync."""
        return Request("POST", f"/{self.name}{suffix}", body)

    def change(self, suffix: str, body: Mapping[str, Any], method: str = "POST") -> Request:
        """Returns a change. The `request_id` makes its retries safe."""
        return Request(method, f"/{self.name}{suffix}", {"request_id": str(uuid.uuid4()), **body})


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
    return path.post(":sync", {**read_fields(body), "palimpsest": given})


def view_stream(path: SessionPath, reply: JsonObject) -> Request | None:
    """Returns the request for the messages that a reply omits because of its size."""
    if not reply.get("view_omitted"):
        return None
    return path.post(":stream", {"etag": reply["etag"], "skip_messages": reply["keep_messages"]})


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


def call_body(call: ToolCall) -> JsonObject:
    """Returns the body of `callTool`."""
    return {"payload": {"format": call.format, "json": call.json}}


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
