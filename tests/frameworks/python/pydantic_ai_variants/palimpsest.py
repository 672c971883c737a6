"""The capability of Palimpsest, with the default policy and without a model for summaries."""

from palimpsest.pydantic_ai import PalimpsestCapability  # glue


def make(_model):
    return [PalimpsestCapability("demo", session="t")]  # glue


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
