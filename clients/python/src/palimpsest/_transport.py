"""Calls with deadlines and retries, sync and async. The subclasses send them over HTTP or gRPC."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from ._retry import Attempts
from ._rpcs import RPCS, Rpc
from ._threads import raise_if_cancelled, sleep
from ._warning_log import WarningLog
from .errors import ApiError, JsonObject

Result = TypeVar("Result")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST_IDS = {"project": 64, "session": 128}


@dataclass(frozen=True)
class Request:
    """One call: an rpc of the contract, the project or session, and the other fields in the JSON of the HTTP API."""

    rpc_name: str
    project: str
    session: str | None
    fields: JsonObject

    def __post_init__(self) -> None:
        check_id("project", self.project)

    @property
    def rpc(self) -> Rpc:
        """The rpc."""
        return RPCS[self.rpc_name]

    @property
    def resource_name(self) -> str:
        """The resource name of the project or session."""
        project = f"projects/{self.project}"
        return project if self.session is None else f"{project}/sessions/{self.session}"

    def page(self, token: str | None) -> Request:
        """Returns the request for a page of a list."""
        return replace(self, fields={**self.fields, "page_token": token}) if token else self


def check_id(kind: Literal["project", "session"], value: str) -> None:
    """Raises `ValueError` for an invalid id. HTTP clients resolve the segments `.` and `..` of a URL."""
    longest = _LONGEST_IDS[kind]
    # Adapters pass ids of frameworks, which can be of other types.
    if not isinstance(value, str) or len(value) > longest or not _ID.fullmatch(value):
        raise ValueError(
            f"Invalid id of a {kind}: {value!r}. Pass 1 to {longest} characters: ASCII letters, digits, `.`, `_` and"
            " `-`, with a letter or a digit at the start."
        )


class Transport(ABC):
    """Sends calls. Threads can share it."""

    def __init__(self) -> None:
        self.warning_log = WarningLog()

    def send(self, request: Request, attempts: Attempts) -> Any:
        """Returns the JSON of the answer. Retries errors that the contract calls retryable."""
        return self._retried(self._send_once, request, attempts)

    def elements(self, request: Request, attempts: Attempts) -> list[Any]:
        """Returns the elements of a stream that ends. A retry reads the whole stream again."""

        def read(request: Request, timeout: float) -> list[Any]:
            return [attempts.checked(element) for element in self.stream(request, timeout)]

        return self._retried(read, request, attempts)

    def _retried(self, call: Callable[[Request, float], Result], request: Request, attempts: Attempts) -> Result:
        while True:
            raise_if_cancelled()
            try:
                return call(request, attempts.remaining())
            except ApiError as error:
                sleep(attempts.delay_after(error))

    @abstractmethod
    def _send_once(self, request: Request, timeout: float) -> Any:
        """Returns the JSON of the answer."""

    @abstractmethod
    def stream(self, request: Request, timeout: float | None) -> Iterator[Any]:
        """Yields the elements of a stream. A watch passes no timeout, because it has no deadline."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connections."""


class AsyncTransport(ABC):
    """Sends calls. Tasks of one event loop can share it."""

    def __init__(self) -> None:
        self.warning_log = WarningLog()

    async def send(self, request: Request, attempts: Attempts) -> Any:
        """Returns the JSON of the answer. Retries errors that the contract calls retryable."""
        return await self._retried(self._send_once, request, attempts)

    async def elements(self, request: Request, attempts: Attempts) -> list[Any]:
        """Returns the elements of a stream that ends. A retry reads the whole stream again."""

        async def read(request: Request, timeout: float) -> list[Any]:
            return [attempts.checked(element) async for element in self.stream(request, timeout)]

        return await self._retried(read, request, attempts)

    async def _retried(
        self, call: Callable[[Request, float], Awaitable[Result]], request: Request, attempts: Attempts
    ) -> Result:
        while True:
            try:
                return await call(request, attempts.remaining())
            except ApiError as error:
                await asyncio.sleep(attempts.delay_after(error))

    @abstractmethod
    async def _send_once(self, request: Request, timeout: float) -> Any:
        """Returns the JSON of the answer."""

    @abstractmethod
    def stream(self, request: Request, timeout: float | None) -> AsyncIterator[Any]:
        """Yields the elements of a stream. A watch passes no timeout, because it has no deadline."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the connections."""
