package springai;

import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor; // glue
import org.springframework.ai.chat.client.advisor.ToolCallingAdvisor; // glue
import org.springframework.ai.chat.memory.ChatMemory; // glue
import org.springframework.ai.chat.memory.MessageWindowChatMemory; // glue
import palimpsest.springai.PalimpsestAdvisors; // glue

/** The advisors of Palimpsest, with the default policy and without a model for summaries. */
final class Palimpsest {
    private Palimpsest() {}

    static ChatMemory addTo(ChatClient.Builder client) {
        ChatMemory memory = // glue
                MessageWindowChatMemory.builder().maxMessages(Integer.MAX_VALUE).build(); // glue
        client.defaultAdvisors(PalimpsestAdvisors.of("demo")); // glue
        client.defaultAdvisors(MessageChatMemoryAdvisor.builder(memory) // glue
                .order(ToolCallingAdvisor.DEFAULT_ORDER + 50) // glue
                .build()); // glue
        return memory;
    }
}
