"""Model calls with the SDK of OpenAI through a session: Chat Completions and Responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Literal, overload

from openai import AsyncStream, Stream
from openai.lib.streaming.chat import AsyncChatCompletionStream, ChatCompletionStream
from openai.lib.streaming.responses import AsyncResponseStream, ResponseStream
from openai.resources.chat.completions import AsyncCompletions, Completions
from openai.resources.responses import AsyncResponses, Responses
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from ._base import Tools
from ._formats import Format
from ._managed import AsyncManaged, Managed
from .errors import JsonObject

_CHAT: Format = "openai_chat"
_RESPONSES: Format = "openai_responses"
# The usage arrives in a last chunk without choices. The stream objects of the SDK accept this chunk. A program that
# reads the chunks of `create(stream=True)` may not, so `create` leaves the decision to the caller.
_WITH_USAGE: JsonObject = {"stream_options": {"include_usage": True}}


class ManagedCompletions(Managed[Completions]):
    """`client.chat.completions` whose requests contain the view of a session."""

    _format = _CHAT

    @overload
    def create(self, *, stream: Literal[False] = False, **body: Any) -> ChatCompletion: ...

    @overload
    def create(self, *, stream: Literal[True], **body: Any) -> Stream[ChatCompletionChunk]: ...

    def create(self, **body: Any) -> Any:
        """Syncs and calls the model. `messages` is the whole conversation."""
        return self._send(self._resource.create, body)

    @contextmanager
    def stream(self, **body: Any) -> Iterator[ChatCompletionStream[None]]:
        """Syncs and opens a stream of the model, as `client.chat.completions.stream` does.

        The stream reports its usage, unless `stream_options` is passed.
        """
        body = {**_WITH_USAGE, **body}
        with ExitStack() as stack:
            yield self._send(lambda **request: stack.enter_context(self._resource.stream(**request)), body)

    def run(self, functions: Tools, *, max_rounds: int | None = None, **body: Any) -> ChatCompletion:
        """Calls the model and answers its tool calls until it makes none. Returns the last response.

        `functions` has a function for the name of each tool. The service runs its own tools. Responses and
        results are appended to the list `messages`. `max_rounds` limits the number of model calls.
        """
        return self._run(self.create, functions, max_rounds, body)


class AsyncManagedCompletions(AsyncManaged[AsyncCompletions]):
    """The async form of `ManagedCompletions`."""

    _format = _CHAT

    @overload
    async def create(self, *, stream: Literal[False] = False, **body: Any) -> ChatCompletion: ...

    @overload
    async def create(self, *, stream: Literal[True], **body: Any) -> AsyncStream[ChatCompletionChunk]: ...

    async def create(self, **body: Any) -> Any:
        """Syncs and calls the model. `messages` is the whole conversation."""
        return await self._send(self._resource.create, body)

    @asynccontextmanager
    async def stream(self, **body: Any) -> AsyncIterator[AsyncChatCompletionStream[None]]:
        """Syncs and opens a stream of the model, as `ManagedCompletions.stream` does."""
        body = {**_WITH_USAGE, **body}
        async with AsyncExitStack() as stack:
            yield await self._send(lambda **request: stack.enter_async_context(self._resource.stream(**request)), body)

    async def run(self, functions: Tools, *, max_rounds: int | None = None, **body: Any) -> ChatCompletion:
        """Calls the model and answers its tool calls until it makes none, as `ManagedCompletions.run` does."""
        return await self._run(self.create, functions, max_rounds, body)


class ManagedResponses(Managed[Responses]):
    """`client.responses` whose requests contain the view of a session. `input` is the whole conversation."""

    _format = _RESPONSES

    @overload
    def create(self, *, stream: Literal[False] = False, **body: Any) -> Response: ...

    @overload
    def create(self, *, stream: Literal[True], **body: Any) -> Stream[ResponseStreamEvent]: ...

    def create(self, **body: Any) -> Any:
        """Syncs and calls the model. `input` is the whole conversation."""
        return self._send(self._resource.create, body)

    @contextmanager
    def stream(self, **body: Any) -> Iterator[ResponseStream[None]]:
        """Syncs and opens a stream of the model, as `client.responses.stream` does."""
        with ExitStack() as stack:
            yield self._send(lambda **request: stack.enter_context(self._resource.stream(**request)), body)

    def run(self, functions: Tools, *, max_rounds: int | None = None, **body: Any) -> Response:
        """Calls the model and answers its tool calls until it makes none. Returns the last response.

        `functions` has a function for the name of each tool. The service runs its own tools. Items and
        results are appended to the list `input`. `max_rounds` limits the number of model calls.
        """
        return self._run(self.create, functions, max_rounds, body)


class AsyncManagedResponses(AsyncManaged[AsyncResponses]):
    """The async form of `ManagedResponses`."""

    _format = _RESPONSES

    @overload
    async def create(self, *, stream: Literal[False] = False, **body: Any) -> Response: ...

    @overload
    async def create(self, *, stream: Literal[True], **body: Any) -> AsyncStream[ResponseStreamEvent]: ...

    async def create(self, **body: Any) -> Any:
        """Syncs and calls the model. `input` is the whole conversation."""
        return await self._send(self._resource.create, body)

    @asynccontextmanager
    async def stream(self, **body: Any) -> AsyncIterator[AsyncResponseStream[None]]:
        """Syncs and opens a stream of the model, as `client.responses.stream` does."""
        async with AsyncExitStack() as stack:
            yield await self._send(lambda **request: stack.enter_async_context(self._resource.stream(**request)), body)

    async def run(self, functions: Tools, *, max_rounds: int | None = None, **body: Any) -> Response:
        """Calls the model and answers its tool calls until it makes none, as `ManagedResponses.run` does."""
        return await self._run(self.create, functions, max_rounds, body)
