"""The sessions in which the tools of the service read."""

from __future__ import annotations

from collections.abc import Hashable

_MAX_KEYS = 1_024


class Lanes:
    """The id of the session of the view that produced a call, or of the last view of a run.

    The view of a side request is that of a lane, and the tools of the service have to read there. The oldest keys are
    forgotten.
    """

    def __init__(self) -> None:
        self._sessions: dict[Hashable, str] = {}

    def __bool__(self) -> bool:
        """True if a call or run is known."""
        return bool(self._sessions)

    def remember(self, key: Hashable, session: str) -> None:
        """Remembers the id of a session for a call or a run."""
        self._sessions.pop(key, None)
        self._sessions[key] = session
        for oldest in list(self._sessions)[:-_MAX_KEYS]:
            self._sessions.pop(oldest, None)

    def session_of(self, key: Hashable, named: str) -> str:
        """Returns the id of the session for a call or a run. `named` is the one of an unknown key."""
        return self._sessions.get(key, named)
