"""A rejected request summarizes the oldest 30 % of the messages. The settings are the defaults."""

from strands.agent.conversation_manager import SummarizingConversationManager  # glue


def make():
    return {
        "conversation_manager": SummarizingConversationManager(),  # glue
    }
