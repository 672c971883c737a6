"""As `summarize`, but also above 70 % of the window, before a request is rejected."""

from strands.agent.conversation_manager import SummarizingConversationManager  # glue


def make():
    return {
        "conversation_manager": SummarizingConversationManager(proactive_compression=True),  # glue
    }
