"""The list of cases."""

from dataclasses import dataclass
from typing import Callable

CASES = []


@dataclass(frozen=True)
class Case:
    """A use of an SDK that has the same result on both ways."""

    name: str
    run: Callable
    # The header `x-palimpsest-body` of each response through the gateway to a request with a conversation. `stateful`:
    # `original`, then `unmanaged`. `managed`: `original`, then `view` too. `None`: the case sends no conversation.
    body: str | None
    # The number of streams that the case aborts.
    aborts: int


def case(body="original", aborts=0):
    """Adds a function to the list. Its name is that of the case."""

    def add(function):
        CASES.append(Case(function.__name__.replace("_", "-"), function, body, aborts))
        return function

    return add
