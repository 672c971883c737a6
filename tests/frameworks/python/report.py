"""Writes the measures as a Markdown table."""

from __future__ import annotations

from play import Measures
from task import Task
from variant import Variant

NONE = "\N{EN DASH}"
HEAD = (
    "variant", "glue", "turns", "tool calls", "refused", "largest request", "input", "from cache", "cost",
    "summaries", "needles in view", "after searches", "read by a summary", "results kept",
)  # fmt: skip
SUMS = (
    "variant", "plays finished", "requests refused", "calls for summaries", "needles in view",
    "needles after searches", "results kept",
)  # fmt: skip


def table(framework: str, task: Task, window: int, rows: list[tuple[Variant, Measures]]) -> str:
    """Returns the table of one task, framework and window."""
    lines = [f"### {framework}: {task.name}, window of {window:,} tokens", "", _row(HEAD), _row(["---"] * len(HEAD))]
    lines += [_row(_cells(task, *row)) for row in rows]
    lines += [f"\n{variant.label}: {_reason(it.error)}" for variant, it in rows if it.error]
    return "\n".join([*lines, ""])


def overview(framework: str, plays: list[tuple[Task, int, Variant, Measures]]) -> str:
    """Returns two tables over all plays of a framework: the cost of each, and the sums of the other measures."""
    places = list(dict.fromkeys((task.name, window) for task, window, _, _ in plays))
    names = [f"{name.split(',')[0]} {window // 1_024}k" for name, window in places]
    costs = [_row(["variant", "lines", *names]), _row(["---"] * (2 + len(names)))]
    sums = [_row(SUMS), _row(["---"] * len(SUMS))]
    for variant in dict.fromkeys(variant for _, _, variant, _ in plays):
        own = [(task, it) for task, _, other, it in plays if other == variant]
        costs.append(_row([variant.label, str(variant.glue), *(_cost(*it) for it in own)]))
        needles = sum(len(task.needles) for task, _ in own)
        asked = [(task, it) for task, it in own if _is_finished(task, it)]
        searched = [it for _, it in asked if it.searches]
        found = sum(len(it.read_back) for it in searched)
        cells = [
            variant.label,
            f"{len(asked)} of {len(own)}",
            str(sum(it.refused for _, it in own)),
            str(sum(it.summary_calls for _, it in own)),
            f"{sum(len(it.in_view) for _, it in asked)} of {needles}",
            f"{found} of {needles}" if searched else NONE,
            f"{100 * sum(it.kept_results for _, it in own) // max(sum(it.calls for _, it in own), 1)} %",
        ]
        sums.append(_row(cells))
    return "\n".join([f"### {framework}: cost in thousands of input tokens", "", *costs, "", f"### {framework}: sums of all plays", "", *sums, ""])


def _is_finished(task: Task, it: Measures) -> bool:
    return it.turns > len(task.turns)


def _cost(task: Task, it: Measures) -> str:
    if not _is_finished(task, it):
        return f"stops at call {it.calls} of {len(task.results())}"
    return f"{it.bill['cost_milli'] / 1_000_000:,.0f}"


def _cells(task: Task, variant: Variant, it: Measures) -> list[str]:
    bill = it.bill
    written = bill["cache_write_5m_tokens"] + bill["cache_write_1h_tokens"]
    total = bill["input_tokens"] + bill["cache_read_tokens"] + written
    needles = len(task.needles)
    is_asked = _is_finished(task, it)
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
        f"{len(it.read_back)} of {needles} ({it.searches})" if it.searches else NONE,
        f"{len(it.summarized)} of {needles}" if it.summary_calls else NONE,
        f"{it.kept_results} of {it.calls}",
    ]


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _reason(error: str) -> str:
    return " ".join(error.split())[:300]
