"""The sync and the async client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any

import httpx2

from . import async_session, session
from ._calls import SessionPath, sessions_url
from ._formats import Format
from ._retry import Options
from ._transport import AsyncTransport, Request, Transport, connection_settings
from .async_session import AsyncSession
from .errors import JsonObject
from .session import Session

_DEFAULT_URL = "http://127.0.0.1:50051"


class _BaseClient:
    def __init__(self, url: str | None, api_key: str | None, timeout: float, max_retries: int) -> None:
        self._options = Options(timeout, max_retries)
        self._settings = connection_settings(
            url or os.environ.get("PALIMPSEST_URL") or _DEFAULT_URL,
            api_key or os.environ.get("PALIMPSEST_API_KEY"),
        )

    @staticmethod
    def _list_request(project: str, query: JsonObject) -> Request:
        return Request("GET", sessions_url(project), query=query)


class Palimpsest(_BaseClient):
    """A connection to the service, for all threads of a program.

    `url` defaults to `PALIMPSEST_URL`, or else `http://127.0.0.1:50051`. `api_key` is an API key or a JWT and
    defaults to `PALIMPSEST_API_KEY`. `timeout` is the deadline of a call with its retries, in seconds.
    `http_client` replaces the HTTP client, for example to set certificates or a proxy. Its base URL and headers
    are then those of the caller.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 8,
        http_client: httpx2.Client | None = None,
    ) -> None:
        super().__init__(url, api_key, timeout, max_retries)
        self._transport = Transport(http_client or httpx2.Client(**self._settings))

    def session(self, project: str, session: str, format: Format | None = None) -> Session:  # noqa: A002
        """Returns a session of a project. Makes no call.

        `format` is the provider's format of the arrays. Without it, the service detects the format of each array,
        and `tools` needs an argument.
        """
        return Session(self._transport, SessionPath(project, session), self._options, format)

    def sessions(self, project: str, **query: Any) -> Iterator[JsonObject]:
        """Yields the sessions of a project, latest first. `query` has parameters of `ListSessions`."""
        return session.pages(self._transport, self._list_request(project, query), self._options, "sessions")

    def close(self) -> None:
        """Closes the connections."""
        self._transport.client.close()

    def __enter__(self) -> Palimpsest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncPalimpsest(_BaseClient):
    """A connection to the service, for all tasks of an event loop. The arguments are those of `Palimpsest`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 8,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        super().__init__(url, api_key, timeout, max_retries)
        self._transport = AsyncTransport(http_client or httpx2.AsyncClient(**self._settings))

    def session(self, project: str, session: str, format: Format | None = None) -> AsyncSession:  # noqa: A002
        """Returns a session of a project, as `Palimpsest.session` does."""
        return AsyncSession(self._transport, SessionPath(project, session), self._options, format)

    def sessions(self, project: str, **query: Any) -> AsyncIterator[JsonObject]:
        """Yields the sessions of a project, latest first. `query` has parameters of `ListSessions`."""
        return async_session.pages(self._transport, self._list_request(project, query), self._options, "sessions")

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.client.aclose()

    async def __aenter__(self) -> AsyncPalimpsest:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
