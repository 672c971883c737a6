package palimpsest.langchain4j;

import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.observability.api.event.AiServiceResponseReceivedEvent;
import dev.langchain4j.observability.api.listener.AiServiceResponseReceivedListener;
import dev.langchain4j.service.AiServices;
import dev.langchain4j.service.memory.ChatMemoryService;
import dev.langchain4j.service.tool.ToolExecutor;
import dev.langchain4j.service.tool.ToolProvider;
import dev.langchain4j.service.tool.ToolProviderRequest;
import dev.langchain4j.service.tool.ToolProviderResult;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiFunction;
import java.util.function.Function;
import palimpsest.Format;
import palimpsest.LastResponses;
import palimpsest.Palimpsest;
import palimpsest.Session;
import palimpsest.SyncOptions;
import palimpsest.View;

/**
 * Gives the conversations of an AI service to sessions: a transformer of its requests, a provider of the tools of the
 * service, and a listener for the usage of responses. {@link #addTo} registers all three.
 */
public final class PalimpsestContext
        implements BiFunction<ChatRequest, Object, ChatRequest>, ToolProvider, AiServiceResponseReceivedListener {
    private static final JsonMapper JSON = new JsonMapper();

    private final Function<Object, Session> sessions;
    private final String model;
    private final LastResponses responses = new LastResponses();

    private PalimpsestContext(Function<Object, Session> sessions, String model) {
        this.sessions = sessions;
        this.model = model;
    }

    /**
     * Creates the context for AI services with a {@code @MemoryId} and a server with the address
     * {@code PALIMPSEST_URL}. The memory id is the id of the session.
     *
     * @param model the name of the model, whose context window the service knows
     */
    public PalimpsestContext(String project, String model) {
        this(new Palimpsest(), project, model);
    }

    /** Creates the context for AI services with a {@code @MemoryId} and a connection. */
    public PalimpsestContext(Palimpsest client, String project, String model) {
        this(id -> client.session(project, checked(id).toString(), Format.OPENAI_CHAT), model);
    }

    /** Creates the context for an AI service with one conversation. */
    public PalimpsestContext(Session session, String model) {
        this(id -> session, model);
    }

    private static Object checked(Object memoryId) {
        if (ChatMemoryService.DEFAULT.equals(memoryId)) {
            throw new IllegalArgumentException("The call has no memory id, so conversations cannot be told apart."
                    + " Add a parameter with @MemoryId, or pass a session to PalimpsestContext.");
        }
        return memoryId;
    }

    /**
     * Adds the context to an AI service. {@code services} must get no other {@code chatRequestTransformer}.
     *
     * @return {@code services}
     */
    public <T> AiServices<T> addTo(AiServices<T> services) {
        return services.chatRequestTransformer(this).toolProvider(this).registerListener(this);
    }

    /** Returns the request with the view of the session. */
    @Override
    public ChatRequest apply(ChatRequest request, Object memoryId) {
        ChatMessages messages = new ChatMessages(request.messages());
        List<ToolSpecification> tools = Objects.requireNonNullElse(request.toolSpecifications(), List.of());
        Map<String, Object> body = Map.of(
                "model",
                Objects.requireNonNullElse(request.modelName(), model),
                "messages",
                messages.json(),
                "tools",
                tools.stream()
                        .map(it -> Map.of("type", "function", "function", parsed(it.toJson())))
                        .toList());
        Session session = sessions.apply(memoryId);
        SyncOptions options = responses.options(session).parameter("format", Format.OPENAI_CHAT);
        View<Map<String, Object>> view = session.sync(body, options);
        // Throws if the array must not be sent.
        view.request();
        return request.toBuilder().messages(messages.of(view.messages())).build();
    }

    /** Records the usage of a response, which the next sync of its session sends. */
    @Override
    public void onEvent(AiServiceResponseReceivedEvent event) {
        ChatResponse response = event.response();
        ObjectNode message =
                new ChatMessages(List.of(response.aiMessage())).json().get(0);
        Session session = sessions.apply(event.invocationContext().chatMemoryId());
        InputTokens.of(response.tokenUsage())
                .ifPresent(input -> responses.record(
                        session,
                        message,
                        Objects.requireNonNullElse(response.modelName(), model),
                        input,
                        response.tokenUsage().outputTokenCount()));
    }

    /** Returns the tools of the service, with which the model reads stored results and the transcript. */
    @Override
    public ToolProviderResult provideTools(ToolProviderRequest request) {
        ToolProviderResult.Builder result = ToolProviderResult.builder();
        ToolExecutor executor =
                (call, memoryId) -> sessions.apply(memoryId).runTool(call.id(), call.name(), call.arguments());
        for (ObjectNode tool : sessions.apply(request.chatMemoryId()).tools(Format.OPENAI_CHAT)) {
            result.add(ToolSpecification.fromJson(tool.path("function").toString()), executor);
        }
        return result.build();
    }

    private static Object parsed(String json) {
        try {
            return JSON.readTree(json);
        } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }
}
