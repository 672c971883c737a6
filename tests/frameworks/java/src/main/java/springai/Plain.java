package springai;

import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor; // glue
import org.springframework.ai.chat.client.advisor.ToolCallingAdvisor; // glue
import org.springframework.ai.chat.memory.ChatMemory; // glue
import org.springframework.ai.chat.memory.MessageWindowChatMemory; // glue

/** A memory without a limit. It takes part in the rounds of tool calls, so it stores calls and results too. */
final class Plain {
    private Plain() {}

    static ChatMemory addTo(ChatClient.Builder client) {
        ChatMemory memory = // glue
                MessageWindowChatMemory.builder().maxMessages(Integer.MAX_VALUE).build(); // glue
        client.defaultAdvisors(MessageChatMemoryAdvisor.builder(memory) // glue
                .order(ToolCallingAdvisor.DEFAULT_ORDER + 50) // glue
                .build()); // glue
        return memory;
    }
}
