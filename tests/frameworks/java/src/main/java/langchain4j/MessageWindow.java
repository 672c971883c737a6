package langchain4j;

import dev.langchain4j.memory.ChatMemory; // glue
import dev.langchain4j.memory.chat.MessageWindowChatMemory; // glue

/** A memory with the last 10 messages, as in the documentation. */
final class MessageWindow {
    private MessageWindow() {}

    static ChatMemory memory() {
        return MessageWindowChatMemory.withMaxMessages(10); // glue
    }
}
