package langchain4j;

import dev.langchain4j.service.MemoryId;
import dev.langchain4j.service.UserMessage;

/** The AI service of the agent. */
interface Conversation {
    String answer(@MemoryId String id, @UserMessage String text);
}
