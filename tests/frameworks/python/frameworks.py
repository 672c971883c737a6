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
    "spring_ai": {
        "plain": "`MessageWindowChatMemory` without a limit",
        "window": "`MessageWindowChatMemory`",
        "window_rounds": "`MessageWindowChatMemory` in the rounds of tool calls",
        "palimpsest": "Palimpsest: `PalimpsestAdvisors`",
    },
    "langchain4j": {
        "plain": "`MessageWindowChatMemory` without a limit",
        "message_window": "`MessageWindowChatMemory`, 10 messages",
        "token_window": "`TokenWindowChatMemory`",
        "palimpsest": "Palimpsest: `PalimpsestContext`",
    },
    "eino": {
        "plain": "no management",
        "reduction": "`NewToolResultMiddleware`",
        "reduction_scaled": "`NewToolResultMiddleware`, limits in proportion",
        "reduction_files": "`NewToolResultMiddleware`, results above 2,000 tokens in files",
        "palimpsest": "Palimpsest: `NewChatModelAgent`",
    },
}
#: The other frameworks use Anthropic.
OPENAI_FRAMEWORKS = ["openai_agents", "google_adk", "llama_index", "spring_ai", "langchain4j", "eino"]
#: The framework that needs an environment of its own.
SEPARATE = "llama_index"
#: The agents in other languages, with the folders of their variants.
PROGRAMS = {
    "spring_ai": "java/src/main/java/springai",
    "langchain4j": "java/src/main/java/langchain4j",
    "eino": "go",
}


def glue_lines(framework: str, variant: str) -> int:
    """Returns the lines of a variant that exist for the management of the context. Their comment is `glue`."""
    folder = Path(__file__).parents[1] / PROGRAMS.get(framework, f"python/{framework}_variants")
    names = (f"{variant}.py", f"{variant}.go", f"{variant.title().replace('_', '')}.java")
    sources = [(folder / name).read_text() for name in names if (folder / name).exists()]
    assert len(sources) == 1, f"{folder} has no file for {variant}"
    return sources[0].count(" glue\n")
