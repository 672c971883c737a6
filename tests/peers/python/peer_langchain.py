"""LangChain: its middleware for context editing and for summaries, and `trim_messages`."""

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, RemoveMessage, trim_messages

from langchain_forms import MODEL, SUMMARY, LangChainWork
from participant import serve


class Clear(LangChainWork):
    """Calls `ContextEditingMiddleware` before each model call, as `create_agent` does."""

    def begin(self):
        super().begin()
        self.middleware = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=50_000)])

    def turn(self, new):
        self.messages.extend(new)
        request = ModelRequest(model=MODEL, messages=self.messages, state={"messages": self.messages})
        self.middleware.wrap_model_call(request, self.call)

    def call(self, request):
        self.shown = request.messages
        return ModelResponse(result=[AIMessage("")])


class Summarize(LangChainWork):
    """Calls `SummarizationMiddleware` before each model call, and applies its update like the agent's state does."""

    def begin(self):
        super().begin()
        self.middleware = SummarizationMiddleware(
            MODEL, trigger=("tokens", 50_000), summarizer=lambda messages: SUMMARY
        )

    def turn(self, new):
        self.messages.extend(new)
        update = self.middleware.before_model({"messages": self.messages}, None)
        if update:
            self.messages = [it for it in update["messages"] if not isinstance(it, RemoveMessage)]
        self.shown = self.messages


class Trim(LangChainWork):
    """Calls `trim_messages` as its documentation shows for a chat history."""

    def turn(self, new):
        self.messages.extend(new)
        self.shown = trim_messages(
            self.messages,
            max_tokens=50_000,
            token_counter="approximate",
            strategy="last",
            start_on="human",
            end_on=("human", "tool"),
            include_system=True,
            allow_partial=False,
        )


if __name__ == "__main__":
    import sys

    works = {
        "middleware": {"clear": Clear(), "budget": Summarize()},
        "trim": {"budget": Trim()},
    }
    names = {"middleware": "langchain middleware", "trim": "langchain trim_messages"}
    serve(names[sys.argv[1]], works[sys.argv[1]], "langchain")
