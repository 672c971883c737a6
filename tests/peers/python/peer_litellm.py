"""LiteLLM: `trim_messages`, and `litellm.compression.compress`."""

import sys

from litellm.compression import compress
from litellm.utils import trim_messages

from openai_forms import to_openai
from participant import Work, serve

MODEL = "claude-sonnet-4-5"


class Trim(Work):
    """Calls `trim_messages` on the messages of a chat completion."""

    provider = "openai"

    def read(self, messages):
        return to_openai(messages)

    def begin(self):
        self.messages = []

    def turn(self, new):
        self.messages.extend(new)
        self.shown = trim_messages(self.messages, model=MODEL, max_tokens=50_000)

    def array(self):
        return self.shown


class Compress(Work):
    """Calls `compress` on Anthropic's messages. The least relevant ones are replaced by stubs or removed."""

    def begin(self):
        self.messages = []

    def turn(self, new):
        self.messages.extend(new)
        result = compress(
            self.messages, model=MODEL, call_type="anthropic_messages", compression_trigger=50_000
        )
        self.shown = result["messages"]

    def array(self):
        return self.shown


if __name__ == "__main__":
    one = {"trim": Trim(), "compress": Compress()}[sys.argv[1]]
    serve({"trim": "litellm trim_messages", "compress": "litellm compress"}[sys.argv[1]], {"budget": one}, "litellm")
