"""The deadline and the retries of one call."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import TypeVar

from .errors import ApiError, DeadlineExceededError

Element = TypeVar("Element")
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 10.0


@dataclass(frozen=True)
class Options:
    """Settings of calls. `timeout` is in seconds and includes all retries."""

    timeout: float
    max_retries: int

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise ValueError(f"Invalid timeout {self.timeout!r}: pass a number of seconds above 0.")
        if self.max_retries < 0:
            raise ValueError(f"Invalid max_retries {self.max_retries!r}: pass 0 or more.")


class Attempts:
    """Counts the attempts of one call and computes the delays between them."""

    def __init__(self, options: Options) -> None:
        self._deadline = time.monotonic() + options.timeout
        self._left = options.max_retries
        self._delay = _FIRST_DELAY

    def remaining(self) -> float:
        """Returns the seconds until the deadline, at least 1 ms."""
        return max(self._deadline - time.monotonic(), 0.001)

    def checked(self, element: Element) -> Element:
        """Returns an element of a stream, or raises `DeadlineExceededError` after the deadline."""
        if time.monotonic() > self._deadline:
            raise DeadlineExceededError("The stream did not end before the deadline.")
        return element

    def delay_after(self, error: ApiError) -> float:
        """Returns the seconds to wait before the next attempt, or raises the error if there is none."""
        # Random jitter keeps clients from retrying at the same moment.
        delay = max(self._delay, error.retry_after or 0.0) * random.uniform(1.0, 1.5)
        if not error.retryable or self._left == 0 or delay >= self._deadline - time.monotonic():
            raise error
        self._left -= 1
        self._delay = min(self._delay * 2, _LONGEST_DELAY)
        return delay
