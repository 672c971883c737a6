"""The plugin of Palimpsest, with the default policy and without a model for summaries."""

from palimpsest.google_adk import PalimpsestPlugin  # glue


def make(_window):
    return {
        "plugins": [PalimpsestPlugin("demo")],  # glue
    }


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
