"""Requests to the service in threads, for adapters of async frameworks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

Result = TypeVar("Result")
# The seconds that a cancelled caller waits for its request.
_LIMIT = 10.0
_cancelled: ContextVar[threading.Event | None] = ContextVar("palimpsest_cancelled", default=None)


async def in_thread(call: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """Runs a call with requests in a thread.

    A cancelled caller leaves no request behind that could overtake its next one: it waits for the request in flight,
    for a limited time, and the thread sends no further one. A call that has no thread yet does not begin.
    """
    begun, cancelled = threading.Event(), threading.Event()

    def run() -> Result:
        _cancelled.set(cancelled)
        begun.set()
        raise_if_cancelled()
        return call(*arguments, **options)

    task = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        deadline = time.monotonic() + _LIMIT
        # Some frameworks repeat a cancellation until it succeeds.
        while begun.is_set() and not task.done() and time.monotonic() < deadline:
            try:
                await asyncio.wait({task}, timeout=deadline - time.monotonic())
            except asyncio.CancelledError:
                continue
        # Nobody else receives the outcome.
        task.add_done_callback(lambda it: it.cancelled() or it.exception())
        raise


def raise_if_cancelled() -> None:
    """Raises `CancelledError` in a thread whose caller was cancelled."""
    cancelled = _cancelled.get()
    if cancelled and cancelled.is_set():
        raise asyncio.CancelledError


def sleep(seconds: float) -> None:
    """Sleeps. The cancellation of the caller of a thread ends it."""
    cancelled = _cancelled.get()
    if cancelled is None:
        time.sleep(seconds)
    else:
        cancelled.wait(seconds)
