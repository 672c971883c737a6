"""Edits of the context that the gateway serves, with Anthropic's SDK. The upstream rejects such edits."""

import os
import sys

import anthropic
from anthropic.types.beta import BetaCompactionBlock

MODEL = "claude-fake-served+no-edits"
BETAS = ["compact-2026-01-12", "context-management-2025-06-27"]
# More than the smallest trigger of a compaction.
LONG = "A long text. " * 20_000


class Conversation:
    """A conversation that asks for a compaction with each request."""

    def __init__(self, name, **edit):
        self.client = anthropic.Anthropic(
            base_url=os.environ["GATEWAY"], api_key="key", default_headers={"x-session-id": name}, max_retries=0
        )
        trigger = {"type": "input_tokens", "value": 50_000}
        self.edits = [
            {"type": "clear_tool_uses_20250919"},
            {"type": "compact_20260112", "trigger": trigger, **edit},
        ]
        self.messages = []

    def send(self, text, streams):
        """Sends a message, and adds the response as the SDK returns it."""
        self.messages.append({"role": "user", "content": text})
        ask = {
            "model": MODEL,
            "max_tokens": 1_000,
            "betas": BETAS,
            "context_management": {"edits": self.edits},
            "messages": self.messages,
        }
        if streams:
            with self.client.beta.messages.stream(**ask) as stream:
                kinds = [event.type for event in stream]
                message = stream.get_final_message()
            assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
        else:
            message = self.client.beta.messages.create(**ask)
        self.messages.append({"role": "assistant", "content": message.content})
        assert message.context_management.applied_edits == [], message
        return message


def summary(message):
    """Returns the summary of a response."""
    block = message.content[0]
    assert isinstance(block, BetaCompactionBlock), message
    assert "A long text." in block.content, block
    return block.content


for streams in (False, True):
    talk = Conversation(f"served-{streams}")
    first = talk.send(LONG, streams)
    assert [block.type for block in first.content] == ["text"], first
    second = talk.send("And then?", streams)
    assert [block.type for block in second.content] == ["compaction", "text"], second
    assert summary(second) and second.stop_reason == "end_turn"
    third = talk.send("Go on.", streams)
    assert [block.type for block in third.content] == ["text"], third

    paused = Conversation(f"paused-{streams}", pause_after_compaction=True)
    paused.send(LONG, streams)
    pause = paused.send("And then?", streams)
    assert pause.stop_reason == "compaction" and len(pause.content) == 1, pause
    assert summary(pause)
    # The client leaves out what the summary replaces.
    del paused.messages[:-1]
    after = paused.send("Go on.", streams)
    assert [block.type for block in after.content] == ["text"], after
print("done", file=sys.stdout)
