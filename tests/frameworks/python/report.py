"""Writes the measures as a Markdown table."""

from __future__ import annotations

from play import Measures
from task import Task
from variant import Variant

NONE = "\N{EN DASH}"
HEAD = (
    "variant", "glue", "turns", "tool calls", "refused", "largest request", "input", "from cache", "cost",
    "summaries", "needles in view", "after a search", "read by a summary", "results kept",
)  # fmt: skip


def table(framework: str, task: Task, window: int, rows: list[tuple[Variant, Measures]]) -> str:
    """Returns the table of one task, framework and window."""
    lines = [f"### {framework}: {task.name}, window of {window:,} tokens", "", _row(HEAD), _row(["---"] * len(HEAD))]
    lines += [_row(_cells(task, *row)) for row in rows]
    lines += [f"\n{variant.label}: {_reason(it.error)}" for variant, it in rows if it.error]
    return "\n".join([*lines, ""])


def _cells(task: Task, variant: Variant, it: Measures) -> list[str]:
    bill = it.bill
    written = bill["cache_write_5m_tokens"] + bill["cache_write_1h_tokens"]
    total = bill["input_tokens"] + bill["cache_read_tokens"] + written
    needles = len(task.needles)
    is_asked = it.turns > len(task.turns)
    return [
        variant.label,
        str(variant.glue),
        f"{it.turns} of {len(task.turns) + 1}",
        f"{it.calls} of {len(task.results())}",
        str(it.refused),
        f"{it.largest:,}",
        f"{total:,}",
        f"{100 * bill['cache_read_tokens'] / max(total, 1):.0f} %",
        f"{bill['cost_milli'] // 1_000:,}",
        str(it.summary_calls),
        f"{len(it.in_view)} of {needles}" if is_asked else NONE,
        f"{len(it.read_back)} of {needles}" if is_asked else NONE,
        f"{len(it.summarized)} of {needles}" if it.summary_calls else NONE,
        f"{it.kept_results} of {len(task.results())}",
    ]


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _reason(error: str) -> str:
    return " ".join(error.split())[:300]
