package palimpsest.langchain4j;

import dev.langchain4j.model.anthropic.AnthropicTokenUsage;
import dev.langchain4j.model.output.TokenUsage;
import java.util.Objects;
import java.util.OptionalInt;

/** The input tokens of a response, with those of the cache. */
final class InputTokens {
    private static final String ANTHROPIC = "dev.langchain4j.model.anthropic.AnthropicTokenUsage";
    private static final String OPENAI = "dev.langchain4j.model.openai";

    private InputTokens() {}

    /** Returns the tokens, or nothing if the meaning of the fields depends on a provider that is not known. */
    static OptionalInt of(TokenUsage usage) {
        if (usage == null || usage.inputTokenCount() == null || usage.outputTokenCount() == null) {
            return OptionalInt.empty();
        }
        String type = usage.getClass().getName();
        // The name is compared first, because an application without models of Anthropic lacks the class.
        if (type.equals(ANTHROPIC) && usage instanceof AnthropicTokenUsage anthropic) {
            return OptionalInt.of(anthropic.inputTokenCount()
                    + Objects.requireNonNullElse(anthropic.cacheReadInputTokens(), 0)
                    + Objects.requireNonNullElse(anthropic.cacheCreationInputTokens(), 0));
        }
        return type.startsWith(OPENAI) || type.equals(TokenUsage.class.getName())
                ? OptionalInt.of(usage.inputTokenCount())
                : OptionalInt.empty();
    }
}
