package langchain4j;

import dev.langchain4j.memory.ChatMemory; // glue
import dev.langchain4j.memory.chat.TokenWindowChatMemory; // glue
import dev.langchain4j.model.openai.OpenAiTokenCountEstimator; // glue

/** A memory of the window, without 2,048 tokens for the answer and as many for the definitions of the tools. */
final class TokenWindow {
    private static final int RESERVE = 4_096; // glue

    private TokenWindow() {}

    static ChatMemory memory(String model, int window) {
        return TokenWindowChatMemory.withMaxTokens(window - RESERVE, new OpenAiTokenCountEstimator(model)); // glue
    }
}
