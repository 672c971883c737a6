"""Requests of async adapters in threads."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from palimpsest import NotFoundError, Palimpsest, _threads
from palimpsest._http import connection_settings
from palimpsest._threads import in_thread
from world import Server


async def test_a_cancelled_caller_waits_for_its_request(name: str, tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    try:
        http = httpx2.Client(**connection_settings(server.url, None))
        with Palimpsest(http_client=http) as client:
            session = client.session("demo", name, "anthropic_messages")
            # Opens the connection.
            with pytest.raises(NotFoundError):
                session.get()
            server.process.send_signal(signal.SIGSTOP)
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
            sending = threading.Event()
            http.event_hooks = {"request": [lambda _: sending.set()]}
            run = asyncio.ensure_future(in_thread(session.sync, body))
            await asyncio.to_thread(sending.wait)
            for _ in range(3):
                run.cancel()
                await asyncio.sleep(0.01)
            assert not run.done()
            server.process.send_signal(signal.SIGCONT)
            await asyncio.wait({run})
            assert run.cancelled()
            assert session.get()["counts"]["messages"] == 1
    finally:
        server.stop()


async def test_a_cancelled_caller_does_not_wait_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_threads, "_LIMIT", 3_600)
    released, began = threading.Event(), threading.Event()
    executor = ThreadPoolExecutor(max_workers=1)
    asyncio.get_running_loop().set_default_executor(executor)
    executor.submit(released.wait)
    try:
        run = asyncio.ensure_future(in_thread(began.set))
        await asyncio.sleep(0)
        run.cancel()
        # The only thread is busy.
        await asyncio.wait({run}, timeout=60)
        assert run.cancelled()
    finally:
        released.set()
        executor.shutdown()
    assert not began.is_set()


async def test_results_and_errors_of_a_thread_are_returned(client: Palimpsest, name: str) -> None:
    assert await in_thread(lambda number, *, factor: number * factor, 2, factor=3) == 6
    with pytest.raises(NotFoundError):
        await in_thread(client.session("demo", name).get)
