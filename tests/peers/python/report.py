"""The results as Markdown tables, which are also readable in a terminal."""

import statistics

PALIMPSEST = "Palimpsest"
WHOLE = "Palimpsest, whole view"
WIRE = "Palimpsest over gRPC"
OWN = "Palimpsest, own summary"
UNTOUCHED = "untouched"
TARGET = 10

TITLES = {
    "clear": "Clear old tool results",
    "offload": "Offload a large result",
    "budget": "Budget a turn",
}

HEAD = [
    "who",
    "model calls",
    "median, µs a call",
    "p99, µs a call",
    "median, ms a conversation",
    "times Palimpsest's",
    "least",
    "tokens sent",
    "invalid views",
    "cache breaks",
    "MB lost",
]


def quantile(values, share):
    """Returns a quantile."""
    values = sorted(values)
    return values[int((len(values) - 1) * share)]


def plays_of(outcomes, who):
    """Returns the calls of each play of a participant, by conversation."""
    plays = {}
    for one in outcomes:
        for pair in one["pairs"]:
            if who == PALIMPSEST:
                plays.setdefault(one["conversation"], []).append(pair["palimpsest"])
            elif one["who"] == who:
                plays.setdefault(one["conversation"], []).append(pair["who"])
    return plays


def ratios(outcomes, who):
    """Returns the ratio to Palimpsest's duration for each conversation, on the same calls."""
    found = []
    for one in outcomes:
        if one["who"] != who or not one["pairs"]:
            continue
        pairs = [
            sum(pair["who"]) / sum(pair["palimpsest"][: len(pair["who"])]) for pair in one["pairs"]
        ]
        found.append(statistics.median(pairs))
    return found


def sent(outcomes, who):
    """Returns the tokens of all views, as a share of the untouched conversation in the same calls."""
    whole = {
        one["conversation"]: one["verdict"]["tokens"] for one in outcomes if one["who"] == UNTOUCHED
    }
    mine = untouched = 0
    for one in outcomes:
        if one["who"] == who and one["verdict"]:
            tokens = one["verdict"]["tokens"]
            mine += sum(tokens)
            untouched += sum(whole[one["conversation"]][: len(tokens)])
    return mine / untouched if untouched else 0.0


def row(outcomes, who):
    """Returns the row of a participant at one work."""
    plays = plays_of(outcomes, who)
    calls = [call for several in plays.values() for play in several for call in play]
    totals = [statistics.median(sum(play) for play in several) for several in plays.values()]
    judged = [one["verdict"] for one in outcomes if one["who"] == who and one["verdict"]]
    found = ratios(outcomes, who)
    # Uses ratios, because an interrupted conversation is shorter than the others.
    times = [f"{statistics.median(found):,.1f} ×", f"{min(found):,.1f} ×"] if found else ["", ""]
    measured = (
        [
            f"{quantile(calls, 0.5) / 1e3:,.1f}",
            f"{quantile(calls, 0.99) / 1e3:,.1f}",
            f"{statistics.median(totals) / 1e6:,.2f}",
        ]
        if calls
        else ["", "", ""]
    )
    return [
        who,
        f"{sum(one['views'] for one in judged):,}",
        *measured,
        *times,
        f"{sent(outcomes, who):.1%}",
        f"{sum(one['invalid'] for one in judged):,}",
        f"{sum(one['breaks'] for one in judged):,}",
        f"{sum(one['lost_bytes'] for one in judged) / 1e6:,.1f}",
    ]


def table(rows):
    """Formats rows in Markdown, padded to columns for a terminal."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, cells in enumerate(rows):
        padded = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths))
        ]
        lines.append("| " + " | ".join(padded) + " |")
        if number == 0:
            rules = ["-" * width if column == 0 else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
            lines.append("| " + " | ".join(rules) + " |")
    return "\n".join(lines)


def remarks(outcomes):
    """Returns the errors and the violated rules."""
    lines = []
    for who in dict.fromkeys(one["who"] for one in outcomes):
        mine = [one for one in outcomes if one["who"] == who]
        rules, failed = {}, {}
        for one in mine:
            for rule, count in ((one["verdict"] or {}).get("rules") or {}).items():
                rules[rule] = rules.get(rule, 0) + count
            if one["error"]:
                failed[one["error"][:120]] = failed.get(one["error"][:120], 0) + 1
        lines += [f"- {who}: in {count:,} views: {rule}" for rule, count in rules.items()]
        lines += [f"- {who}: failed on {count} conversations: {error}" for error, count in failed.items()]
        rounds = [len(one["pairs"]) for one in mine if not one["error"]]
        cut = sum(1 for number in rounds if number == 1 and max(rounds) > 1)
        if cut:
            lines.append(f"- {who}: too slow on {cut} conversations for more than one round")
    return lines


def reached(outcomes, peers):
    """Returns the comparison with the target, for participants that do the same work in the same process."""
    lines = []
    for who in peers:
        found = ratios(outcomes, who)
        if found:
            median, least = statistics.median(found), min(found)
            said = "yes" if least >= TARGET else ("in the median" if median >= TARGET else "no")
            lines.append(f"- {who}: {median:,.1f} ×, at least {least:,.1f} ×: {said}")
    return lines


def section(work, outcomes):
    """Returns the report of one work."""
    here = [one for one in outcomes if one["work"] == work]
    names = list(dict.fromkeys(one["who"] for one in here))
    peers = [name for name in names if name not in (UNTOUCHED, PALIMPSEST, WHOLE, OWN, WIRE)]
    rows = [HEAD] + [row(here, who) for who in names if who != WIRE]
    told = remarks(here)
    parts = [
        f"## {TITLES[work]}",
        f"{len({one['conversation'] for one in here})} conversations. In one process:",
        table(rows),
        f"At least {TARGET} times faster than each, on the same calls:",
        "\n".join(reached(here, peers)),
        "Palimpsest over the wire, with its commit to a disk, beside itself in one process:",
        table([HEAD, row(here, WIRE)]),
    ]
    return "\n\n".join(parts + (["\n".join(told)] if told else []))


def markdown(measured):
    """Returns the complete report."""
    outcomes = measured["outcomes"]
    versions = ", ".join(
        sorted({f"{name} {version}" for name, version in measured["versions"].items() if version})
    )
    parts = [
        "# Side by side",
        f"Versions: {versions}. {measured['rounds']} rounds after a warm-up, each play right after one of"
        " Palimpsest's. Times are without those in which another program had the processor, except over the wire."
        " Reading JSON is in nobody's time in one process; Palimpsest's has the writing of the"
        " new messages' JSON in it, the others' has not. Tokens are of one estimator for all, as a share of"
        " the untouched conversations; a break is a view that does not begin with the one before, and what"
        " was lost is the bytes behind that place.",
    ]
    works = dict.fromkeys(one["work"] for one in outcomes)
    return "\n\n".join(parts + [section(work, outcomes) for work in works]) + "\n"
