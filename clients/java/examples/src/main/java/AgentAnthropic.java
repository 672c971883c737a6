import com.anthropic.client.AnthropicClient;
import com.anthropic.client.okhttp.AnthropicOkHttpClient;
import com.anthropic.models.messages.Message;
import com.anthropic.models.messages.MessageCreateParams;
import com.anthropic.models.messages.MessageParam;
import com.anthropic.models.messages.StopReason;
import com.anthropic.models.messages.TextBlock;
import com.anthropic.models.messages.Tool;
import com.anthropic.models.messages.Tool.InputSchema;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import palimpsest.Palimpsest; // glue
import palimpsest.Session; // glue

/** An agent with the SDK of Anthropic: {@code AgentAnthropic "Why did the build fail?"}. */
public final class AgentAnthropic {
    private static final String MODEL = System.getenv().getOrDefault("MODEL", "claude-sonnet-4-5");
    private static final String SESSION = System.getenv().getOrDefault("PALIMPSEST_SESSION", "agent");
    private static final Tool READ_LOG = Tool.builder()
            .name("read_log")
            .description("Reads the build's log.")
            .inputSchema(InputSchema.builder().build())
            .build();

    /** Returns a large log. The service stores it, and the model gets a preview and a reference. */
    private static String readLog() {
        return IntStream.range(0, 5_000)
                .mapToObj(n -> "step " + n + ": compiled, and nothing was wrong\n")
                .collect(Collectors.joining("", "", "disk full\n"));
    }

    private static String answer(String text) {
        Session context = new Palimpsest().session("demo", SESSION); // glue
        AnthropicClient client = AnthropicOkHttpClient.fromEnv();
        MessageCreateParams.Builder params = MessageCreateParams.builder()
                .model(MODEL)
                .maxTokens(1_024)
                .addUserMessage(text)
                .addTool(READ_LOG);
        while (true) {
            // A view that is not sendable throws, and a prompt that the provider rejects as too long is shortened.
            Message response = context.send(params.build(), client.messages()::create); // glue
            context.answer(response, Map.of("read_log", input -> readLog()), MessageParam.class) // glue
                    .forEach(params::addMessage);
            if (!response.stopReason().equals(Optional.of(StopReason.TOOL_USE))) {
                return response.content().stream()
                        .flatMap(block -> block.text().stream())
                        .map(TextBlock::text)
                        .collect(Collectors.joining());
            }
        }
    }

    /** Prints the answer to a question. */
    public static void main(String[] args) {
        System.out.println(answer(String.join(" ", args)));
        // Threads of the SDK would keep the process alive for a minute.
        System.exit(0);
    }
}
