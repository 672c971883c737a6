package palimpsest.springai;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.springframework.ai.chat.client.ChatClientRequest;
import org.springframework.ai.chat.client.ChatClientResponse;
import org.springframework.ai.chat.client.advisor.ToolCallingAdvisor;
import org.springframework.ai.chat.client.advisor.api.CallAdvisor;
import org.springframework.ai.chat.client.advisor.api.CallAdvisorChain;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisor;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisorChain;
import org.springframework.ai.chat.prompt.ChatOptions;
import org.springframework.ai.model.tool.ToolCallingChatOptions;
import org.springframework.ai.tool.ToolCallback;
import palimpsest.Session;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Adds the tools of the service to a call, before the advisor that runs tool calls. */
final class ToolsAdvisor implements CallAdvisor, StreamAdvisor {
    private final Sessions sessions;
    private final List<ObjectNode> definitions = new ArrayList<>();

    ToolsAdvisor(Sessions sessions) {
        this.sessions = sessions;
    }

    @Override
    public String getName() {
        return "Palimpsest tools";
    }

    @Override
    public int getOrder() {
        return ToolCallingAdvisor.DEFAULT_ORDER - 50;
    }

    @Override
    public ChatClientResponse adviseCall(ChatClientRequest request, CallAdvisorChain chain) {
        return chain.nextCall(withTools(request));
    }

    @Override
    public Flux<ChatClientResponse> adviseStream(ChatClientRequest request, StreamAdvisorChain chain) {
        return Mono.fromCallable(() -> withTools(request))
                .subscribeOn(Schedulers.boundedElastic())
                .flatMapMany(chain::nextStream);
    }

    private ChatClientRequest withTools(ChatClientRequest request) {
        if (!(request.prompt().getOptions() instanceof ToolCallingChatOptions options)) {
            return request;
        }
        Session session = sessions.of(request.context());
        List<ToolCallback> tools = new ArrayList<>(toolsOf(options));
        definitions(session).forEach(it -> tools.add(new ServiceTool(session, it)));
        ToolCallingChatOptions changed = options.mutate().toolCallbacks(tools).build();
        return request.mutate()
                .prompt(request.prompt().mutate().chatOptions(changed).build())
                .build();
    }

    /** Returns the tools of a call. */
    static List<ToolCallback> toolsOf(ChatOptions options) {
        return options instanceof ToolCallingChatOptions it && it.getToolCallbacks() != null
                ? it.getToolCallbacks()
                : List.of();
    }

    /** Returns the definitions, which are the same for all sessions. */
    private synchronized List<ObjectNode> definitions(Session session) {
        if (definitions.isEmpty()) {
            definitions.addAll(session.tools());
        }
        return definitions;
    }
}
