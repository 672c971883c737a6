package palimpsest.springai;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalInt;
import java.util.concurrent.atomic.AtomicReference;
import org.springframework.ai.chat.client.ChatClientMessageAggregator;
import org.springframework.ai.chat.client.ChatClientRequest;
import org.springframework.ai.chat.client.ChatClientResponse;
import org.springframework.ai.chat.client.advisor.api.CallAdvisor;
import org.springframework.ai.chat.client.advisor.api.CallAdvisorChain;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisor;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisorChain;
import org.springframework.ai.chat.messages.Message;
import org.springframework.ai.chat.metadata.EmptyUsage;
import org.springframework.ai.chat.metadata.Usage;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.prompt.ChatOptions;
import org.springframework.ai.chat.prompt.Prompt;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.definition.ToolDefinition;
import org.springframework.core.Ordered;
import palimpsest.ApiException;
import palimpsest.LastResponses;
import palimpsest.Palimpsest;
import palimpsest.Session;
import palimpsest.View;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Sends the view of the session to the model. The last advisor before the model, so it runs for each model call. */
final class ViewAdvisor implements CallAdvisor, StreamAdvisor {
    private final Sessions sessions;
    private final LastResponses responses = new LastResponses();

    ViewAdvisor(Sessions sessions) {
        this.sessions = sessions;
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
        ChatClientResponse response;
        try {
            response = chain.nextCall(first);
        } catch (RuntimeException error) {
            if (!Palimpsest.isTooLong(error)) {
                throw error;
            }
            response = chain.copy(this).nextCall(shorter(request, error));
        }
        if (response.chatResponse() != null) {
            record(request, response.chatResponse(), usageOf(response));
        }
        return response;
    }

    @Override
    public Flux<ChatClientResponse> adviseStream(ChatClientRequest request, StreamAdvisorChain chain) {
        Flux<ChatClientResponse> parts = view(request, null)
                .flatMapMany(chain::nextStream)
                .onErrorResume(
                        Palimpsest::isTooLong,
                        error -> view(request, error)
                                .onErrorMap(ApiException.class, failure -> reported(error, failure))
                                .flatMapMany(chain.copy(this)::nextStream));
        return Flux.defer(() -> {
            // The aggregated response lacks the usage of the provider, which the last parts have.
            AtomicReference<Usage> usage = new AtomicReference<>(new EmptyUsage());
            Flux<ChatClientResponse> observed = parts.doOnNext(
                    it -> usage.updateAndGet(last -> InputTokens.of(usageOf(it)).isPresent() ? usageOf(it) : last));
            return new ChatClientMessageAggregator()
                    .aggregateChatClientResponse(observed, whole -> record(request, whole.chatResponse(), usage.get()));
        });
    }

    private static Usage usageOf(ChatClientResponse response) {
        ChatResponse part = response.chatResponse();
        return part == null ? new EmptyUsage() : part.getMetadata().getUsage();
    }

    /** Records the usage of a response, which the next sync of its session sends. */
    private void record(ChatClientRequest request, ChatResponse response, Usage usage) {
        OptionalInt input = InputTokens.of(usage);
        if (response.getResult() == null || input.isEmpty()) {
            return;
        }
        List<Message> output = List.of(response.getResult().getOutput());
        responses.record(
                sessions.of(request.context()),
                new ChatMessages(output).json().get(0),
                Objects.requireNonNullElse(response.getMetadata().getModel(), ""),
                input.getAsInt(),
                usage.getCompletionTokens());
    }

    private Mono<ChatClientRequest> view(ChatClientRequest request, Throwable tooLong) {
        return Mono.fromCallable(() -> withView(request, tooLong)).subscribeOn(Schedulers.boundedElastic());
    }

    private ChatClientRequest shorter(ChatClientRequest request, RuntimeException tooLong) {
        try {
            return withView(request, tooLong);
        } catch (ApiException failure) {
            throw reported(tooLong, failure);
        }
    }

    /**
     * Returns the exception of the provider if the service cannot shorten the prompt, as without the service. It states
     * the limit, for example one that the output tokens exceed. Returns the failure of the service otherwise.
     */
    private static <E extends Throwable> E reported(E tooLong, E failure) {
        if (!(failure instanceof ApiException error) || !error.reason().equals("PROMPT_TOO_LONG")) {
            return failure;
        }
        tooLong.addSuppressed(error);
        return tooLong;
    }

    private ChatClientRequest withView(ChatClientRequest request, Throwable tooLong) {
        Session session = sessions.of(request.context());
        Prompt prompt = request.prompt();
        ChatOptions options = prompt.getOptions();
        ChatMessages messages = new ChatMessages(prompt.getInstructions());
        Map<String, Object> body = Map.of(
                "model", options == null ? "" : Objects.requireNonNullElse(options.getModel(), ""),
                "messages", messages.json(),
                "tools", definitions(ToolsAdvisor.toolsOf(options)));
        View<Map<String, Object>> view =
                session.sync(body, responses.options(session).tooLong(tooLong));
        // Throws if the view must not be sent.
        view.request();
        Prompt shown = new Prompt(messages.of(view.messages()), options);
        return request.mutate().prompt(shown).build();
    }

    private static List<?> definitions(List<ToolCallback> tools) {
        return tools.stream()
                .map(it -> Map.of("type", "function", "function", function(it.getToolDefinition())))
                .toList();
    }

    private static Map<String, ?> function(ToolDefinition tool) {
        return Map.of(
                "name", tool.name(),
                "description", tool.description(),
                "parameters", ChatMessages.parsed(tool.inputSchema()));
    }
}
