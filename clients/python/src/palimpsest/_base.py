"""The part of a session that needs no connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ._calls import SessionPath, call_body, session_id_of, sync_request
from ._formats import Format, Response, ToolCall, parse_call, parse_response, result_of
from ._lanes import Lanes
from ._retry import Options
from ._transport import Request
from ._warning_log import WarningLog
from .errors import JsonObject
from .view import View

Tools = Mapping[str, Callable[..., Any]]
_logger = logging.getLogger("palimpsest")


class SessionState:
    """The values that a session remembers between calls. Sessions with other options share them."""

    def __init__(self) -> None:
        self.own_tools: dict[Format, list[JsonObject]] = {}
        self.own_names: frozenset[str] = frozenset()
        self.last_response: Response | None = None
        self.lanes = Lanes()


class BaseSession:
    """The name, the format and the state of a session."""

    def __init__(self, path: SessionPath, options: Options, declared: Format | None, state: SessionState) -> None:
        self._path = path
        self._options = options
        self._format: Format | None = declared
        self._state = state

    @property
    def name(self) -> str:
        """The resource name, `projects/{project}/sessions/{session}`."""
        return self._path.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def is_own(self, call: Any) -> bool:
        """Returns true if a call of the model names a tool of the service.

        The names are known after `tools()`, which a request with these tools needs anyway.
        """
        return parse_call(call).name in self._state.own_names

    def _format_for_tools(self, requested: Format | None) -> Format:
        chosen = requested or self._format
        if chosen is None:
            raise ValueError("Pass a format to tools(), or to the session.")
        return chosen

    def _keep_tools(self, tools_format: Format, reply: JsonObject) -> list[JsonObject]:
        self._state.own_names |= {tool["name"] for tool in reply["tools"]}
        tools = [tool["definition"] for tool in reply["tools"]]
        self._state.own_tools[tools_format] = tools
        return tools

    def _sync_request(
        self,
        body: Mapping[str, Any],
        cache_breakpoints: bool | JsonObject,
        too_long: BaseException | str | None,
        parameters: Mapping[str, Any] | None,
        response: Response | None,
    ) -> Request:
        return sync_request(self._path, body, self._format, response, cache_breakpoints, too_long, parameters)

    def _received(self, view: View, sent: Response | None, warning_log: WarningLog) -> View:
        warning_log.log(view)
        # An `answer` of another thread can have set the response that the next sync sends.
        if self._state.last_response is sent:
            self._state.last_response = None
        return view

    def _note_view(self, response: Response, view: View | None) -> None:
        if view is not None:
            for call in response.calls:
                self._state.lanes.remember(call.id, session_id_of(view))

    def _note_sent(self, response: Any, view: View) -> None:
        # Without a lane, all calls run in the named session. The calls of a stream are unknown until its end.
        if (view.session != self.name or self._state.lanes) and hasattr(response, "model_dump"):
            self._note_view(parse_response(response), view)

    def _changed_options(self, timeout: float | None, max_retries: int | None) -> Options:
        return Options(
            self._options.timeout if timeout is None else timeout,
            self._options.max_retries if max_retries is None else max_retries,
        )

    def _call_request(self, call: ToolCall) -> Request:
        session = self._state.lanes.session_of(call.id, self._path.session)
        return SessionPath(self._path.project, session).change("CallTool", call_body(call))


def failed_result(call: ToolCall, error: Exception) -> JsonObject:
    """Returns the result of a call whose function raised an exception, so that the model can react."""
    _logger.warning("The tool %s failed", call.name, exc_info=error)
    return result_of(call, f"{type(error).__name__}: {error}", is_error=True)


def function_of(call: ToolCall, tools: Tools) -> Callable[..., Any]:
    """Returns the function for a call. An unknown name is an error that the model receives."""
    if call.name not in tools:
        raise LookupError(f"no tool has the name {call.name}")
    return tools[call.name]
