"""The places of the messages of a framework in a view."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Key(NamedTuple):
    """The identity of a message or block. `has_id` is true if the value contains ids of calls, which are unique."""

    value: str
    has_id: bool = False


def last_places(view: Sequence[Key], sources: Sequence[tuple[int, Key]]) -> list[int | None]:
    """Returns the index of the source for each element of a view, or None.

    `sources` has the number of the message and the key of each source. Levels remove old messages first, so equal
    texts are matched from the end, and in the order of the sources.
    """
    places: dict[Key, list[int]] = defaultdict(list)
    for index, (_, key) in enumerate(sources):
        places[key].append(index)
    found: list[int | None] = []
    next_text, message = len(sources), max((number for number, _ in sources), default=0)
    for key in reversed(view):
        candidates = places[key]
        # The service can move the result of a call, so an id is found at each place.
        while candidates and not key.has_id and (candidates[-1] >= next_text or sources[candidates[-1]][0] > message):
            candidates.pop()
        place = candidates.pop() if candidates else None
        found.append(place)
        if place is not None:
            message = min(message, sources[place][0])
            next_text = next_text if key.has_id else place
    return found[::-1]
