"""The last ten invocations. The plugin has no default."""

from google.adk.plugins.context_filter_plugin import ContextFilterPlugin  # glue


def make(_window):
    return {
        "plugins": [ContextFilterPlugin(num_invocations_to_keep=10)],  # glue
    }
