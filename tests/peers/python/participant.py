"""How a library takes part: lines of JSON in, lines of JSON out, and what is timed.

A library is a dictionary of works. A work says which form its messages have, takes what came since the last
model call (`turn`, timed), and shows the array that it would send (`array`, not timed). Messages are read and
put into the library's own types before any time is taken, as Palimpsest's are.
"""

import copy
import gc
import importlib.metadata
import json
import os
import sys
import time


class Work:
    """One work, as a library does it."""

    #: Whose form `array` has: what the judge checks it by.
    provider = "anthropic"

    def read(self, messages):
        """The library's own messages for some messages in Anthropic's form."""
        return messages

    def begin(self):
        """A new conversation."""

    def turn(self, new):
        """What the library does before a model call, after `new` came; only this is timed."""
        raise NotImplementedError

    def array(self):
        """The messages of the request, in the provider's form."""
        raise NotImplementedError


def read_conversation(path, work):
    """The messages before each model call, in the library's own types."""
    calls, new = [], []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            step = json.loads(line)
            if "message" in step:
                new.append(step["message"])
            else:
                calls.append(work.read(new))
                new = []
    return calls


def common_prefix(before, after):
    """How many leading messages are the same."""
    keep = 0
    for one, other in zip(before, after):
        if one != other:
            break
        keep += 1
    return keep


def play(work, calls, views, limit_s):
    """Plays a conversation; the nanoseconds of each call, and its views in a file when one is named.

    Who takes longer than the limit stops there: it is compared on the calls that it has made.
    """
    # Libraries change messages that they are given, so each play has its own.
    calls = copy.deepcopy(calls)
    work.begin()
    out = open(views, "w", encoding="utf-8") if views else None
    if out:
        out.write(json.dumps({"provider": work.provider}) + "\n")
    call_ns, before = [], []
    # What earlier plays left behind is nobody's cost here.
    gc.collect()
    for new in calls:
        real, busy = time.perf_counter_ns(), time.process_time_ns()
        work.turn(new)
        # Without the time in which somebody else had the processor. Who works with several threads at once
        # is told the time that went by.
        call_ns.append(min(time.process_time_ns() - busy, time.perf_counter_ns() - real))
        if out:
            after = [json.dumps(message, sort_keys=True) for message in work.array()]
            keep = common_prefix(before, after)
            out.write('{"keep":%d,"messages":[%s]}\n' % (keep, ",".join(after[keep:])))
            before = after
        if limit_s and sum(call_ns) > limit_s * 1e9:
            break
    if out:
        out.close()
    return {"call_ns": call_ns}


def serve(name, works, package=None):
    """Answers one line after the other until there are no more."""
    # Libraries print; what they print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    version = importlib.metadata.version(package) if package else ""
    hello = {"peer": name, "version": version, "works": list(works)}
    print(json.dumps(hello), file=answers, flush=True)
    known = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            key = (asked["work"], asked["conversation"])
            work = works[asked["work"]]
            if key not in known:
                known[key] = read_conversation(asked["conversation"], work)
            answer = play(work, known[key], asked.get("views"), asked.get("limit_s"))
        except Exception as error:  # Whatever it is, the others go on.
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def parts_of(content):
    """The blocks of a message's content."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def text_of(content):
    """The text of a result's content."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if part.get("type") == "text")
