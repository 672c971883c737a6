"""Headroom: `compress` on the whole list before each model call."""

import sys

from headroom import compress

from participant import Work, serve

MODEL = "claude-sonnet-4-5-20250929"


class Compress(Work):
    """Calls `compress` without the model for prose, which requires a download."""

    def __init__(self, mode):
        self.mode = mode

    def begin(self):
        self.messages = []

    def turn(self, new):
        self.messages.extend(new)
        result = compress(self.messages, model=MODEL, kompress_model="disabled", mode=self.mode)
        self.shown = result.messages

    def array(self):
        return self.shown


if __name__ == "__main__":
    mode = {"default": None, "agent": "agent"}[sys.argv[1]]
    name = {"default": "headroom compress", "agent": "headroom compress, agent"}[sys.argv[1]]
    serve(name, {"offload": Compress(mode)}, "headroom-ai")
