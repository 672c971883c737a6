"""The plays and the variants of each framework, with their names in tables."""

from __future__ import annotations

from pathlib import Path

WINDOWS = [32_768, 131_072]
#: The task and the window of each play. The short task fits into every window.
PLAYS = [("short", WINDOWS[1]), *((task, window) for task in ("code", "support") for window in WINDOWS)]

FRAMEWORKS = {
    "anthropic_sdk": {
        "plain": "no management",
        "palimpsest": "Palimpsest: `ManagedMessages`",
    },
    "langchain": {
        "plain": "no management",
        "summarize": "`SummarizationMiddleware`",
        "clear": "`ContextEditingMiddleware`",
        "summarize_and_clear": "both middlewares",
        "summarize_whole": "`SummarizationMiddleware` without its trim",
        "provider_clears": "Anthropic's `context_management`",
        "deep_agents": "the middlewares of Deep Agents",
        "palimpsest": "Palimpsest: `PalimpsestMiddleware`",
    },
    "openai_agents": {
        "plain": "`SQLiteSession` alone",
        "limit": "`SessionSettings(limit=50)`",
        "trim_outputs": "`ToolOutputTrimmer`",
        "compaction_session": "`OpenAIResponsesCompactionSession`",
        "palimpsest": "Palimpsest: `PalimpsestContext`",
    },
    "pydantic_ai": {
        "plain": "no management",
        "keep_recent": "`ProcessHistory`, first and last 10 messages",
        "keep_turn": "`ProcessHistory`, last turn above 80 %",
        "summarize": "`ProcessHistory`, summary above 80 %",
        "palimpsest": "Palimpsest: `PalimpsestCapability`",
    },
    "strands": {
        "plain": "`NullConversationManager`",
        "sliding_window": "`SlidingWindowConversationManager`",
        "summarize": "`SummarizingConversationManager`",
        "summarize_early": "`SummarizingConversationManager` above 70 %",
        "auto": '`context_manager="auto"`',
        "palimpsest": "Palimpsest: `PalimpsestConversationManager`",
    },
    "google_adk": {
        "plain": "no management",
        "filter": "`ContextFilterPlugin`",
        "compact_invocations": "`EventsCompactionConfig`, invocations",
        "compact_tokens": "`EventsCompactionConfig`, tokens",
        "palimpsest": "Palimpsest: `PalimpsestPlugin`",
    },
    "llama_index": {
        "plain": "`Memory` without a limit",
        "memory": "`Memory`",
        "summary_buffer": "`ChatSummaryMemoryBuffer`",
        "palimpsest": "Palimpsest: `PalimpsestAgent`",
    },
}
#: The other frameworks use Anthropic.
OPENAI_FRAMEWORKS = ["openai_agents", "google_adk", "llama_index"]
#: The framework that needs an environment of its own.
SEPARATE = "llama_index"


def glue_lines(framework: str, variant: str) -> int:
    """Returns the lines of a variant that exist for the management of the context. They end with `# glue`."""
    return (Path(__file__).parent / f"{framework}_variants" / f"{variant}.py").read_text().count("# glue\n")
