package springai;

import harness.Harness;
import org.springframework.ai.chat.client.ChatClientRequest;
import org.springframework.ai.chat.client.ChatClientResponse;
import org.springframework.ai.chat.client.advisor.api.CallAdvisor;
import org.springframework.ai.chat.client.advisor.api.CallAdvisorChain;
import org.springframework.core.Ordered;

/** Reports the input tokens of each model call. */
record UsageAdvisor(Harness harness) implements CallAdvisor {
    @Override
    public String getName() {
        return "usage";
    }

    @Override
    public int getOrder() {
        // Advisors after the one that runs tool calls see each response.
        return Ordered.LOWEST_PRECEDENCE - 2;
    }

    @Override
    public ChatClientResponse adviseCall(ChatClientRequest request, CallAdvisorChain chain) {
        ChatClientResponse response = chain.nextCall(request);
        harness.used(response.chatResponse().getMetadata().getUsage().getPromptTokens());
        return response;
    }
}
