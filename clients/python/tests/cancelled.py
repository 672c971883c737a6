"""The cancellation of an async run, for the tests of adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from palimpsest import NotFoundError, Palimpsest
from world import Server


async def check_cancelled_run(folder: Path, name: str, prepare: Callable[[Palimpsest], Callable[[], Any]]) -> None:
    """Checks that a run which is cancelled after an attempt that failed makes no request later.

    `prepare` makes requests that are no part of the run, and returns a function that starts the run.
    """
    executor = ThreadPoolExecutor()
    asyncio.get_running_loop().set_default_executor(executor)
    server = Server(folder)
    with Palimpsest(server.url) as client:
        start = prepare(client)
        server.stop()
        attempted = asyncio.Event()

        def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            attempted.set()

        host, port = server.address.rsplit(":", 1)
        async with await asyncio.start_server(refuse, host, int(port)):
            run = asyncio.ensure_future(start())
            await asyncio.wait({run, asyncio.ensure_future(attempted.wait())}, return_when=asyncio.FIRST_COMPLETED)
        run.cancel()
        await asyncio.wait({run})
        assert run.cancelled()
        server = Server(folder, listen=server.address)
        try:
            # Waits for the threads that the cancelled run still uses.
            executor.shutdown()
            with pytest.raises(NotFoundError):
                client.session("demo", name).get()
        finally:
            server.stop()
