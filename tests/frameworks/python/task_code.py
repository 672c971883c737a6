"""A coding task in a crate of this repository: large files, logs of builds and tests, edits, parallel calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from task import REPOSITORY, Call, Needle, Round, Task, UserTurn, cut

CRATE = REPOSITORY / "tests/provider"
OTHER = REPOSITORY / "crates/gateway"
STATE = "tests/provider/src/state.rs"
TOOLS = {
    "view_file": {"path": "The path of the file, from the root of the repository."},
    "find_text": {"pattern": "The text to search for in all files."},
    "save_file": {"path": "The path of the file.", "content": "The whole new content."},
    "run": {"command": "The command line."},
}
REQUESTS = [
    "Uploads of files must be limited per account. Read the crate of the provider, and say where the limit belongs.",
    "Good. The limit of uploaded files per account is 37, and never more. Write it, and make the build pass.",
    "Now the tests. Cover the limit, the deletion of a file, and two accounts.",
    "Review the gateway for code that depends on the old behavior, and adapt it.",
]
ERROR = "error[E0502]: cannot borrow `self.recorded` as mutable because it is also borrowed as immutable"
FAILURE = "test files::tests::an_account_at_its_limit ... FAILED (left: 38, right: 37)"
STATUS = "pub status: u16"
NEEDLES = (
    ("a constant of a file", "const MAX_RECORDED_BYTES: usize = 256 * 1024 * 1024;", "MAX_RECORDED_BYTES", True),
    ("an error of a build", ERROR, "error[E", False),
    ("a failure of a test", FAILURE, "FAILED", False),
    ("a number of the user", "The limit of uploaded files per account is 37", "limit of uploaded files", False),
)


def code_task(rounds: int = 64, name: str = "code") -> Task:
    """Returns the task with this number of rounds."""
    steps = _steps()
    size = -(-rounds // len(REQUESTS))
    turns = []
    for number, request in enumerate(REQUESTS):
        count = min(size, rounds - number * size)
        if count > 0:
            own = tuple(next(steps) for _ in range(count))
            turns.append(UserTurn(request, own, f"Part {number + 1} is done, after {len(own)} rounds."))
    task = Task(
        f"{name}, {rounds} rounds",
        "You are a careful engineer. You change one crate of a large repository. " * 20,
        TOOLS,
        tuple(turns),
        "Write the report: the maximum of recorded bytes, the first file and line with a status, the first error of "
        "the build, the test that failed first, and the limit of uploaded files.",
        (Needle("a line of a search", _hits(STATUS)[0], STATUS, True), *(Needle(*it) for it in NEEDLES)),
    )
    if len(turns) < len(REQUESTS):
        texts = [turn.request for turn in turns] + task.results()
        found = tuple(it for it in task.needles if any(it.text in text for text in texts))
        task = Task(task.name, task.system, task.tools, task.turns, task.question, found)
    task.check()
    return task


def _steps() -> Iterator[Round]:
    """Yields the rounds: reads, searches, edits, builds and tests, one to three calls each."""
    paths = sorted(_names(CRATE / "src")) + sorted(_names(OTHER / "src"))
    paths.remove(STATE)
    reads = cycle(paths)
    words = cycle(["Refusal", "fn check", "Lifetime", "Duration", "tokens::of", "HeaderMap", "impl Default", "Outcome"])
    yield Round("I begin with the state.", (_read(STATE), _read(next(reads))))
    yield Round("Where is the status recorded?", (_search(STATUS), _read(next(reads))))
    number = 2
    while True:
        match number % 4:
            case 0:
                calls = (_read(next(reads)), _read(next(reads)))
            case 1:
                calls = (_search(next(words)), _read(next(reads)))
            case 2:
                path = next(reads)
                calls = (_write(path, number), _build(number))
            case _:
                calls = (_tests(number), _read(next(reads)), _read(next(reads)))
        yield Round(f"Step {number}: I look at the next part.", calls)
        number += 1


def _names(folder: Path) -> list[str]:
    return [str(it.relative_to(REPOSITORY)) for it in folder.rglob("*.rs")]


def _text(path: str) -> str:
    return (REPOSITORY / path).read_text()


def _read(path: str) -> Call:
    return Call("view_file", {"path": path}, cut(_text(path)))


def _hits(pattern: str) -> list[str]:
    lines = ((path, it) for path in sorted(_names(CRATE)) for it in enumerate(_text(path).splitlines(), 1))
    return [f"{path}:{number}:{line}" for path, (number, line) in lines if pattern in line]


def _search(pattern: str) -> Call:
    return Call("find_text", {"pattern": pattern}, cut("\n".join(_hits(pattern))))


def _write(path: str, number: int) -> Call:
    content = f"// Change {number}.\n{_text(path)[:3_000]}"
    return Call("save_file", {"path": path, "content": content}, f"wrote {len(content)} characters to {path}")


def _build(number: int) -> Call:
    """Returns a build whose log has one line for each crate and file. The first one fails in its middle."""
    lines = [f"   Compiling {path} (build {number})" for path in sorted(_names(REPOSITORY / "crates/core"))]
    if number == 2:
        lines[len(lines) // 2] = f"{ERROR}\n   --> {STATE}:131:9"
    return Call("run", {"command": f"cargo build --message-format short # {number}"}, cut("\n".join(lines)))


def _tests(number: int) -> Call:
    """Returns the log of the tests of the crate. The first one has a failure."""
    names = [name for path in sorted(_names(CRATE)) for name in re.findall(r"fn (\w+)\(\) {", _text(path))]
    lines = [f"test {name} ... ok" for name in names]
    if number == 3:
        lines[len(lines) // 2] = FAILURE
    return Call("run", {"command": f"cargo test # {number}"}, cut("\n".join(lines)))
