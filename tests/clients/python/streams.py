"""Reads each API of a provider twice, as a stream and as one body, with the SDKs: streams.py MODEL...

Prints one line of JSON per model and API. The SDKs read the address and the key from the environment.
"""

import json
import sys

from anthropic import Anthropic
from openai import OpenAI

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "What is the weather?"}]
anthropic = Anthropic(max_retries=0)
openai = OpenAI(max_retries=0)


def messages(model):
    request = {
        "model": model,
        "max_tokens": 4000,
        "thinking": {"type": "adaptive"},
        "messages": MESSAGES,
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
    }

    def streamed():
        with anthropic.messages.stream(**request) as stream:
            return stream.get_final_message()

    return streamed, lambda: anthropic.messages.create(**request)


def chat(model):
    function = {"name": "weather", "parameters": SCHEMA, "strict": True}
    request = {
        "model": model,
        "messages": MESSAGES,
        "tools": [{"type": "function", "function": function}],
    }

    def streamed():
        usage = {"include_usage": True}
        with openai.chat.completions.stream(**request, stream_options=usage) as stream:
            return stream.get_final_completion()

    return streamed, lambda: openai.chat.completions.create(**request)


def responses(model):
    request = {
        "model": model,
        "input": MESSAGES,
        "store": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}],
    }

    def streamed():
        with openai.responses.stream(**request) as stream:
            return stream.get_final_response()

    return streamed, lambda: openai.responses.create(**request)


def outcome(call):
    """Returns the answer as JSON, or the error."""
    try:
        return call().to_dict(mode="json")
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}


for model in sys.argv[1:]:
    for api in (messages, chat, responses):
        streamed, whole = (outcome(call) for call in api(model))
        line = {"model": model, "api": api.__name__, "streamed": streamed, "whole": whole}
        print(json.dumps(line, default=str))
