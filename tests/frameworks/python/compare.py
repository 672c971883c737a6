"""Plays every variant on every task and window, and prints a table for each task and framework."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import program
import report
from check import check
from frameworks import FRAMEWORKS, OPENAI_FRAMEWORKS, PROGRAMS, SEPARATE, WINDOWS, glue_lines
from play import Play, play
from task import Task
from task_code import code_task
from task_support import support_task
from variant import Variant

TASKS: dict[str, Callable[[], Task]] = {
    "short": lambda: code_task(6, "short"),
    "code": code_task,
    "support": support_task,
}


def variant_of(framework: str, name: str) -> Variant:
    """Returns a variant."""
    if framework in PROGRAMS:
        # A program makes the parts of its agent itself.
        make, search = dict, program.SEARCHES.get(name)
    else:
        module = import_module(f"{framework}_variants.{name}")
        make, search = module.make, getattr(module, "search", None)
    return Variant(
        name=name,
        label=FRAMEWORKS[framework][name],
        make=make,
        model="gpt-5-fake" if framework in OPENAI_FRAMEWORKS else "claude-fake",
        glue=glue_lines(framework, name),
        search=search,
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
    parser.add_argument("--separate", action="store_true", help="only the framework with an environment of its own")
    parser.add_argument("--json", type=Path, help="also writes all measures to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    written = []
    for framework in options.framework or FRAMEWORKS:
        if (framework == SEPARATE) != options.separate:
            continue
        run: Callable[[Play], None] = import_module(f"play_{framework}").run
        if options.check:
            check(framework, run, variant_of(framework, "plain"), variant_of(framework, "palimpsest"))
            continue
        names = [options.variant] if options.variant else list(FRAMEWORKS[framework])
        plays = []
        for task_name in options.task or TASKS:
            task = TASKS[task_name]()
            for window in options.window or (WINDOWS if task_name != "short" else WINDOWS[1:]):
                variants = [variant_of(framework, name) for name in names]
                rows = [(it, play(task, it, window, run)) for it in variants]
                print(report.table(framework, task, window, rows), flush=True)
                place = {"framework": framework, "task": task_name, "window": window}
                sizes = {"results": len(task.results()), "needles": len(task.needles)}
                plays += [
                    {**asdict(measures), **place, **sizes, "variant": name, "glue": variant.glue}
                    for name, (variant, measures) in zip(names, rows, strict=True)
                ]
        print(report.overview(framework, plays), flush=True)
        written += plays
    if options.json and written:
        options.json.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
