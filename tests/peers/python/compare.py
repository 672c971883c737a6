"""Runs every work on every conversation with all participants in turns, and writes the results.

In each round, each other participant plays directly after Palimpsest, so that other load on the machine affects
both. `peer_*.py` contain the libraries, and `report.py` formats the results.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import report

HERE = pathlib.Path(__file__).parent

# Libraries must not wait for network access, which is not part of the works.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "HEADROOM_TELEMETRY": "off",
    "DO_NOT_TRACK": "1",
}

WORKS = ["clear", "offload", "budget"]


class Participant:
    """The process of a participant, which plays on request."""

    def __init__(self, argv, log):
        self.process = subprocess.Popen(
            [str(part) for part in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(log, "w", encoding="utf-8"),
            text=True,
            env={**os.environ, **QUIET},
        )
        self.argv = argv
        self.log = log
        hello = self.answer()
        self.name, self.works = hello["peer"], hello.get("works", [])
        self.version = hello.get("version", "")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(map(str, self.argv))} ended; {self.log} says why")
        return json.loads(line)

    def ask(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="palimpsest-peers")
    parser.add_argument("--ai-agent", help="the Rust peer; left out when it is not given")
    parser.add_argument("--conversations", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=0, help="how many conversations; 0 for all")
    parser.add_argument("--limit-s", type=float, default=10.0, help="who takes longer on one is cut off there")
    parser.add_argument("--works", nargs="*", default=WORKS)
    return parser.parse_args()


def chosen(folder, most):
    """Returns all conversations, or `most` of them, distributed from the shortest to the longest."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: (file.stat().st_size, file.name))
    if not most or most >= len(files):
        return files
    last = len(files) - 1
    return [files[round(index * last / max(most - 1, 1))] for index in range(most)]


def peers(given, log):
    """Returns the other participants, each with its command."""
    python = lambda script, *more: [sys.executable, HERE / script, *more]
    started = {
        "langchain": python("peer_langchain.py", "middleware"),
        "langchain-trim": python("peer_langchain.py", "trim"),
        "deepagents": python("peer_deepagents.py"),
        "litellm-trim": python("peer_litellm.py", "trim"),
        "litellm-compress": python("peer_litellm.py", "compress"),
        "strands": python("peer_strands.py", "tokens"),
        "strands-window": python("peer_strands.py", "messages"),
        "headroom": python("peer_headroom.py", "default"),
        "headroom-agent": python("peer_headroom.py", "agent"),
    }
    if given.ai_agent:
        started["ai-agent"] = [given.ai_agent]
    return [Participant(argv, log / f"{name}.log") for name, argv in started.items()]


class Comparison:
    """All participants and their results so far."""

    def __init__(self, given):
        self.given = given
        log = given.out / "log"
        log.mkdir(parents=True, exist_ok=True)
        self.views = given.out / "views.jsonl"
        binary = given.binary
        self.judge = Participant([binary, "judge"], log / "judge.log")
        self.untouched = Participant([sys.executable, HERE / "untouched.py"], log / "untouched.log")
        self.palimpsest = Participant([binary, "core"], log / "core.log")
        self.whole = Participant([binary, "core", "--way", "whole"], log / "whole.log")
        self.own = Participant([binary, "core", "--way", "structure"], log / "own.log")
        self.wire = Participant([binary, "wire"], log / "wire.log")
        self.peers = peers(given, log)
        self.outcomes = []

    def watched(self, who, work, conversation):
        """Plays once and records the views. Returns the play and the judge's verdict."""
        play = self.play(who, work, conversation, views=str(self.views))
        if "error" in play:
            return play, None
        return play, self.judge.ask(views=str(self.views))

    def play(self, who, work, conversation, **more):
        limit_s = self.given.limit_s
        return who.ask(work=work, conversation=str(conversation), limit_s=limit_s, **more)

    def compare(self, work, conversation):
        """Runs one work on one conversation with all participants."""
        all_others = [self.whole, self.own, self.wire, *self.peers]
        others = [who for who in all_others if work in who.works]
        first = {}
        for who in [self.untouched, self.palimpsest, *others]:
            play, verdict = self.watched(who, work, conversation)
            first[who] = play
            self.outcomes.append(
                {
                    "work": work,
                    "conversation": conversation.stem,
                    "who": who.name,
                    "verdict": verdict,
                    "error": play.get("error"),
                    "pairs": [],
                }
            )
        told = {one["who"]: one for one in self.outcomes[-len(first) :]}
        for number in range(self.given.rounds):
            # Rotates the order, so that no participant always runs after the same other one.
            turn = number % len(others)
            for who in others[turn:] + others[:turn]:
                if "error" in first[who]:
                    continue
                is_slow = sum(first[who]["call_ns"]) > self.given.limit_s * 1e9 / 2
                if is_slow and number > 0:
                    continue
                mine = self.play(self.palimpsest, work, conversation)["call_ns"]
                # A slow participant needs no warm-up for a fair measurement.
                play = first[who] if is_slow else self.play(who, work, conversation)
                told[who.name]["pairs"].append({"palimpsest": mine, "who": play["call_ns"]})

    def run(self):
        files = chosen(self.given.conversations, self.given.most)
        for work in self.given.works:
            for number, file in enumerate(files, 1):
                print(f"\r{work}: {number} of {len(files)}", end="", file=sys.stderr, flush=True)
                self.compare(work, file)
            print(file=sys.stderr)
            # Writes after each work, so that a later failure loses no results.
            self.write()
        for who in [self.judge, self.untouched, self.palimpsest, self.whole, self.own, self.wire, *self.peers]:
            who.end()
        self.views.unlink(missing_ok=True)
        return self.write()

    def write(self):
        """Writes all measured times and the tables."""
        versions = {who.name: who.version for who in self.peers}
        measured = {"versions": versions, "rounds": self.given.rounds, "outcomes": self.outcomes}
        (self.given.out / "measured.json").write_text(json.dumps(measured), encoding="utf-8")
        text = report.markdown(measured)
        (self.given.out / "peers.md").write_text(text, encoding="utf-8")
        return text


def main():
    given = arguments()
    print(Comparison(given).run())


if __name__ == "__main__":
    main()
