"""Placeholders, paths and texts of a scenario."""

import base64
import hashlib
import json
import re

PLACEHOLDER = re.compile(r"\{\{([^}]*)\}\}")


def make_text(recipe):
    """Returns a long text of the scenario."""
    lines = range(1, recipe["count"] + 1)
    return "".join(f"{recipe['before']}{n}{recipe['after']}" for n in lines)


def fill(value, names):
    """Returns the value with all placeholders replaced."""
    if isinstance(value, list):
        return [fill(item, names) for item in value]
    if isinstance(value, dict):
        filled = {key: fill(item, names) for key, item in value.items()}
        if filled.keys() == {"$text"}:
            return base64.b64encode(filled["$text"].encode()).decode()
        if filled.keys() == {"$sha256"}:
            digest = hashlib.sha256(filled["$sha256"].encode()).digest()
            return base64.b64encode(digest).decode()
        return filled
    if not isinstance(value, str):
        return value
    whole = PLACEHOLDER.fullmatch(value)
    if whole:
        return names[whole[1]]

    def within(match):
        known = names[match[1]]
        return known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)

    return PLACEHOLDER.sub(within, value)


def at(path, value):
    """Returns the value at a path."""
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value
