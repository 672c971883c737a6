"""A summary of all messages but the last ten, above 80 % of the window. The documentation summarizes at 10 messages."""

from pydantic_ai import Agent, ModelMessage, ModelRequest, RunContext  # glue
from pydantic_ai.capabilities import ProcessHistory  # glue


def make(model):
    instructions = "Summarize this conversation, omitting small talk and unrelated topics."  # glue
    summarize_agent = Agent(model, instructions=instructions)  # glue

    async def summarize_old_messages(ctx: RunContext, messages: list[ModelMessage]) -> list[ModelMessage]:  # glue
        if (ctx.context_window_used or 0) <= 0.8:  # glue
            return messages  # glue
        summary = await summarize_agent.run(message_history=messages[:-10])  # glue
        return [ModelRequest.user_text_prompt(summary.output), *messages[-10:]]  # glue

    return [ProcessHistory(summarize_old_messages)]  # glue
