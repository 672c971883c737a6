package palimpsest.springai;

import java.util.Objects;
import java.util.OptionalInt;
import org.springframework.ai.chat.metadata.Usage;

/** The input tokens of a response, with those of the cache. */
final class InputTokens {
    private InputTokens() {}

    /** Returns the tokens, or nothing if there are none, or if their meaning depends on an unknown provider. */
    static OptionalInt of(Usage usage) {
        // A model can report no usage, or only a part of it.
        if (usage == null || usage.getPromptTokens() == null || usage.getCompletionTokens() == null) {
            return OptionalInt.empty();
        }
        int prompt = usage.getPromptTokens();
        long cached = Objects.requireNonNullElse(usage.getCacheReadInputTokens(), 0L)
                + Objects.requireNonNullElse(usage.getCacheWriteInputTokens(), 0L);
        Object reported = usage.getNativeUsage();
        String provider = reported == null ? "" : reported.getClass().getPackageName();
        // Anthropic reports the tokens of the cache beside the others, and OpenAI as a part of them.
        if (provider.startsWith("com.anthropic")) {
            return OptionalInt.of(prompt + Math.toIntExact(cached));
        }
        return prompt > 0 && (cached == 0 || provider.startsWith("com.openai"))
                ? OptionalInt.of(prompt)
                : OptionalInt.empty();
    }
}
