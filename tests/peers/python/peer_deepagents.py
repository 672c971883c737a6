"""Deep Agents: `FilesystemMiddleware` offloads results, and a middleware writes summaries and stores the history."""

from deepagents.backends import StoreBackend
from deepagents.middleware import FilesystemMiddleware
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_forms import MODEL, SUMMARY, LangChainWork
from participant import serve


def backend():
    """Returns a backend in memory."""
    return StoreBackend(store=InMemoryStore(), namespace=lambda runtime: ("filesystem",))


class Offload(LangChainWork):
    """Calls `FilesystemMiddleware` around each tool call, as `create_deep_agent` does."""

    def begin(self):
        super().begin()
        # Four characters count as a token, so this is the common limit of 20,000 characters.
        self.middleware = FilesystemMiddleware(backend=backend(), tool_token_limit_before_evict=5_000)
        self.names = {}

    def turn(self, new):
        for message in new:
            if isinstance(message, AIMessage):
                self.names.update((call["id"], call["name"]) for call in message.tool_calls)
            elif isinstance(message, ToolMessage):
                call = {
                    "type": "tool_call",
                    "id": message.tool_call_id,
                    "name": self.names.get(message.tool_call_id, ""),
                    "args": {},
                }
                request = ToolCallRequest(tool_call=call, tool=None, state={}, runtime=None)
                message = self.middleware.wrap_tool_call(request, lambda _request, it=message: it)
            self.messages.append(message)
        self.shown = self.messages


class Summarize(LangChainWork):
    """Calls its own `SummarizationMiddleware` before each model call, and applies the updates of the state."""

    def begin(self):
        super().begin()
        self.middleware = SummarizationMiddleware(
            MODEL,
            backend=backend(),
            trigger=("tokens", 50_000),
            truncate_args_settings={"trigger": ("messages", 20), "keep": ("messages", 20)},
            summarizer=lambda messages: SUMMARY,
        )
        self.state = {}

    def turn(self, new):
        self.messages.extend(new)
        state = {**self.state, "messages": self.messages}
        request = ModelRequest(model=MODEL, messages=self.messages, state=state)
        response = self.middleware.wrap_model_call(request, self.call)
        if isinstance(response, ExtendedModelResponse) and response.command:
            self.state.update(response.command.update)

    def call(self, request):
        self.shown = request.messages
        return ModelResponse(result=[AIMessage("")])


if __name__ == "__main__":
    serve("deepagents", {"offload": Offload(), "budget": Summarize()}, "deepagents")
