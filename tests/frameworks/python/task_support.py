"""A support desk: many short questions, records, logs, and parts of the documentation of this repository."""

from __future__ import annotations

import json
import random
from itertools import cycle

from task import REPOSITORY, Call, Needle, Round, Task, UserTurn, cut

TOOLS = {
    "search_docs": {"query": "The words to search for."},
    "get_ticket": {"ticket": "The number of the ticket."},
    "get_logs": {"ticket": "The number of the ticket."},
}
DOC = "A rejection costs 25 to 30 µs, a sixth of a completed call."
CONTACT = '"callback_code": "QX-7719-KAPPA"'
LOG = "code=PGX-40931 the replica rejected the snapshot of shard 12"
WISH = "The maintenance window of this customer is Sunday 03:40 to 04:10 UTC"
NEEDLES = (
    ("a sentence of a page", DOC, "A rejection costs", True),
    ("a field of a record", CONTACT, "callback_code", True),
    ("a line of a log", LOG, "the replica rejected", False),
    ("a sentence of the user", WISH, "maintenance window of this customer", False),
)


def support_task(turns: int = 60) -> Task:
    """Returns the task with this number of user turns."""
    chance = random.Random(20_261)
    pages = [path.read_text() for path in sorted((REPOSITORY / "docs").glob("*.md"))]
    paragraphs = [it for page in pages for it in page.split("\n\n") if len(it) > 400 and DOC not in it]
    sections = cycle(paragraphs)
    made = [_turn(number, chance, sections) for number in range(1, turns + 1)]
    task = Task(
        f"support, {turns} questions",
        "You answer questions of customers. Look up the ticket, its logs and the documentation first. " * 15,
        TOOLS,
        tuple(made),
        "Write the handover: what a rejection costs, the callback code of the first customers, the error of the "
        "replica that rejected a snapshot, and the maintenance window.",
        tuple(Needle(*it) for it in NEEDLES),
    )
    task.check()
    return task


def _turn(number: int, chance: random.Random, sections: cycle[str]) -> UserTurn:
    found = [next(sections) for _ in range(chance.randint(3, 8))]
    if number == 2:
        found.insert(2, f"Overload. {DOC} Most of it is the protocol.")
    calls = [Call("search_docs", {"query": f"question {number}"}, cut("\n\n".join(found)))]
    calls.append(Call("get_ticket", {"ticket": f"T-{number}"}, _record(number, chance)))
    rounds = [Round(f"I look up ticket T-{number}.", tuple(calls))]
    if number % 3 == 2:
        rounds.append(
            Round("The logs show more.", (Call("get_logs", {"ticket": f"T-{number}"}, _log(number, chance)),))
        )
    request = f"Question {number}: the customer of ticket T-{number} waits for a reply about a slow server."
    if number == 8:
        request += f" {WISH}."
    return UserTurn(request, tuple(rounds), f"Reply {number}: {next(sections)[:1_200]}")


def _record(number: int, chance: random.Random) -> str:
    record = {
        "ticket": f"T-{number}",
        "events": [
            {
                "at": f"2026-10-{chance.randint(1, 30):02}",
                "note": f"The customer sent sample {chance.randint(1, 10_000)}.",
            }
            for _ in range(chance.randint(5, 25))
        ],
    }
    if number == 3:
        record["callback_code"] = "QX-7719-KAPPA"
    return json.dumps(record, indent=1)


def _log(number: int, chance: random.Random) -> str:
    lines = [
        f"level=info ticket={number} span={chance.getrandbits(48):012x} took_ms={chance.randint(1, 900)} done"
        for _ in range(chance.randint(80, 300))
    ]
    if number == 5:
        lines[len(lines) // 2] = f"level=error ticket={number} {LOG}"
    return cut("\n".join(lines))
