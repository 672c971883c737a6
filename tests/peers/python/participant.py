"""The interface of a library: lines of JSON in, lines of JSON out, and the measurement of time.

A library is a dictionary of works. A work states the form of its messages, accepts the messages since the last
model call (`turn`, timed), and returns the array that it would send (`array`, not timed). Messages are parsed and
converted to the library's own types before the timer starts, as for Palimpsest.
"""

import copy
import gc
import importlib.metadata
import json
import os
import sys
import time


class Work:
    """One work of a library."""

    #: The provider whose form `array` has. The judge uses its rules.
    provider = "anthropic"

    def read(self, messages):
        """Converts messages from Anthropic's form to the library's own."""
        return messages

    def begin(self):
        """Starts a new conversation."""

    def turn(self, new):
        """Runs the step of the library before a model call, after `new` arrived. Only this step is timed."""
        raise NotImplementedError

    def array(self):
        """Returns the messages of the request, in the provider's form."""
        raise NotImplementedError


def read_conversation(path, work):
    """Returns the messages before each model call, in the library's own types."""
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
    """Returns the number of equal leading messages."""
    keep = 0
    for one, other in zip(before, after):
        if one != other:
            break
        keep += 1
    return keep


def play(work, calls, views, limit_s):
    """Plays a conversation. Returns the duration of each call in nanoseconds, and writes the views to a file if named.

    A participant that exceeds the time limit stops. The comparison then uses the calls that it has made.
    """
    # Libraries change the messages that they receive, so each play uses a copy.
    calls = copy.deepcopy(calls)
    work.begin()
    out = open(views, "w", encoding="utf-8") if views else None
    if out:
        out.write(json.dumps({"provider": work.provider}) + "\n")
    call_ns, before = [], []
    # Collects the garbage of earlier plays, so that this play is not charged for it.
    gc.collect()
    for new in calls:
        real, busy = time.perf_counter_ns(), time.process_time_ns()
        work.turn(new)
        # Excludes the time in which other processes used the processor. For several busy threads, the result is the
        # elapsed time.
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
    """Answers requests until the input ends."""
    # Libraries print to standard output. Their output must not mix with the answers.
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
    """Returns the blocks of a message's content."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def text_of(content):
    """Returns the text of a result's content."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if part.get("type") == "text")
