package springai;

import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor; // glue
import org.springframework.ai.chat.client.advisor.ToolCallingAdvisor; // glue
import org.springframework.ai.chat.memory.ChatMemory; // glue
import org.springframework.ai.chat.memory.MessageWindowChatMemory; // glue

/**
 * The default limit of 20 messages in the rounds of tool calls, so calls and results count too. A longer turn loses all
 * messages, with the input of the user.
 */
final class WindowRounds {
    private WindowRounds() {}

    static ChatMemory addTo(ChatClient.Builder client) {
        ChatMemory memory = MessageWindowChatMemory.builder().build(); // glue
        client.defaultAdvisors(MessageChatMemoryAdvisor.builder(memory) // glue
                .order(ToolCallingAdvisor.DEFAULT_ORDER + 50) // glue
                .build()); // glue
        return memory;
    }
}
