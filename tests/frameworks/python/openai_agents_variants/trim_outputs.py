"""Large outputs of tools before the last two user inputs are trimmed. The settings are the defaults."""

from agents import RunConfig
from agents.extensions import ToolOutputTrimmer  # glue


def make(store, _client, _model):
    config = RunConfig(call_model_input_filter=ToolOutputTrimmer())  # glue
    return store, config, []
