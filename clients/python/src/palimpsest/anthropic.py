"""Model calls with the SDK of Anthropic through a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Literal, overload

from anthropic import AsyncStream, Stream
from anthropic.lib.streaming import AsyncMessageStream, MessageStream
from anthropic.resources.messages import AsyncMessages, Messages
from anthropic.types import Message, RawMessageStreamEvent

from ._base import Tools
from ._formats import Format
from ._managed import AsyncManaged, Managed

_FORMAT: Format = "anthropic_messages"


class ManagedMessages(Managed[Messages]):
    """`client.messages` whose requests contain the view of a session. All arguments of the SDK are passed on."""

    _format = _FORMAT

    @overload
    def create(self, *, stream: Literal[False] = False, **body: Any) -> Message: ...

    @overload
    def create(self, *, stream: Literal[True], **body: Any) -> Stream[RawMessageStreamEvent]: ...

    def create(self, **body: Any) -> Any:
        """Syncs and calls the model. `messages` is the whole conversation."""
        return self._send(self._resource.create, body)

    @contextmanager
    def stream(self, **body: Any) -> Iterator[MessageStream[None]]:
        """Syncs and opens a stream of the model, as `client.messages.stream` does."""
        with ExitStack() as stack:
            yield self._send(lambda **request: stack.enter_context(self._resource.stream(**request)), body)

    def run(self, functions: Tools, *, max_rounds: int | None = None, **body: Any) -> Message:
        """Calls the model and answers its tool calls until it makes none. Returns the last response.

        `functions` has a function for the name of each tool. The service runs its own tools. Responses and
        results are appended to the list `messages`. `max_rounds` limits the number of model calls.
        """
        return self._run(self.create, functions, max_rounds, body)


class AsyncManagedMessages(AsyncManaged[AsyncMessages]):
    """The async form of `ManagedMessages`."""

    _format = _FORMAT

    @overload
    async def create(self, *, stream: Literal[False] = False, **body: Any) -> Message: ...

    @overload
    async def create(self, *, stream: Literal[True], **body: Any) -> AsyncStream[RawMessageStreamEvent]: ...

    async def create(self, **body: Any) -> Any:
        """Syncs and calls the model. `messages` is the whole conversation."""
        return await self._send(self._resource.create, body)

    @asynccontextmanager
    async def stream(self, **body: Any) -> AsyncIterator[AsyncMessageStream[None]]:
        """Syncs and opens a stream of the model, as `client.messages.stream` does."""
        async with AsyncExitStack() as stack:
            yield await self._send(lambda **request: stack.enter_async_context(self._resource.stream(**request)), body)

    async def run(self, functions: Tools, *, max_rounds: int | None = None, **body: Any) -> Message:
        """Calls the model and answers its tool calls until it makes none, as `ManagedMessages.run` does."""
        return await self._run(self.create, functions, max_rounds, body)
