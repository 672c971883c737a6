"""Strands Agents: `SlidingWindowConversationManager`, and the plugin `ContextOffloader`."""

import asyncio
import sys

from strands import Agent
from strands.agent.conversation_manager import NullConversationManager, SlidingWindowConversationManager
from strands.hooks import AfterToolCallEvent, BeforeModelCallEvent
from strands.models.anthropic import AnthropicModel
from strands.vended_plugins.context_offloader import ContextOffloader, InMemoryStorage

from participant import Work, parts_of, serve, text_of

# Never called. It counts tokens and converts messages to the provider's form.
MODEL = AnthropicModel(
    client_args={"api_key": "unused"},
    model_id="claude-sonnet-4-5",
    max_tokens=1_000,
    context_window_limit=200_000,
)


def to_strands(messages):
    """Converts messages to the form of Amazon Bedrock, which is also Strands' own."""
    out = []
    for message in messages:
        content = []
        for part in parts_of(message["content"]):
            if part["type"] == "text":
                content.append({"text": part["text"]})
            elif part["type"] == "tool_use":
                call = {"toolUseId": part["id"], "name": part["name"], "input": part["input"]}
                content.append({"toolUse": call})
            elif part["type"] == "tool_result":
                result = {
                    "toolUseId": part["tool_use_id"],
                    "status": "error" if part.get("is_error") else "success",
                    "content": [{"text": text_of(part.get("content"))}],
                }
                content.append({"toolResult": result})
        out.append({"role": message["role"], "content": content})
    return out


class StrandsWork(Work):
    """A work on an agent's messages."""

    def read(self, messages):
        return to_strands(messages)

    def array(self):
        return MODEL.format_request(self.agent.messages)["messages"]


class Budget(StrandsWork):
    """The sliding window by tokens. The agent's loop counts them before each model call and calls the hook."""

    def begin(self):
        # A quarter of the window is the common budget of 50,000 tokens.
        manager = SlidingWindowConversationManager(proactive_compression={"compression_threshold": 0.25})
        self.agent = Agent(model=MODEL, conversation_manager=manager, callback_handler=None)
        self.loop = asyncio.new_event_loop()

    def turn(self, new):
        self.agent.messages.extend(new)
        self.loop.run_until_complete(self.before_call())

    async def before_call(self):
        tokens = await MODEL.count_tokens(self.agent.messages)
        event = BeforeModelCallEvent(agent=self.agent, projected_input_tokens=tokens)
        await self.agent.hooks.invoke_callbacks_async(event)


class Window(StrandsWork):
    """The sliding window by messages, before every model call, as with `per_turn=True`."""

    def begin(self):
        self.manager = SlidingWindowConversationManager(per_turn=True)
        self.agent = Agent(model=MODEL, conversation_manager=self.manager, callback_handler=None)

    def turn(self, new):
        self.agent.messages.extend(new)
        self.manager.apply_management(self.agent)


class Offload(StrandsWork):
    """The plugin's hooks: after each tool call, and before each model call."""

    def begin(self):
        # The common limit of 20,000 characters, because four characters count as a token.
        plugin = ContextOffloader(storage=InMemoryStorage(), max_result_tokens=5_000)
        self.agent = Agent(
            model=MODEL,
            plugins=[plugin],
            conversation_manager=NullConversationManager(),
            callback_handler=None,
        )
        self.loop = asyncio.new_event_loop()

    def turn(self, new):
        self.loop.run_until_complete(self.hooks(new))

    async def hooks(self, new):
        for message in new:
            for part in message["content"]:
                if "toolResult" in part:
                    part["toolResult"] = await self.after_call(part["toolResult"])
            self.agent.messages.append(message)
        await self.agent.hooks.invoke_callbacks_async(BeforeModelCallEvent(agent=self.agent))

    async def after_call(self, result):
        call = {"toolUseId": result["toolUseId"], "name": "tool", "input": {}}
        event = AfterToolCallEvent(
            agent=self.agent, selected_tool=None, tool_use=call, invocation_state={}, result=result
        )
        await self.agent.hooks.invoke_callbacks_async(event)
        return event.result


if __name__ == "__main__":
    by = sys.argv[1]
    works = {"tokens": {"offload": Offload(), "budget": Budget()}, "messages": {"budget": Window()}}
    names = {"tokens": "strands-agents", "messages": "strands-agents, 40 messages"}
    serve(names[by], works[by], "strands-agents")
