"""The async session."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from ._base import BaseSession, SessionState, Tools, failed_result, function_of
from ._calls import SessionPath, UndoSearch, WatchPosition, undo_query, view_of, view_stream
from ._formats import Format, ToolCall, new_messages, parse_call, parse_response, result_of
from ._retry import Attempts, Options
from ._transport import AsyncTransport, Request
from .errors import ApiError, JsonObject, UnavailableError
from .view import View


class AsyncSession(BaseSession):
    """One conversation of one agent. It is created with the first sync. Tasks of one event loop can share it."""

    def __init__(
        self,
        transport: AsyncTransport,
        path: SessionPath,
        options: Options,
        declared: Format | None,
        state: SessionState | None = None,
    ) -> None:
        super().__init__(path, options, declared, state or SessionState())
        self._transport = transport

    def with_options(self, *, timeout: float | None = None, max_retries: int | None = None) -> AsyncSession:
        """Returns the same session with another deadline of its calls, in seconds, or other retries."""
        options = self._changed_options(timeout, max_retries)
        return AsyncSession(self._transport, self._path, options, self._format, self._state)

    async def sync(
        self,
        body: Mapping[str, Any] | None = None,
        *,
        cache_breakpoints: bool | JsonObject = False,
        too_long: BaseException | str | None = None,
        palimpsest: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> View:
        """Sends the body of the next model request and returns the view.

        `body` or `fields` is the body with the whole conversation. `cache_breakpoints` sets cache breakpoints
        in the request, for Anthropic. `too_long` is the exception with which the provider rejected the last
        view as too long. `palimpsest` has further fields of `SyncContextRequest`. A repeat is safe.
        """
        whole = {**(body or {}), **fields}
        sent = self._state.last_response
        request = self._sync_request(whole, cache_breakpoints, too_long, palimpsest, sent)
        # The stream of a large view belongs to the same call.
        attempts = Attempts(self._options)
        reply = await self._transport.send(request, attempts)
        stream = view_stream(reply)
        chunks = await self._transport.elements(stream, attempts) if stream else []
        return self._received(view_of(whole, reply, chunks), sent, self._transport.warning_log)

    async def tools(self, format: Format | None = None) -> list[JsonObject]:  # noqa: A002 - the term of the contract
        """Returns the definitions of the tools of the service, for `tools` of the model request.

        The model reads stored results and the transcript with them. `format` defaults to that of the session.
        """
        chosen = self._format_for_tools(format)
        if chosen not in self._state.own_tools:
            self._keep_tools(chosen, await self._send(self._path.call("ListTools", format=chosen)))
        return list(self._state.own_tools[chosen])

    async def run_tool(self, call: Any) -> JsonObject:
        """Runs a call of a tool of the service and returns the result in the format of the call."""
        return await self._run_own(parse_call(call))

    async def answer(self, response: Any, tools: Tools, *, view: View | None = None) -> list[Any]:
        """Runs the tool calls of a response and returns the messages to append to the conversation.

        The messages are those of the response, and the results. The service runs calls of its own tools.
        `tools` has a function, sync or async, for each other name, which receives the input as keyword
        arguments. The calls run concurrently. An exception of a function, or of a call to the service, becomes an
        error result. The usage of the response is sent with the next sync. Pass the `view` of a side request, so
        that the tools of the service read its lane.
        """
        parsed = parse_response(response)
        self._state.last_response = parsed
        self._note_view(parsed, view)
        # All calls end before an exception that is no result, such as a cancellation, is raised.
        runs = await asyncio.gather(*(self._run(call, tools) for call in parsed.calls), return_exceptions=True)
        results: list[JsonObject] = []
        for run in runs:
            if isinstance(run, BaseException):
                raise run
            results.append(run)
        return new_messages(parsed, results)

    async def _run(self, call: ToolCall, tools: Tools) -> JsonObject:
        try:
            if call.name in self._state.own_names and call.name not in tools:
                return await self._run_own(call)
            output = function_of(call, tools)(**call.input)
            return result_of(call, await output if inspect.isawaitable(output) else output)
        except Exception as error:
            return failed_result(call, error)

    async def _run_own(self, call: ToolCall) -> JsonObject:
        result: JsonObject = (await self._send(self._call_request(call)))["tool_result"]
        return result

    async def append(self, messages: Sequence[JsonObject], **options: Any) -> JsonObject:
        """Appends messages without a view and returns the `AppendMessagesResponse`. Agents use `sync` instead.

        `messages` has objects of the type `MessageInput`, and `options` are fields of `AppendMessagesRequest`.
        """
        return await self._send(self._path.change("AppendMessages", {"messages": messages, **options}))

    async def rewind(self, **options: Any) -> JsonObject:
        """Removes the last messages from the view: those after `to_message_id`, or from `before_message_id` on.

        `options` are these fields and others of `RewindSessionRequest`. Returns the `RewindSessionResponse`.
        """
        return await self._send(self._path.change("RewindSession", options))

    async def compact(self, **options: Any) -> JsonObject:
        """Compacts the session now and returns the `CompactResponse`. `options` are fields of `CompactRequest`."""
        return await self._send(self._path.change("Compact", options))

    async def undo(self, *, force: bool = False) -> JsonObject | None:
        """Undoes the last compaction, collapse, clear or snip of the view.

        Returns the `RestoreContextResponse`, or None if nothing can be undone. Another call undoes the one before.
        Raises `FailedPreconditionError` with the reason `RESTORE_OVER_BLOCK` if the restored view would nearly fill the
        context window. `force` restores such a view too.
        """
        search = UndoSearch()
        async for event in self._pages(self._path.call("ListEvents", **undo_query()), "events"):
            revision = search.revision_before(event)
            if revision is not None:
                return await self.restore(revision, force=force)
        return None

    async def restore(self, to_revision: int, **options: Any) -> JsonObject:
        """Restores the view of a revision. `options` are fields of `RestoreContextRequest`."""
        return await self._send(self._path.change("RestoreContext", {"to_revision": to_revision, **options}))

    async def get(self) -> JsonObject:
        """Returns the session: its state, counts, policy and budget."""
        return await self._resource(self._path.call("GetSession"))

    async def create(self, **fields: Any) -> JsonObject:
        """Creates the session with fields of `Session`, such as `policy_overrides`. Not needed for the defaults."""
        return await self._resource(self._path.create(fields))

    async def update(self, *, expected_revision: int | None = None, **fields: Any) -> JsonObject:
        """Changes fields of the session, such as `title`, `attributes` or `policy_overrides`.

        Raises `AbortedError` if the session does not have the expected revision.
        """
        body = {"session": fields, "expected_revision": expected_revision}
        return await self._resource(self._path.change("UpdateSession", body))

    async def delete(self, *, missing_ok: bool = True, subagents: bool = False) -> None:
        """Deletes the session with all its data, and with `subagents` also its subagent sessions."""
        await self._send(self._path.call("DeleteSession", allow_missing=missing_ok, delete_subagents=subagents))

    async def memory(self) -> JsonObject:
        """Returns the session memory: the running summary of the session."""
        memory: JsonObject = (await self._send(self._path.call("GetSessionMemory")))["memory"]
        return memory

    def messages(self, format: Format | None = None, **query: Any) -> AsyncIterator[JsonObject]:  # noqa: A002
        """Yields the messages of the transcript. `query` has parameters of `ListMessages`, such as `descending`."""
        return self._pages(self._path.call("ListMessages", format=format or self._format, **query), "messages")

    def search(self, text: str, *, regex: bool = False, ignore_case: bool = False) -> AsyncIterator[JsonObject]:
        """Yields the places of the transcript with a text, or with matches of a regular expression."""
        pattern = {"regex" if regex else "literal": text, "ignore_case": ignore_case}
        return self._pages(self._path.call("SearchMessages", pattern=pattern), "hits")

    def events(self, *, after_revision: int = 0, kinds: Sequence[str] = ()) -> AsyncIterator[JsonObject]:
        """Yields the events of the session after a revision, all or those of some kinds."""
        query = {"after_revision": after_revision, "kinds": list(kinds)}
        return self._pages(self._path.call("ListEvents", **query), "events")

    async def watch(self, *, after_revision: int = 0, kinds: Sequence[str] = ()) -> AsyncGenerator[JsonObject, None]:
        """Yields events as they happen, without an end. Reconnects after errors that can be retried."""
        position = WatchPosition(after_revision)
        attempts: Attempts | None = None
        while True:
            request = self._path.call("WatchSession", after_revision=position.revision, kinds=list(kinds))
            failure: ApiError = UnavailableError("The watch ended.")
            try:
                async for element in self._transport.stream(request, None):
                    attempts = None
                    if position.is_new(element):
                        yield element["event"]
            except ApiError as error:
                failure = error
            # Retries count from the first failure after an element.
            attempts = attempts or Attempts(self._options)
            await asyncio.sleep(attempts.delay_after(failure))

    async def _send(self, request: Request) -> JsonObject:
        reply: JsonObject = await self._transport.send(request, Attempts(self._options))
        return reply

    async def _resource(self, request: Request) -> JsonObject:
        session: JsonObject = (await self._send(request))["session"]
        return session

    def _pages(self, request: Request, items: str) -> AsyncIterator[JsonObject]:
        return pages(self._transport, request, self._options, items)


async def pages(transport: AsyncTransport, request: Request, options: Options, items: str) -> AsyncIterator[JsonObject]:
    """Yields the items of all pages of a list."""
    token: str | None = None
    while token != "":
        page = await transport.send(request.page(token), Attempts(options))
        for item in page[items]:
            yield item
        token = page["next_page_token"]
