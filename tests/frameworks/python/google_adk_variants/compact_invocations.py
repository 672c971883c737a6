"""A summary after every third invocation, as in the documentation."""

from google.adk.apps.app import EventsCompactionConfig  # glue


def make(_window):
    return {
        "events_compaction_config": EventsCompactionConfig(compaction_interval=3, overlap_size=1),  # glue
    }
