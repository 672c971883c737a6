"""A summary above 80 % of the window. The last five events stay, as in the documentation."""

from google.adk.apps.app import EventsCompactionConfig  # glue


def make(window):
    threshold = window * 8 // 10
    return {
        "events_compaction_config": EventsCompactionConfig(token_threshold=threshold, event_retention_size=5),  # glue
    }
