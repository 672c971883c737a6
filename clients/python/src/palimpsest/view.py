"""The view: the array to send to the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ._formats import array_field
from ._json import copied
from .errors import JsonObject, NotSendableError


class Budget(TypedDict):
    """The used and free tokens of the context window, and the thresholds of the levels."""

    state: Literal["normal", "warning", "critical", "exhausted"]
    model: str
    window_tokens: int
    effective_window_tokens: int
    used_tokens: int
    remaining_tokens: int
    remaining_percent: float
    free_tokens: int
    warn_at_tokens: int
    error_at_tokens: int
    compact_at_tokens: int
    block_at_tokens: int
    autocompact_buffer_tokens: int
    auto_enabled: bool
    consecutive_failures: int
    auto_paused: bool


class Tokens(TypedDict):
    """The token count of the model request."""

    total_tokens: int
    method: str
    anchor_tokens: int
    anchor_message_id: str
    tail_tokens: int
    removed_tokens: int
    calibration_factor: float
    breakdown: dict[str, int]


class ViewWarning(TypedDict):
    """A problem that did not fail the call."""

    code: str
    detail: str
    message_id: str


@dataclass(frozen=True)
class View:
    """The reply to a sync. `reply` is its JSON with all fields of `SyncContextResponse`."""

    body: Mapping[str, Any] = field(repr=False)
    #: The whole array to send to the model instead of that of the body.
    messages: list[JsonObject] = field(repr=False)
    reply: JsonObject = field(repr=False)

    @property
    def request(self) -> dict[str, Any]:
        """The body with the view, for `create(**view.request)`.

        Raises `NotSendableError` if the view is not sendable.
        """
        if not self.sendable:
            raise NotSendableError(self.not_sendable_reason)
        request = {**self.body, array_field(self.body): self.messages}
        return with_breakpoints(request, self.reply.get("cache_breakpoints", []))

    @property
    def session(self) -> str:
        """The resource name of the session that took the array. A side request has a session of its own."""
        return str(self.reply["session"])

    @property
    def outcome(self) -> str:
        """The relation of the array to the last one, such as `extended` or `rewound`."""
        return str(self.reply["outcome"])

    @property
    def sendable(self) -> bool:
        """True if the view may be sent to the model."""
        return bool(self.reply["sendable"])

    @property
    def not_sendable_reason(self) -> str:
        """`open_calls`, `ends_with_assistant` or `empty`. Empty if the view is sendable."""
        return str(self.reply.get("not_sendable_reason", ""))

    @property
    def etag(self) -> str:
        """The opaque name of this view."""
        return str(self.reply.get("etag", ""))

    @property
    def revision(self) -> int:
        """The revision of the session after the call."""
        return int(self.reply["revision"])

    @property
    def tokens(self) -> Tokens:
        """The token count of the model request."""
        tokens: Tokens = self.reply["tokens"]
        return tokens

    @property
    def budget(self) -> Budget:
        """The used and free tokens of the context window."""
        budget: Budget = self.reply["budget"]
        return budget

    @property
    def warnings(self) -> list[ViewWarning]:
        """Problems that did not fail the call."""
        warnings: list[ViewWarning] = self.reply.get("warnings", [])
        return warnings

    @property
    def level_reports(self) -> list[JsonObject]:
        """One report per level that ran or was skipped."""
        reports: list[JsonObject] = self.reply.get("level_reports", [])
        return reports


def with_breakpoints(request: dict[str, Any], breakpoints: list[JsonObject]) -> dict[str, Any]:
    """Returns the request with the cache breakpoints of a reply. The lists of the caller do not change."""
    if not breakpoints:
        return request
    system = _blocks(copied(request.get("system", "")))
    messages = copied(request["messages"])
    for breakpoint_ in breakpoints:
        if "position" in breakpoint_:
            position = breakpoint_["position"]
            message = messages[position["message_index"]]
            blocks = message["content"] = _blocks(message["content"])
            index = position["block_index"]
        else:
            blocks, index = system, breakpoint_["system_block_index"]
        blocks[index].update(breakpoint_["merge"])
    return {**request, "messages": messages, **({"system": system} if system else {})}


def _blocks(content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)
