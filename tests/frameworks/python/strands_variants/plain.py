"""No management of the context."""

from strands.agent.conversation_manager import NullConversationManager  # glue


def make():
    return {
        "conversation_manager": NullConversationManager(),  # glue
    }
