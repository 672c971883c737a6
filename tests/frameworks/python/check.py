"""The comparison in a short form, as a test."""

from __future__ import annotations

from collections.abc import Callable

from play import Play, play
from task_code import code_task
from variant import Variant

#: Enough rounds to fill the window.
ROUNDS = 12
WINDOW = 32_768


def check(framework: str, run: Callable[[Play], None], plain: Variant, palimpsest: Variant) -> None:
    """Raises an error if an agent without management finishes, or one with Palimpsest does not."""
    task = code_task(ROUNDS)
    unmanaged = play(task, plain, WINDOW, run)
    stopped = (unmanaged.calls > 0, unmanaged.refused)
    assert stopped == (True, 1), f"{framework}: the task does not fill the window: {unmanaged}"
    managed = play(task, palimpsest, WINDOW, run, settles=False)
    needles = sorted(it.name for it in task.needles)
    results = len(task.results())
    found = (managed.error, managed.turns, managed.calls, managed.refused, managed.read_back, managed.kept_results)
    assert found == ("", len(task.turns) + 1, results, 0, needles, results), f"{framework}: {managed}"
    print(f"{framework}: {results} calls, {managed.bill['requests']} requests, {len(needles)} needles found")
