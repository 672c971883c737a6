"""The conversation manager of Palimpsest, with the default policy and without a model for summaries."""

from palimpsest.strands import PalimpsestConversationManager  # glue


def make():
    return {
        "conversation_manager": PalimpsestConversationManager("demo", "t"),  # glue
    }


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
