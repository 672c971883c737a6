package langchain4j;

import dev.langchain4j.memory.ChatMemory; // glue
import dev.langchain4j.memory.chat.MessageWindowChatMemory; // glue
import dev.langchain4j.service.AiServices;
import palimpsest.langchain4j.PalimpsestContext; // glue

/** The context of Palimpsest, with the default policy and without a model for summaries. */
final class Palimpsest {
    private Palimpsest() {}

    static ChatMemory memory(AiServices<Conversation> services, String model) {
        PalimpsestContext.of("demo").modelName(model).addTo(services); // glue
        return MessageWindowChatMemory.withMaxMessages(Integer.MAX_VALUE); // glue
    }
}
