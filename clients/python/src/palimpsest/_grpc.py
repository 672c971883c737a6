"""Calls over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

from ._rpcs import RPCS
from ._transport import AsyncTransport, Request, Transport
from .errors import ApiError, error_from

try:
    import grpc
    import grpc.aio
    from google.protobuf.message import Message
    from google.protobuf.message_factory import GetMessageClass

    from ._contract import details_json, method_of, reply_json, request_message
except ImportError as error:
    raise ImportError('gRPC needs other packages: pip install "palimpsest[grpc]"') from error

_OPTIONS = (
    # The server limits messages. The default limit of 4 MiB is below that of a view.
    ("grpc.max_receive_message_length", -1),
    # A channel connects again soon, so that the next attempt of a call does not fail without a new connection.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A watch has no deadline, so pings find a broken connection. The heartbeats of the server allow this interval.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 30_000),
)


def _opened(api: Any, url: str) -> Any:
    """Opens a channel of `grpc` or `grpc.aio`."""
    parts = urlsplit(url)
    if parts.scheme == "grpcs":
        return api.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), _OPTIONS)
    return api.insecure_channel(parts.netloc, _OPTIONS)


def _functions(channel: Any) -> dict[str, Any]:
    """Returns the function of a channel for each rpc."""
    functions = {}
    for rpc in RPCS.values():
        method = method_of(rpc)
        create = channel.unary_stream if method.server_streaming else channel.unary_unary
        functions[rpc.name] = create(
            f"/{rpc.service}/{rpc.name}",
            request_serializer=_serialized,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
    return functions


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _metadata(api_key: str | None) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {api_key}")] if api_key else []


def _failure(error: grpc.RpcError, server: str) -> ApiError:
    metadata: Any = error.trailing_metadata() or {}
    details = details_json(dict(metadata).get("grpc-status-details-bin", b""))
    message = error.details() or ""
    if not details and error.code() is grpc.StatusCode.UNAVAILABLE:
        message = f"Cannot reach {server}: {message}"
    return error_from(0, {"error": {"status": error.code().name, "message": message, "details": details}})


class GrpcTransport(Transport):
    """Sends calls over a channel, or over one that it opens."""

    def __init__(self, url: str, api_key: str | None, channel: grpc.Channel | None) -> None:
        super().__init__()
        self._server = "the server" if channel else url
        self._metadata = _metadata(api_key)
        self._channel = channel or _opened(grpc, url)
        self._functions = _functions(self._channel)

    def _send_once(self, request: Request, timeout: float) -> Any:
        function = self._functions[request.rpc.name]
        message = request_message(request)
        try:
            reply = function(message, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise _failure(error, self._server) from error
        return reply_json(request, reply)

    def stream(self, request: Request, timeout: float | None) -> Iterator[Any]:
        """Yields the elements of a stream."""
        function = self._functions[request.rpc.name]
        call = function(request_message(request), timeout=timeout, metadata=self._metadata)
        try:
            for reply in call:
                yield reply_json(request, reply)
        except grpc.RpcError as error:
            raise _failure(error, self._server) from error
        finally:
            call.cancel()

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()


class AsyncGrpcTransport(AsyncTransport):
    """Sends calls over an async channel, or over one that it opens."""

    def __init__(self, url: str, api_key: str | None, channel: grpc.aio.Channel | None) -> None:
        super().__init__()
        self._url = url
        self._server = "the server" if channel else url
        self._metadata = _metadata(api_key)
        self._channel = channel
        self._functions: dict[str, Any] = {}

    def _function(self, request: Request) -> Any:
        # A channel belongs to the event loop in which it is opened, so the first call opens it.
        if self._channel is None:
            self._channel = _opened(grpc.aio, self._url)
        if not self._functions:
            self._functions = _functions(self._channel)
        return self._functions[request.rpc.name]

    async def _send_once(self, request: Request, timeout: float) -> Any:
        function = self._function(request)
        message = request_message(request)
        try:
            reply = await function(message, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise _failure(error, self._server) from error
        return reply_json(request, reply)

    async def stream(self, request: Request, timeout: float | None) -> AsyncIterator[Any]:
        """Yields the elements of a stream."""
        function = self._function(request)
        call = function(request_message(request), timeout=timeout, metadata=self._metadata)
        try:
            async for reply in call:
                yield reply_json(request, reply)
        except grpc.RpcError as error:
            raise _failure(error, self._server) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """Closes the channel."""
        if self._channel is not None:
            await self._channel.close()
