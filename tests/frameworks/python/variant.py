"""A variant: one way to manage the context of an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Variant:
    """A way to manage the context, in the words of its framework.

    `name` is that of its file. `glue` is the number of lines in the agent that exist for it. `make` returns the parts
    that the agent gets, as the play of its framework expects them. `search` returns the call with which the model searches removed content.
    """

    name: str
    label: str
    make: Callable[..., Any]
    model: str
    glue: int
    search: Callable[[str], dict[str, Any]] | None = None
    needs_server: bool = False
