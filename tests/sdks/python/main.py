"""Runs all cases, or those that the arguments name, on both ways. Prints one line of JSON per run."""

import asyncio
import inspect
import json
import sys
import traceback

# Each module adds its cases to the list.
import anthropic_async  # noqa: F401
import anthropic_messages  # noqa: F401
import anthropic_requests  # noqa: F401
import openai_async  # noqa: F401
import openai_chat  # noqa: F401
import openai_requests  # noqa: F401
import openai_responses  # noqa: F401
from case import CASES
from world import Run, plain, ways


def outcome(case, run):
    """Returns the result of a case, or the error that it did not expect."""
    try:
        result = case.run(run)
        if inspect.isawaitable(result):
            result = asyncio.run(result)
        return {"result": plain(result)}
    except Exception:
        return {"failed": traceback.format_exc()}


wanted = sys.argv[1:]
for case in CASES:
    if wanted and case.name not in wanted:
        continue
    for way in ways():
        run = Run(case.name, way)
        line = {"case": case.name, "way": way.name, "expects": case.body, "aborts": case.aborts}
        line |= outcome(case, run)
        line |= {"bodies": run.bodies}
        print(json.dumps(line), flush=True)
