"""The part of a session that needs no connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ._calls import SessionPath, sync_request
from ._formats import Format, Response, ToolCall, parse_call, result_of
from ._retry import Options
from ._transport import Request
from .errors import JsonObject

Tools = Mapping[str, Callable[..., Any]]
_logger = logging.getLogger("palimpsest")


class BaseSession:
    """The name, the format and the last response of a session."""

    def __init__(self, path: SessionPath, options: Options, declared: Format | None) -> None:
        self._path = path
        self._options = options
        self._format: Format | None = declared
        self._own_tools: dict[Format, list[JsonObject]] = {}
        self._own_names: frozenset[str] = frozenset()
        self._last_response: Response | None = None

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
        return parse_call(call).name in self._own_names

    def _format_for_tools(self, requested: Format | None) -> Format:
        chosen = requested or self._format
        if chosen is None:
            raise ValueError("Pass a format to tools(), or to the session.")
        return chosen

    def _keep_tools(self, tools_format: Format, reply: JsonObject) -> list[JsonObject]:
        self._own_names |= {tool["name"] for tool in reply["tools"]}
        tools = [tool["definition"] for tool in reply["tools"]]
        self._own_tools[tools_format] = tools
        return tools

    def _sync_request(
        self,
        body: Mapping[str, Any],
        cache_breakpoints: bool | JsonObject,
        too_long: BaseException | str | None,
        parameters: Mapping[str, Any] | None,
    ) -> Request:
        response = self._last_response
        return sync_request(self._path, body, self._format, response, cache_breakpoints, too_long, parameters)


def failed_result(call: ToolCall, error: Exception) -> JsonObject:
    """Returns the result of a call whose function raised an exception, so that the model can react."""
    _logger.warning("The tool %s failed", call.name, exc_info=error)
    return result_of(call, f"{type(error).__name__}: {error}", is_error=True)


def function_of(call: ToolCall, tools: Tools) -> Callable[..., Any]:
    """Returns the function for a call. An unknown name is an error that the model receives."""
    if call.name not in tools:
        raise LookupError(f"no tool has the name {call.name}")
    return tools[call.name]
