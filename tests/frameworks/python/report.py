"""Writes the measures as a Markdown table."""

from __future__ import annotations

from typing import Any

from figures import NONE, SUMS_HEAD, cost_head, cost_rows, markdown, play_of, sums_rows
from play import Measures
from task import Task
from variant import Variant

HEAD = (
    "variant", "glue", "turns", "tool calls", "refused", "largest request", "input", "from cache", "cost",
    "summaries", "needles in view", "after searches", "read by a summary", "results kept",
)  # fmt: skip


def table(framework: str, task: Task, window: int, rows: list[tuple[Variant, Measures]]) -> str:
    """Returns the table of one task, framework and window."""
    lines = [f"### {framework}: {task.name}, window of {window:,} tokens", ""]
    lines.append(markdown(list(HEAD), [_cells(task, *row) for row in rows]))
    lines += [f"\n{variant.label}: {_reason(it.error)}" for variant, it in rows if it.error]
    return "\n".join([*lines, ""])


def overview(framework: str, measures: list[dict[str, Any]]) -> str:
    """Returns two tables over all plays of a framework: the cost of each, and the sums of the other measures."""
    plays = [play_of(it) for it in measures]
    costs = [
        f"### {framework}: cost in thousands of input tokens",
        "",
        markdown(cost_head(plays), cost_rows(plays)),
        "",
    ]
    return "\n".join([*costs, f"### {framework}: sums of all plays", "", markdown(SUMS_HEAD, sums_rows(plays)), ""])


def _cells(task: Task, variant: Variant, it: Measures) -> list[str]:
    bill = it.bill
    written = bill["cache_write_5m_tokens"] + bill["cache_write_1h_tokens"]
    total = bill["input_tokens"] + bill["cache_read_tokens"] + written
    needles = len(task.needles)
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
        f"{len(it.in_view)} of {needles}" if not it.error else NONE,
        f"{len(it.read_back)} of {needles} ({it.searches})" if it.searches else NONE,
        f"{len(it.summarized)} of {needles}" if it.summary_calls else NONE,
        f"{it.kept_results} of {it.calls}",
    ]


def _reason(error: str) -> str:
    return " ".join(error.split())[:300]
