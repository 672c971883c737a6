"""Model calls through a session, shared by the helpers for the SDKs of providers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

from ._base import Tools
from ._formats import Format, array_field, parse_response
from .async_session import AsyncSession
from .errors import JsonObject, is_too_long
from .session import Session

Resource = TypeVar("Resource")
Reply = TypeVar("Reply")


class Managed(Generic[Resource]):
    """A resource of an SDK whose requests go through a session.

    `read_back` adds the tools of the service to each request, so that the model can read removed content.
    `cache_breakpoints` sets cache breakpoints, for Anthropic.
    """

    _format: Format

    def __init__(
        self, resource: Resource, session: Session, *, read_back: bool = True, cache_breakpoints: bool = False
    ) -> None:
        self._resource = resource
        self.session = session
        self._read_back = read_back
        self._cache_breakpoints = cache_breakpoints

    def _send(self, send: Callable[..., Reply], body: JsonObject) -> Reply:
        """Syncs, and sends the request. A prompt that the provider rejects as too long is shortened once."""
        tools = self.session.tools(self._format) if self._read_back else []
        body = with_tools(body, tools)
        options: JsonObject = {
            "cache_breakpoints": self._cache_breakpoints,
            "palimpsest": {"format": self._format},
        }
        view = self.session.sync(body, **options)
        try:
            response = send(**view.request)
        except Exception as error:
            if not is_too_long(error):
                raise
            view = self.session.sync(body, too_long=error, **options)
            response = send(**view.request)
        self.session._note_sent(response, view)
        return response

    def _run(self, create: Callable[..., Reply], tools: Tools, max_rounds: int | None, body: JsonObject) -> Reply:
        body = appendable(body)
        rounds = 0
        while True:
            response = create(**body)
            body[array_field(body)] += self.session.answer(response, tools)
            rounds += 1
            if parse_response(response).is_final or rounds == max_rounds:
                return response


class AsyncManaged(Generic[Resource]):
    """The async form of `Managed`."""

    _format: Format

    def __init__(
        self,
        resource: Resource,
        session: AsyncSession,
        *,
        read_back: bool = True,
        cache_breakpoints: bool = False,
    ) -> None:
        self._resource = resource
        self.session = session
        self._read_back = read_back
        self._cache_breakpoints = cache_breakpoints

    async def _send(self, send: Callable[..., Awaitable[Reply]], body: JsonObject) -> Reply:
        """Syncs, and sends the request. A prompt that the provider rejects as too long is shortened once."""
        tools = await self.session.tools(self._format) if self._read_back else []
        body = with_tools(body, tools)
        options: JsonObject = {
            "cache_breakpoints": self._cache_breakpoints,
            "palimpsest": {"format": self._format},
        }
        view = await self.session.sync(body, **options)
        try:
            response = await send(**view.request)
        except Exception as error:
            if not is_too_long(error):
                raise
            view = await self.session.sync(body, too_long=error, **options)
            response = await send(**view.request)
        self.session._note_sent(response, view)
        return response

    async def _run(
        self, create: Callable[..., Awaitable[Reply]], tools: Tools, max_rounds: int | None, body: JsonObject
    ) -> Reply:
        body = appendable(body)
        rounds = 0
        while True:
            response = await create(**body)
            body[array_field(body)] += await self.session.answer(response, tools)
            rounds += 1
            if parse_response(response).is_final or rounds == max_rounds:
                return response


def with_tools(body: JsonObject, tools: list[JsonObject]) -> JsonObject:
    """Returns the body with further tools. The list of the caller does not change."""
    # The SDKs mark an omitted argument with an object that is no list.
    given = body.get("tools")
    own = list(given) if isinstance(given, Iterable) else []
    return {**body, "tools": [*own, *tools]} if tools else body


def appendable(body: JsonObject) -> JsonObject:
    """Returns the body of a run, with an array to which messages are appended: that of the caller, if it is a list."""
    if body.get("stream"):
        # A stream is no response whose calls can be answered.
        raise ValueError("run() does not stream: remove `stream`, or call stream() and answer() in a loop of your own.")
    field = array_field(body)
    array: Any = body[field]
    if isinstance(array, str):
        array = [{"role": "user", "content": array}]
    return {**body, field: array if isinstance(array, list) else list(array)}
