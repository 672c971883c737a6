"""Writes the outcome of a step, so that runs and languages can be compared."""

import base64
import hashlib
import json

LONGEST = 2_000
SHORTEST = 6


class Show:
    """The rules of a scenario, and the values that have a number."""

    def __init__(self, rules):
        self.hidden = rules["hidden"]
        self.labels = rules["numbered"]
        self.text = set(rules["text"])
        self.numbered = {}
        self.counts = {}

    def line(self, step, status, **parts):
        """Returns the line of a step."""
        for name in ("details", "answer", "answers"):
            self.number(parts.get(name))
        parts = {name: self.value(part) for name, part in parts.items()}
        line = {"step": step, "status": status, **parts}
        return written(line)

    def number(self, value):
        """Numbers every new value that differs between runs."""
        if isinstance(value, list):
            for item in value:
                self.number(item)
        elif isinstance(value, dict):
            for key in sorted(value):
                items = value[key] if isinstance(value[key], list) else [value[key]]
                if key in self.hidden or key in self.text:
                    continue
                if key in self.labels and all(isinstance(item, str) for item in items):
                    for item in items:
                        self.register(item, self.labels[key])
                else:
                    self.number(value[key])

    def register(self, item, label):
        if item and item not in self.numbered:
            self.counts[label] = self.counts.get(label, 0) + 1
            self.numbered[item] = f"<{label}:{self.counts[label]}>"

    def value(self, value, key=None):
        """Returns the value in its written form."""
        if isinstance(value, dict):
            return {name: self.field(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in self.text:
            value = base64.b64decode(value).decode(errors="replace")
        elif key in self.labels and value:
            return self.numbered[value]
        return shortened(self.replaced(value))

    def field(self, name, item):
        return f"<{self.hidden[name]}>" if name in self.hidden else self.value(item, name)

    def replaced(self, text):
        # The sort is stable: values of equal length stay in the order of their numbers.
        for known in sorted(self.numbered, key=len, reverse=True):
            if len(known) >= SHORTEST:
                text = text.replace(known, self.numbered[known])
        return text


def shortened(text):
    data = text.encode()
    if len(data) <= LONGEST:
        return text
    return f"<{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}>"


def written(value):
    """Returns canonical JSON: sorted keys, no whitespace, and one form of numbers."""
    if isinstance(value, dict):
        fields = (f"{written(key)}:{written(value[key])}" for key in sorted(value))
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, float):
        return format(value, ".6f").rstrip("0").rstrip(".")
    return json.dumps(value, ensure_ascii=False)
