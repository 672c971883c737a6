"""The middleware of Palimpsest, with the default policy and without a model for summaries."""

from palimpsest.langchain import PalimpsestMiddleware  # glue


def make(_window):
    return {}, lambda _model: [
        PalimpsestMiddleware("demo"),  # glue
    ]


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
