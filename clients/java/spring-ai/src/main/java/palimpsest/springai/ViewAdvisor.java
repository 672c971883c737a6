package palimpsest.springai;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.springframework.ai.chat.client.ChatClientRequest;
import org.springframework.ai.chat.client.ChatClientResponse;
import org.springframework.ai.chat.client.advisor.api.CallAdvisor;
import org.springframework.ai.chat.client.advisor.api.CallAdvisorChain;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisor;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisorChain;
import org.springframework.ai.chat.prompt.ChatOptions;
import org.springframework.ai.chat.prompt.Prompt;
import org.springframework.ai.model.tool.ToolCallingChatOptions;
import org.springframework.ai.tool.definition.ToolDefinition;
import org.springframework.core.Ordered;
import palimpsest.Palimpsest;
import palimpsest.Session;
import palimpsest.SyncOptions;
import palimpsest.View;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Sends the view of the session to the model. The last advisor before the model, so it runs for each model call. */
final class ViewAdvisor implements CallAdvisor, StreamAdvisor {
    private final Palimpsest client;
    private final String project;

    ViewAdvisor(Palimpsest client, String project) {
        this.client = client;
        this.project = project;
    }

    @Override
    public String getName() {
        return "Palimpsest view";
    }

    @Override
    public int getOrder() {
        // The advisor that calls the model has the lowest precedence.
        return Ordered.LOWEST_PRECEDENCE - 1;
    }

    @Override
    public ChatClientResponse adviseCall(ChatClientRequest request, CallAdvisorChain chain) {
        ChatClientRequest first = withView(request, null);
        try {
            return chain.nextCall(first);
        } catch (RuntimeException error) {
            if (!Palimpsest.isTooLong(error)) {
                throw error;
            }
            return chain.copy(this).nextCall(withView(request, error));
        }
    }

    @Override
    public Flux<ChatClientResponse> adviseStream(ChatClientRequest request, StreamAdvisorChain chain) {
        return view(request, null)
                .flatMapMany(chain::nextStream)
                .onErrorResume(
                        Palimpsest::isTooLong, error -> view(request, error).flatMapMany(chain.copy(this)::nextStream));
    }

    private Mono<ChatClientRequest> view(ChatClientRequest request, Throwable tooLong) {
        return Mono.fromCallable(() -> withView(request, tooLong)).subscribeOn(Schedulers.boundedElastic());
    }

    private ChatClientRequest withView(ChatClientRequest request, Throwable tooLong) {
        Session session = PalimpsestAdvisors.session(client, project, request.context());
        Prompt prompt = request.prompt();
        ChatOptions options = prompt.getOptions();
        ChatMessages messages = new ChatMessages(prompt.getInstructions());
        Map<String, Object> body = Map.of(
                "model", options == null ? "" : Objects.requireNonNullElse(options.getModel(), ""),
                "messages", messages.json(),
                "tools", tools(options));
        View<Map<String, Object>> view = session.sync(body, new SyncOptions().tooLong(tooLong));
        // Throws if the array must not be sent.
        view.request();
        Prompt shown = new Prompt(messages.of(view.messages()), options);
        return request.mutate().prompt(shown).build();
    }

    private static List<?> tools(ChatOptions options) {
        if (!(options instanceof ToolCallingChatOptions tools)) {
            return List.of();
        }
        return tools.getToolCallbacks().stream()
                .map(it -> it.getToolDefinition())
                .map(it -> Map.of("type", "function", "function", function(it)))
                .toList();
    }

    private static Map<String, ?> function(ToolDefinition tool) {
        return Map.of(
                "name", tool.name(),
                "description", tool.description(),
                "parameters", ChatMessages.parsed(tool.inputSchema()));
    }
}
