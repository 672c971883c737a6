"""Writes the figures of a run to `docs/frameworks/figures.json`, and the tables of the pages from this file.

    figures.py                         writes the tables from the file
    figures.py --measures FILE...      replaces the plays of the frameworks in the output of complete runs first
    figures.py --printed PAGE FILE     replaces the rows of a page for TypeScript by the output of its script first
    figures.py --check                 changes nothing, and fails if a table or a play differs

`--folder` selects another folder than `docs/frameworks`. The module needs only the standard library.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from frameworks import FRAMEWORKS, PLAYS, glue_lines

Play = dict[str, Any]
Rows = list[list[str]]

DOCS = Path(__file__).parents[3] / "docs/frameworks"
NONE = "\N{EN DASH}"
NAMES = {
    "anthropic_sdk": "none, SDK of Anthropic",
    "langchain": "LangChain",
    "openai_agents": "OpenAI Agents SDK",
    "pydantic_ai": "Pydantic AI",
    "strands": "Strands Agents",
    "google_adk": "Google ADK",
    "llama_index": "LlamaIndex",
    "spring_ai": "Spring AI",
    "langchain4j": "LangChain4j",
    "eino": "eino",
}
#: The play of the table in the README.
SHOWN = ("code", 131_072)
SHOWN_HEAD = [
    "framework", "variant", "lines", "tool calls", "tokens sent", "largest request", "refused", "cost",
    "needles in view", "after searches", "results kept",
]  # fmt: skip
SUMS_HEAD = [
    "variant", "plays finished", "requests refused", "calls for summaries", "needles in view",
    "needles after searches", "results kept",
]  # fmt: skip
PRINTED_HEAD = [
    "model", "variant", "finished rounds", "rejected requests", "input", "cache read", "cache written", "cost",
    "readable rounds",
]  # fmt: skip
WINDOWS = {"claude-sonnet-4-5": "`claude-sonnet-4-5`, 200,000", "gpt-5": "`gpt-5`, 272,000"}
PRINTED = {
    "none": "nothing",
    "pruneMessages": "`pruneMessages`",
    "TokenLimiter": "`TokenLimiter`",
    "session": "session",
    "session, 100,000": "session, limit of 100,000 tokens",
}


def play_of(measures: dict[str, Any]) -> Play:
    """Returns the figures of one play."""
    bill = measures["bill"]
    sent = bill["input_tokens"] + bill["cache_read_tokens"] + bill["cache_write_5m_tokens"]
    return {
        "framework": measures["framework"],
        "variant": measures["variant"],
        "task": measures["task"],
        "window": measures["window"],
        "lines": measures["glue"],
        "finished": not measures["error"],
        "calls": measures["calls"],
        "results": measures["results"],
        "refused": measures["refused"],
        "largest": measures["largest"],
        "sent": sent + bill["cache_write_1h_tokens"],
        "cost": round(bill["cost_milli"] / 1_000),
        "summaries": measures["summary_calls"],
        "needles": measures["needles"],
        "in_view": len(measures["in_view"]),
        "found": len(measures["read_back"]) if measures["searches"] else None,
        "kept": measures["kept_results"],
    }


def cost_head(plays: list[Play]) -> list[str]:
    """Returns the head of the table of costs."""
    places = dict.fromkeys((it["task"], it["window"]) for it in plays)
    return ["variant", "lines", *(f"{task} {window // 1_024}k" for task, window in places)]


def cost_rows(plays: list[Play]) -> Rows:
    """Returns the cost of each variant in each play of a framework."""
    return [[name, str(own[0]["lines"]), *map(_cost, own)] for name, own in _variants(plays)]


def sums_rows(plays: list[Play]) -> Rows:
    """Returns the sums of each variant over the plays of a framework."""
    rows = []
    for name, own in _variants(plays):
        needles = sum(it["needles"] for it in own)
        found = [it["found"] for it in own if it["finished"] and it["found"] is not None]
        rows.append(
            [
                name,
                f"{sum(it['finished'] for it in own)} of {len(own)}",
                str(sum(it["refused"] for it in own)),
                str(sum(it["summaries"] for it in own)),
                f"{sum(it['in_view'] for it in own)} of {needles}",
                f"{sum(found)} of {needles}" if found else NONE,
                f"{100 * sum(it['kept'] for it in own) // max(sum(it['calls'] for it in own), 1)} %",
            ]
        )
    return rows


def shown_rows(plays: list[Play]) -> Rows:
    """Returns one play of every variant."""
    rows = []
    for it in plays:
        if (it["task"], it["window"]) != SHOWN:
            continue
        of = f" of {it['needles']}"
        row = [
            NAMES[it["framework"]],
            FRAMEWORKS[it["framework"]][it["variant"]],
            str(it["lines"]),
            f"{it['calls']}/{it['results']}",
            _thousands(it["sent"]),
            _thousands(it["largest"]),
            str(it["refused"]),
            _thousands(it["cost"]),
            f"{it['in_view']}{of}" if it["finished"] else NONE,
            f"{it['found']}{of}" if it["found"] is not None else NONE,
            f"{100 * it['kept'] // max(it['calls'], 1)} %",
        ]
        rows.append(row)
    return rows


def printed_rows(printed: Rows) -> Rows:
    """Returns the rows of a script for TypeScript. A model is named once, and OpenAI does not bill cache writes."""
    rows = []
    model = ""
    for name, variant, rounds, rejected, tokens, read, written, cost, readable in printed:
        cells = [f"{int(it):,}" for it in (rounds, rejected, tokens, read, written, cost, readable)]
        if name == "gpt-5":
            cells[4] = NONE
        rows.append([WINDOWS[name] if name != model else "", PRINTED[variant], *cells])
        model = name
    return rows


def markdown(head: list[str], rows: Rows) -> str:
    """Returns a table."""
    return "\n".join([_row(head), "|" + "---|" * len(head), *map(_row, rows)])


def _tables(figures: dict[str, Any]) -> list[tuple[str, list[str], Rows]]:
    """Returns the page, the head and the rows of every table."""
    tables = [("README.md", SHOWN_HEAD, shown_rows(figures["plays"]))]
    for framework in FRAMEWORKS:
        own = [it for it in figures["plays"] if it["framework"] == framework]
        page = framework.replace("_", "-") + ".md"
        if framework != "anthropic_sdk":
            tables += [(page, cost_head(own), cost_rows(own)), (page, SUMS_HEAD, sums_rows(own))]
    tables += [(f"{name}.md", PRINTED_HEAD, printed_rows(rows)) for name, rows in figures["typescript"].items()]
    return tables


def _with_table(text: str, head: list[str], rows: Rows) -> str:
    """Returns a page with new rows in the table that has this head."""
    first = _row(head) + "\n"
    assert text.count(first) == 1, f"the page needs one table with the head {first}"
    before, _, after = text.partition(first)
    _, end, rest = after.partition("\n\n")
    return before + markdown(head, rows) + (end + rest if end else "\n")


def _problems(figures: dict[str, Any]) -> list[str]:
    """Returns the plays that are missing, unknown, or that ran with another variant."""
    expected = {
        (framework, variant, task, window): glue_lines(framework, variant)
        for framework, variants in FRAMEWORKS.items()
        for variant in variants
        for task, window in PLAYS
    }
    found = {(it["framework"], it["variant"], it["task"], it["window"]): it["lines"] for it in figures["plays"]}
    differ = {*expected.items()} ^ {*found.items()}
    return [
        f"figures.json: {key} with {lines} lines is in the file or in the code only" for key, lines in sorted(differ)
    ]


def _cost(it: Play) -> str:
    return _thousands(it["cost"]) if it["finished"] else f"stops at {it['calls']}/{it['results']}"


def _variants(plays: list[Play]) -> list[tuple[str, list[Play]]]:
    """Returns the plays of each variant, with its name."""
    keys = dict.fromkeys((it["framework"], it["variant"]) for it in plays)
    return [
        (FRAMEWORKS[key[0]][key[1]], [it for it in plays if (it["framework"], it["variant"]) == key]) for key in keys
    ]


def _thousands(count: int) -> str:
    return f"{count / 1_000:,.0f}"


def _row(cells: list[str]) -> str:
    return "|" + "|".join(f" {it} " if it else " " for it in cells) + "|"


def _lines(figures: dict[str, Any]) -> str:
    """Returns the file, with one play or row per line."""
    rows = lambda values: ",\n".join(f"  {json.dumps(it)}" for it in values)  # noqa: E731
    pages = ",\n".join(f' "{name}": [\n{rows(values)}\n ]' for name, values in figures["typescript"].items())
    return f'{{"plays": [\n{rows(figures["plays"])}\n],\n"typescript": {{\n{pages}\n}}}}\n'


def main() -> int:
    """Writes or checks the file and the tables. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measures", type=Path, nargs="+")
    parser.add_argument("--printed", nargs=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=Path, default=DOCS)
    options = parser.parse_args()
    path = options.folder / "figures.json"
    figures = json.loads(path.read_text())
    if options.measures:
        measures = [it for file in options.measures for it in json.loads(file.read_text())]
        order = [(framework, variant) for framework, variants in FRAMEWORKS.items() for variant in variants]
        place: Callable[[Play], Any] = lambda it: (  # noqa: E731
            order.index((it["framework"], it["variant"])),
            PLAYS.index((it["task"], it["window"])),
        )
        replaced = {it["framework"] for it in measures}
        others = [it for it in figures["plays"] if it["framework"] not in replaced]
        figures["plays"] = sorted([*others, *map(play_of, measures)], key=place)
    if options.printed:
        page, file = options.printed
        lines = [it for it in Path(file).read_text().splitlines() if it.startswith("| ")][1:]
        figures["typescript"][page] = [line.strip("| ").split(" | ") for line in lines]
    problems = _problems(figures)
    for name, head, rows in _tables(figures):
        page = options.folder / name
        text = page.read_text()
        written = _with_table(text, head, rows)
        if options.check and written != text:
            problems.append(f"{name}: the table | {head[0]} | {head[1]} | … differs from figures.json")
        elif written != text:
            page.write_text(written)
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    if not options.check:
        path.write_text(_lines(figures))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
