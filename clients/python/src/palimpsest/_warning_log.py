"""The log of the warnings in replies."""

from __future__ import annotations

import logging

from .view import View

_MAX_KEYS = 1_024
_logger = logging.getLogger("palimpsest")


class WarningLog:
    """Logs the warnings of views, each code once per session. The oldest entries are forgotten.

    Threads can share it: at worst, two of them log the same warning.
    """

    def __init__(self) -> None:
        self._logged: dict[tuple[str, str], None] = {}

    def log(self, view: View) -> None:
        """Logs the warnings of a view that were not logged for its session."""
        for warning in view.warnings:
            key = (view.session, warning["code"])
            if key in self._logged:
                continue
            self._logged[key] = None
            for oldest in list(self._logged)[:-_MAX_KEYS]:
                self._logged.pop(oldest, None)
            _logger.warning("%s: %s (%s)", view.session, warning["detail"], warning["code"])
