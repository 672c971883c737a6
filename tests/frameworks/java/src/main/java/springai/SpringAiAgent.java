package springai;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import harness.Agent;
import harness.Description;
import harness.Harness;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.openai.OpenAiChatModel;
import org.springframework.ai.openai.OpenAiChatOptions;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.function.FunctionToolCallback;
import org.springframework.core.ParameterizedTypeReference;

/** An agent with the chat client of Spring AI. */
public final class SpringAiAgent implements Agent {
    private static final JsonMapper JSON = new JsonMapper();
    private static final String CONVERSATION = "t";

    private final ChatClient client;
    private final ChatMemory memory;

    public SpringAiAgent(Harness harness, Description description) {
        ToolCallback[] tools = description.tools().entrySet().stream()
                .map(it -> tool(harness, it.getKey(), it.getValue()))
                .toArray(ToolCallback[]::new);
        ChatClient.Builder builder = ChatClient.builder(model(description))
                .defaultSystem(description.system())
                .defaultTools((Object[]) tools)
                .defaultAdvisors(new UsageAdvisor(harness))
                .defaultAdvisors(it -> it.param(ChatMemory.CONVERSATION_ID, CONVERSATION));
        memory = switch (description.variant()) {
            case "plain" -> Plain.addTo(builder);
            case "window" -> Window.addTo(builder);
            case "window_rounds" -> WindowRounds.addTo(builder);
            case "palimpsest" -> Palimpsest.addTo(builder);
            default -> throw new IllegalArgumentException("unknown variant: " + description.variant());
        };
        client = builder.build();
    }

    private static OpenAiChatModel model(Description description) {
        OpenAiChatOptions options = OpenAiChatOptions.builder()
                .baseUrl(description.url() + "/v1")
                .apiKey(description.key())
                .model(description.model())
                .maxCompletionTokens(description.maxOutput())
                .maxRetries(0)
                .build();
        return OpenAiChatModel.builder().options(options).build();
    }

    private static ToolCallback tool(Harness harness, String name, Map<String, String> arguments) {
        return FunctionToolCallback.builder(name, (Map<String, String> given) -> harness.call(name, given))
                .description("Runs " + name + ".")
                .inputType(new ParameterizedTypeReference<Map<String, String>>() {})
                .inputSchema(Harness.schema(arguments))
                .build();
    }

    @Override
    public String ask(String text) {
        return client.prompt(text).call().content();
    }

    @Override
    public List<String> stored() {
        return memory.get(CONVERSATION).stream()
                .flatMap(
                        it -> it instanceof ToolResponseMessage message ? message.getResponses().stream() : Stream.of())
                .map(it -> decoded(it.responseData()))
                .toList();
    }

    /** Returns the text of a result. Spring AI stores and sends a text as a JSON string, unless it is JSON already. */
    private static String decoded(String result) {
        try {
            JsonNode value = JSON.readTree(result);
            return value.isTextual() ? value.textValue() : result;
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }
}
