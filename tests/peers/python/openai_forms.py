"""Messages in OpenAI's form, for libraries that accept no other."""

import json

from participant import parts_of, text_of


def to_openai(messages):
    """Converts a message to one or more, because each result is a separate message."""
    out = []
    for message in messages:
        parts = parts_of(message["content"])
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        if message["role"] == "assistant":
            calls = [
                {
                    "id": part["id"],
                    "type": "function",
                    "function": {"name": part["name"], "arguments": json.dumps(part["input"])},
                }
                for part in parts
                if part["type"] == "tool_use"
            ]
            said = {"role": "assistant", "content": text or None}
            if calls:
                said["tool_calls"] = calls
            out.append(said)
            continue
        for part in parts:
            if part["type"] == "tool_result":
                content = text_of(part.get("content")) or "(no output)"
                out.append({"role": "tool", "tool_call_id": part["tool_use_id"], "content": content})
        if text:
            out.append({"role": "user", "content": text})
    return out
