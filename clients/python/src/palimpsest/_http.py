"""Calls over the HTTP API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import httpx2

from ._json import encode
from ._transport import AsyncTransport, Request, Transport
from .errors import ApiError, DeadlineExceededError, JsonObject, UnavailableError, error_from

# The connection must outlive the deadline, so that the server can report a passed deadline itself.
_GRACE = 0.5
# A watch sends a heartbeat every 30 seconds, so a longer silence is a broken connection.
_SILENCE = 90.0


def connection_settings(url: str, api_key: str | None) -> JsonObject:
    """Returns the arguments of the HTTP client."""
    headers = {"content-type": "application/json", "accept": "application/json, application/x-ndjson"}
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    return {"base_url": f"{url.rstrip('/')}/v1", "headers": headers}


def _path(request: Request) -> str:
    """Returns the path below `/v1`. Characters of ids with a meaning in URLs are escaped."""
    resource = f"/projects/{quote(request.project, safe='')}/sessions"
    if request.session is not None:
        resource = f"{resource}/{quote(request.session, safe='')}"
    return f"{resource}{request.rpc.path}"


def _arguments(request: Request, timeout: float | None) -> JsonObject:
    """Returns the arguments of a call of the HTTP client."""
    headers = {} if timeout is None else {"connect-timeout-ms": str(max(int(timeout * 1000), 1))}
    limit = httpx2.Timeout(10.0, read=_SILENCE) if timeout is None else httpx2.Timeout(timeout + _GRACE)
    arguments: JsonObject = {
        "method": request.rpc.method,
        "url": _path(request),
        "headers": headers,
        "timeout": limit,
    }
    if request.rpc.method in ("GET", "DELETE"):
        query = {name: value for name, value in request.fields.items() if value is not None}
        # Booleans of a query are written as in JSON.
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        return {**arguments, "params": query}
    return {**arguments, "content": encode(request.fields)}


def _failure(error: httpx2.TransportError) -> ApiError:
    url = error.request.url
    text = f"Cannot reach {url.scheme}://{url.netloc.decode()}: {type(error).__name__}: {error}"
    if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
        return DeadlineExceededError(text)
    return UnavailableError(text)


def _parsed(response: httpx2.Response) -> Any:
    try:
        body = response.json() if response.content else {}
    except ValueError:
        body = None
    if not response.is_success:
        raise error_from(response.status_code, body)
    return body


def _element(line: str) -> Any:
    element = json.loads(line)
    if isinstance(element, dict) and "error" in element:
        raise error_from(0, element)
    return element


class HttpTransport(Transport):
    """Sends calls with an HTTP client."""

    def __init__(self, client: httpx2.Client) -> None:
        super().__init__()
        self._client = client

    def _send_once(self, request: Request, timeout: float) -> Any:
        try:
            response = self._client.request(**_arguments(request, timeout))
        except httpx2.TransportError as error:
            raise _failure(error) from error
        return _parsed(response)

    def stream(self, request: Request, timeout: float | None) -> Iterator[Any]:
        """Yields the elements of a stream, which are lines."""
        try:
            with self._client.stream(**_arguments(request, timeout)) as response:
                if not response.is_success:
                    response.read()
                    _parsed(response)
                yield from map(_element, response.iter_lines())
        except httpx2.TransportError as error:
            raise _failure(error) from error

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


class AsyncHttpTransport(AsyncTransport):
    """Sends calls with an async HTTP client."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        super().__init__()
        self._client = client

    async def _send_once(self, request: Request, timeout: float) -> Any:
        try:
            response = await self._client.request(**_arguments(request, timeout))
        except httpx2.TransportError as error:
            raise _failure(error) from error
        return _parsed(response)

    async def stream(self, request: Request, timeout: float | None) -> AsyncIterator[Any]:
        """Yields the elements of a stream, which are lines."""
        try:
            async with self._client.stream(**_arguments(request, timeout)) as response:
                if not response.is_success:
                    await response.aread()
                    _parsed(response)
                async for line in response.aiter_lines():
                    yield _element(line)
        except httpx2.TransportError as error:
            raise _failure(error) from error

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
