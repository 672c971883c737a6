"""HTTP requests with deadlines and retries, sync and async."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx2

from ._json import encode
from ._retry import Attempts
from ._threads import raise_if_cancelled, sleep
from .errors import ApiError, DeadlineExceededError, JsonObject, UnavailableError, error_from

Result = TypeVar("Result")
# The connection must outlive the deadline, so that the server can report a passed deadline itself.
_GRACE = 0.5
# A watch sends a heartbeat every 30 seconds, so a longer silence is a broken connection.
_SILENCE = 90.0


@dataclass(frozen=True)
class Request:
    """One call: an HTTP method, a path below `/v1`, and the query or the body."""

    method: str
    path: str
    body: Any = None
    query: JsonObject = field(default_factory=dict)

    def page(self, token: str | None) -> Request:
        """Returns the request for a page of a list. The token is a field of the body, if there is one."""
        if not token:
            return self
        if self.body is None:
            return replace(self, query={**self.query, "page_token": token})
        return replace(self, body={**self.body, "page_token": token})


def connection_settings(url: str, api_key: str | None) -> JsonObject:
    """Returns the arguments of the HTTP client."""
    headers = {"content-type": "application/json", "accept": "application/json, application/x-ndjson"}
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    return {"base_url": f"{url.rstrip('/')}/v1", "headers": headers}


def _arguments(request: Request, timeout: float | None) -> JsonObject:
    query = {name: value for name, value in request.query.items() if value is not None}
    # Booleans of a query are written as in JSON.
    query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    headers = {} if timeout is None else {"connect-timeout-ms": str(max(int(timeout * 1000), 1))}
    limit = httpx2.Timeout(10.0, read=_SILENCE) if timeout is None else httpx2.Timeout(timeout + _GRACE)
    content = None if request.body is None else encode(request.body)
    return {"params": query, "headers": headers, "content": content, "timeout": limit}


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


class Transport:
    """Sends calls. Threads can share it."""

    def __init__(self, client: httpx2.Client) -> None:
        self.client = client

    def send(self, request: Request, attempts: Attempts) -> Any:
        """Returns the JSON of the answer. Retries errors that the contract calls retryable."""
        return self._retried(self._send_once, request, attempts)

    def elements(self, request: Request, attempts: Attempts) -> list[Any]:
        """Returns the elements of a stream that ends. A retry reads the whole stream again."""

        def read(request: Request, timeout: float) -> list[Any]:
            return [attempts.checked(element) for element in self.lines(request, timeout)]

        return self._retried(read, request, attempts)

    def _retried(self, call: Callable[[Request, float], Result], request: Request, attempts: Attempts) -> Result:
        while True:
            raise_if_cancelled()
            try:
                return call(request, attempts.remaining())
            except ApiError as error:
                sleep(attempts.delay_after(error))

    def _send_once(self, request: Request, timeout: float) -> Any:
        try:
            response = self.client.request(request.method, request.path, **_arguments(request, timeout))
        except httpx2.TransportError as error:
            raise _failure(error) from error
        return _parsed(response)

    def lines(self, request: Request, timeout: float | None) -> Iterator[Any]:
        """Yields the elements of a stream. A watch passes no timeout, because it has no deadline."""
        try:
            with self.client.stream(request.method, request.path, **_arguments(request, timeout)) as response:
                if not response.is_success:
                    response.read()
                    _parsed(response)
                yield from map(_element, response.iter_lines())
        except httpx2.TransportError as error:
            raise _failure(error) from error


class AsyncTransport:
    """Sends calls. Tasks of one event loop can share it."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def send(self, request: Request, attempts: Attempts) -> Any:
        """Returns the JSON of the answer. Retries errors that the contract calls retryable."""
        return await self._retried(self._send_once, request, attempts)

    async def elements(self, request: Request, attempts: Attempts) -> list[Any]:
        """Returns the elements of a stream that ends. A retry reads the whole stream again."""

        async def read(request: Request, timeout: float) -> list[Any]:
            return [attempts.checked(element) async for element in self.lines(request, timeout)]

        return await self._retried(read, request, attempts)

    async def _retried(
        self, call: Callable[[Request, float], Awaitable[Result]], request: Request, attempts: Attempts
    ) -> Result:
        while True:
            try:
                return await call(request, attempts.remaining())
            except ApiError as error:
                await asyncio.sleep(attempts.delay_after(error))

    async def _send_once(self, request: Request, timeout: float) -> Any:
        try:
            response = await self.client.request(request.method, request.path, **_arguments(request, timeout))
        except httpx2.TransportError as error:
            raise _failure(error) from error
        return _parsed(response)

    async def lines(self, request: Request, timeout: float | None) -> AsyncIterator[Any]:
        """Yields the elements of a stream. A watch passes no timeout, because it has no deadline."""
        try:
            arguments = _arguments(request, timeout)
            async with self.client.stream(request.method, request.path, **arguments) as response:
                if not response.is_success:
                    await response.aread()
                    _parsed(response)
                async for line in response.aiter_lines():
                    yield _element(line)
        except httpx2.TransportError as error:
            raise _failure(error) from error
