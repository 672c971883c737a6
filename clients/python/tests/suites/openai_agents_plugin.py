"""A pytest plugin for the tests of the OpenAI Agents SDK: the sessions of these tests become ours.

The tests create `SQLiteSession` and the list session of their helpers. Both names then mean a session of the service.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

import agents
import pytest
from agents import TResponseInputItem

from palimpsest import Palimpsest
from palimpsest.openai_agents import PalimpsestSession

CLIENT = Palimpsest(os.environ["PALIMPSEST_URL"])
PROJECT = f"suite-{uuid.uuid4().hex[:8]}"
MEMORY = ":memory:"


class StoredSession(PalimpsestSession):
    """Takes the arguments of `SQLiteSession`. Each database is a name prefix of the sessions in it."""

    _databases: ClassVar[dict[str, str]] = {}

    def __init__(self, session_id: str, db_path: str | Path = MEMORY, session_settings: Any = None) -> None:
        database = str(uuid.uuid4()) if str(db_path) == MEMORY else str(db_path)
        prefix = self._databases.setdefault(database, uuid.uuid4().hex[:8])
        super().__init__(PROJECT, f"{prefix}-{session_id}", client=CLIENT, session_settings=session_settings)
        self.session_id = session_id

    def close(self) -> None:
        """Does nothing. The connection belongs to all sessions."""


class ListSession(StoredSession):
    """Takes the arguments of the list session of the tests. Some tests read its items in `saved_items`."""

    _ignore_ids_for_matching = False

    def __init__(self, session_id: str = "test", history: list[TResponseInputItem] | None = None) -> None:
        super().__init__(session_id)
        self.session_settings = None
        if history:
            # Subclasses of the tests count the calls of `add_items`.
            _wait(StoredSession.add_items(self, history))

    @property
    def saved_items(self) -> list[TResponseInputItem]:
        """The whole history. Subclasses of the tests count the calls of `get_items`."""
        return [item for _, item in self._stored(None)]

    @property
    def _items(self) -> list[TResponseInputItem]:
        return self.saved_items


def _wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine in a thread, because the event loop of the test runs already."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(coroutine)))
    thread.start()
    thread.join()
    return results[0]


def pytest_configure(config: pytest.Config) -> None:
    """Replaces the classes before the tests import them."""
    del config
    agents.SQLiteSession = StoredSession  # type: ignore[assignment,misc]
    from tests.utils import simple_session  # type: ignore[import-not-found]

    simple_session.SimpleListSession = ListSession
