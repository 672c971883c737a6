package springai;

import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor; // glue
import org.springframework.ai.chat.memory.ChatMemory; // glue
import org.springframework.ai.chat.memory.MessageWindowChatMemory; // glue

/** The memory of the documentation, with the defaults: 20 messages, without the calls and results of earlier inputs. */
final class Window {
    private Window() {}

    static ChatMemory addTo(ChatClient.Builder client) {
        ChatMemory memory = MessageWindowChatMemory.builder().build(); // glue
        client.defaultAdvisors(MessageChatMemoryAdvisor.builder(memory).build()); // glue
        return memory;
    }
}
