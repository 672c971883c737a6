package palimpsest;

import java.util.Locale;

/** The format of messages of a provider. */
public enum Format {
    /** Messages of Anthropic. */
    ANTHROPIC_MESSAGES,
    /** Chat Completions of OpenAI. */
    OPENAI_CHAT,
    /** Responses of OpenAI. */
    OPENAI_RESPONSES;

    /** Returns the name in the API. */
    public String value() {
        return name().toLowerCase(Locale.ROOT);
    }
}
