package langchain4j;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.json.JsonMapper;
import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.memory.ChatMemory;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.listener.ChatModelResponseContext;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.service.AiServices;
import dev.langchain4j.service.tool.ToolExecutor;
import harness.Agent;
import harness.Description;
import harness.Harness;
import java.io.UncheckedIOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** An agent with an AI service of LangChain4j. */
public final class LangChain4jAgent implements Agent {
    private static final JsonMapper JSON = new JsonMapper();
    private static final TypeReference<Map<String, String>> ARGUMENTS = new TypeReference<>() {};

    private final Conversation conversation;
    private final ChatMemory memory;

    public LangChain4jAgent(Harness harness, Description description) {
        AiServices<Conversation> services = AiServices.builder(Conversation.class)
                .chatModel(model(harness, description))
                .systemMessage(description.system())
                .tools(tools(harness, description));
        memory = switch (description.variant()) {
            case "plain" -> Plain.memory();
            case "message_window" -> MessageWindow.memory();
            case "token_window" -> TokenWindow.memory(description.model(), description.window());
            case "palimpsest" -> Palimpsest.memory(services, description.model());
            default -> throw new IllegalArgumentException("unknown variant: " + description.variant());
        };
        conversation = services.chatMemoryProvider(id -> memory).build();
    }

    private static OpenAiChatModel model(Harness harness, Description description) {
        ChatModelListener usage = new ChatModelListener() {
            @Override
            public void onResponse(ChatModelResponseContext context) {
                harness.used(context.chatResponse().tokenUsage().inputTokenCount());
            }
        };
        return OpenAiChatModel.builder()
                .baseUrl(description.url() + "/v1")
                .apiKey(description.key())
                .modelName(description.model())
                .maxCompletionTokens(description.maxOutput())
                .maxRetries(0)
                .listeners(usage)
                .build();
    }

    private static Map<ToolSpecification, ToolExecutor> tools(Harness harness, Description description) {
        Map<ToolSpecification, ToolExecutor> tools = new LinkedHashMap<>();
        description.tools().forEach((name, arguments) -> {
            String json = "{\"name\": \"%s\", \"description\": \"Runs %s.\", \"parameters\": %s}"
                    .formatted(name, name, Harness.schema(arguments));
            tools.put(ToolSpecification.fromJson(json), (call, id) -> harness.call(name, parsed(call.arguments())));
        });
        return tools;
    }

    private static Map<String, String> parsed(String arguments) {
        try {
            return JSON.readValue(arguments, ARGUMENTS);
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public String ask(String text) {
        return conversation.answer("t", text);
    }

    @Override
    public List<String> stored() {
        return memory.messages().stream()
                .filter(ToolExecutionResultMessage.class::isInstance)
                .map(it -> ((ToolExecutionResultMessage) it).text())
                .toList();
    }
}
