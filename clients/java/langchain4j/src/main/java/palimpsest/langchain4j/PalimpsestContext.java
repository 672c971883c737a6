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
    private final String modelName;
    private final boolean readBack;
    private final LastResponses responses;

    private PalimpsestContext(
            Function<Object, Session> sessions, String modelName, boolean readBack, LastResponses responses) {
        this.sessions = sessions;
        this.modelName = modelName;
        this.readBack = readBack;
        this.responses = responses;
    }

    /**
     * Returns the context for AI services with a {@code @MemoryId} and a server with the address
     * {@code PALIMPSEST_URL}. The memory id is the id of the session.
     */
    public static PalimpsestContext of(String project) {
        return of(new Palimpsest(), project);
    }

    /** Returns the context for AI services with a {@code @MemoryId} and a connection. */
    public static PalimpsestContext of(Palimpsest client, String project) {
        return of(id -> client.session(project, checked(id).toString(), Format.OPENAI_CHAT));
    }

    /** Returns the context for an AI service with one conversation. */
    public static PalimpsestContext of(Session session) {
        return of(id -> session);
    }

    private static PalimpsestContext of(Function<Object, Session> sessions) {
        return new PalimpsestContext(sessions, null, true, new LastResponses());
    }

    /**
     * Returns the context with a name of the model, for requests without one.
     *
     * @param name the name of the model, which decides the size of the context window
     */
    public PalimpsestContext modelName(String name) {
        return new PalimpsestContext(sessions, name, readBack, responses);
    }

    /** Returns the context without the tools of the service. The model then cannot read removed content. */
    public PalimpsestContext withoutReadBack() {
        return new PalimpsestContext(sessions, modelName, false, responses);
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
                modelOf(request),
                "messages",
                messages.json(),
                "tools",
                tools.stream()
                        .map(it -> Map.of("type", "function", "function", parsed(it.toJson())))
                        .toList());
        Session session = sessions.apply(memoryId);
        SyncOptions options = responses.options(session).parameter("format", Format.OPENAI_CHAT);
        View<Map<String, Object>> view = session.sync(body, options);
        // Throws if the view must not be sent.
        view.request();
        return request.toBuilder().messages(messages.of(view.messages())).build();
    }

    private String modelOf(ChatRequest request) {
        String name = request.modelName() != null ? request.modelName() : modelName;
        if (name == null) {
            throw new IllegalStateException("The size of the context window is unknown."
                    + " Pass the name of the model: PalimpsestContext.of(…).modelName(\"gpt-5\")");
        }
        return name;
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
                        Objects.requireNonNullElse(response.modelName(), Objects.requireNonNullElse(modelName, "")),
                        input,
                        response.tokenUsage().outputTokenCount()));
    }

    /** Returns the tools of the service, with which the model reads stored results and the transcript. */
    @Override
    public ToolProviderResult provideTools(ToolProviderRequest request) {
        ToolProviderResult.Builder result = ToolProviderResult.builder();
        if (!readBack) {
            return result.build();
        }
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
