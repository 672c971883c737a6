package langchain4j;

import dev.langchain4j.memory.ChatMemory; // glue
import dev.langchain4j.memory.chat.MessageWindowChatMemory; // glue

/** A memory without a limit. */
final class Plain {
    private Plain() {}

    static ChatMemory memory() {
        return MessageWindowChatMemory.withMaxMessages(Integer.MAX_VALUE); // glue
    }
}
