"""Messages in LangChain's types, as `langchain-anthropic` makes and sends them."""

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from participant import Work, parts_of, text_of

# Never called. Libraries read its name and its limits.
MODEL = ChatAnthropic(model="claude-sonnet-4-5", api_key="unused")

# The fixed text in place of a model's summary. It takes no time here.
SUMMARY = "The work so far: what was asked, what was read and changed, and what is left to do. " * 40


def to_langchain(messages):
    """Converts a message to one or more, because each result is a separate message."""
    out = []
    for message in messages:
        parts = parts_of(message["content"])
        if message["role"] == "assistant":
            calls = [
                {"type": "tool_call", "id": part["id"], "name": part["name"], "args": part["input"]}
                for part in parts
                if part["type"] == "tool_use"
            ]
            out.append(AIMessage(content=parts, tool_calls=calls))
            continue
        said = []
        for part in parts:
            if part["type"] == "tool_result":
                out.append(
                    ToolMessage(
                        content=text_of(part.get("content")),
                        tool_call_id=part["tool_use_id"],
                        status="error" if part.get("is_error") else "success",
                    )
                )
            else:
                said.append(part)
        if said:
            out.append(HumanMessage(content=said))
    return out


class LangChainWork(Work):
    """A work on LangChain's messages. `shown` contains the messages that are sent."""

    def read(self, messages):
        return to_langchain(messages)

    def begin(self):
        self.messages = []
        self.shown = []

    def array(self):
        # Returns the messages of the integration's request. The library has no public function for them.
        return MODEL._get_request_payload(self.shown)["messages"]
