"""Plays every variant on every task and window, and prints a table for each task and framework."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import report
from check import check
from play import Play, play
from task import Task
from task_code import code_task
from task_support import support_task
from variant import Variant

TASKS: dict[str, Callable[[], Task]] = {"short": lambda: code_task(6, "short"), "code": code_task, "support": support_task}
WINDOWS = [32_768, 131_072]
FRAMEWORKS = {
    "langchain": {
        "plain": "no management",
        "summarize": "`SummarizationMiddleware`",
        "clear": "`ContextEditingMiddleware`",
        "summarize_and_clear": "both middlewares",
        "summarize_whole": "`SummarizationMiddleware` without its trim",
        "provider_clears": "Anthropic's `context_management`",
        "deep_agents": "the middlewares of Deep Agents",
        "palimpsest": "`PalimpsestMiddleware`",
    },
    "openai_agents": {
        "plain": "`SQLiteSession` alone",
        "limit": "`SessionSettings(limit=50)`",
        "trim_outputs": "`ToolOutputTrimmer`",
        "compaction_session": "`OpenAIResponsesCompactionSession`",
        "palimpsest": "`PalimpsestContext`",
    },
}
MODELS = {"langchain": "claude-fake", "openai_agents": "gpt-5-fake"}


def variant_of(framework: str, name: str) -> Variant:
    """Returns a variant. The lines of its file that exist for the management of the context end with `# glue`."""
    module = import_module(f"{framework}_variants.{name}")
    return Variant(
        label=FRAMEWORKS[framework][name],
        make=module.make,
        model=MODELS[framework],
        glue=Path(module.__file__ or "").read_text().count("# glue\n"),
        search=getattr(module, "search", None),
        needs_server=name == "palimpsest",
    )


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--window", type=int, action="append")
    parser.add_argument("--variant")
    parser.add_argument("--check", action="store_true", help="runs a short form as a test, without tables")
    parser.add_argument("--json", type=Path, help="also writes all measures to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    written = []
    for framework in options.framework or FRAMEWORKS:
        run: Callable[[Play], None] = import_module(f"play_{framework}").run
        if options.check:
            check(framework, run, variant_of(framework, "plain"), variant_of(framework, "palimpsest"))
            continue
        plays = []
        names = [options.variant] if options.variant else FRAMEWORKS[framework]
        for task_name in options.task or TASKS:
            task = TASKS[task_name]()
            for window in options.window or (WINDOWS if task_name != "short" else WINDOWS[1:]):
                rows = [(it, play(task, it, window, run)) for it in (variant_of(framework, name) for name in names)]
                print(report.table(framework, task, window, rows), flush=True)
                plays += [(task, window, *it) for it in rows]
                place = {"framework": framework, "task": task.name, "window": window}
                written += [{**place, "glue": variant.glue, **asdict(measures)} for variant, measures in rows]
        if plays:
            print(report.overview(framework, plays), flush=True)
    if options.json and written:
        options.json.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
