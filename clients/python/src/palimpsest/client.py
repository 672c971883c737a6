"""The sync and the async client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx2

from . import async_session, session
from ._calls import SessionPath
from ._connection import credential, server_url
from ._formats import Format
from ._http import AsyncHttpTransport, HttpTransport, connection_settings
from ._retry import Options
from ._transport import AsyncTransport, Request, Transport
from .async_session import AsyncSession
from .errors import JsonObject
from .session import Session

if TYPE_CHECKING:
    import grpc
    import grpc.aio

_DEFAULT_URL = "http://127.0.0.1:50051"


class _BaseClient:
    def __init__(self, url: str | None, api_key: str | None, timeout: float, max_retries: int) -> None:
        self._options = Options(timeout, max_retries)
        self._url = server_url(url or os.environ.get("PALIMPSEST_URL") or _DEFAULT_URL)
        self._api_key = credential(api_key or os.environ.get("PALIMPSEST_API_KEY") or "")

    @property
    def _has_grpc_url(self) -> bool:
        return self._url.startswith(("grpc://", "grpcs://"))

    @staticmethod
    def _list_request(project: str, query: JsonObject) -> Request:
        return Request("ListSessions", project, None, query)


class Palimpsest(_BaseClient):
    """A connection to the service, for all threads of a program.

    `url` defaults to `PALIMPSEST_URL`, or else `http://127.0.0.1:50051`. `host:port` means `http://host:port`. With
    `grpc://…` and `grpcs://…` (TLS), calls use gRPC, which needs the extra `grpc`. `api_key` is an API key or a JWT
    and defaults to `PALIMPSEST_API_KEY`. White space around it is removed. `timeout` is the deadline of a call with its
    retries, in seconds. Other URLs, keys and numbers raise `ValueError`. `http_client` replaces the HTTP client, for
    example to set certificates or a proxy. Its base URL and headers are then those of the caller. `channel` is a gRPC
    channel to use instead of `url`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 8,
        http_client: httpx2.Client | None = None,
        channel: grpc.Channel | None = None,
    ) -> None:
        super().__init__(url, api_key, timeout, max_retries)
        self._transport: Transport
        if channel is not None or (http_client is None and self._has_grpc_url):
            from ._grpc import GrpcTransport

            self._transport = GrpcTransport(self._url, self._api_key, channel)
        else:
            client = http_client or httpx2.Client(**connection_settings(self._url, self._api_key))
            self._transport = HttpTransport(client)

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
        self._transport.close()

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
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        super().__init__(url, api_key, timeout, max_retries)
        self._transport: AsyncTransport
        if channel is not None or (http_client is None and self._has_grpc_url):
            from ._grpc import AsyncGrpcTransport

            self._transport = AsyncGrpcTransport(self._url, self._api_key, channel)
        else:
            client = http_client or httpx2.AsyncClient(**connection_settings(self._url, self._api_key))
            self._transport = AsyncHttpTransport(client)

    def session(self, project: str, session: str, format: Format | None = None) -> AsyncSession:  # noqa: A002
        """Returns a session of a project, as `Palimpsest.session` does."""
        return AsyncSession(self._transport, SessionPath(project, session), self._options, format)

    def sessions(self, project: str, **query: Any) -> AsyncIterator[JsonObject]:
        """Yields the sessions of a project, latest first. `query` has parameters of `ListSessions`."""
        return async_session.pages(self._transport, self._list_request(project, query), self._options, "sessions")

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncPalimpsest:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
