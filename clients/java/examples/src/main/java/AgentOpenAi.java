import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.errors.OpenAIServiceException;
import com.openai.models.FunctionDefinition;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionMessage;
import com.openai.models.chat.completions.ChatCompletionMessageParam;
import com.openai.models.chat.completions.ChatCompletionTool;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import palimpsest.Format;
import palimpsest.Palimpsest;
import palimpsest.Session;
import palimpsest.SyncOptions;
import palimpsest.View;

/** An agent with the SDK of OpenAI that calls {@code sync} itself: {@code AgentOpenAi "Why did the build fail?"}. */
public final class AgentOpenAi {
    private static final String MODEL = System.getenv().getOrDefault("MODEL", "gpt-5");
    private static final String SESSION = System.getenv().getOrDefault("PALIMPSEST_SESSION", "agent-openai");
    private static final FunctionDefinition READ_LOG = FunctionDefinition.builder()
            .name("read_log")
            .description("Reads the build's log.")
            .build();

    /** Returns a large log. The service stores it, and the model gets a preview and a reference. */
    private static String readLog() {
        return IntStream.range(0, 5_000)
                .mapToObj(n -> "step " + n + ": compiled, and nothing was wrong\n")
                .collect(Collectors.joining("", "", "disk full\n"));
    }

    private static String answer(String text) {
        Session context = new Palimpsest().session("demo", SESSION); // glue
        OpenAIClient client = OpenAIOkHttpClient.fromEnv();
        ChatCompletionCreateParams.Builder params = ChatCompletionCreateParams.builder()
                .model(MODEL)
                .addSystemMessage("Be brief.")
                .addUserMessage(text)
                .addFunctionTool(READ_LOG);
        context.tools(Format.OPENAI_CHAT, ChatCompletionTool.class).forEach(params::addTool); // glue
        OpenAIServiceException tooLong = null;
        while (true) {
            SyncOptions options = new SyncOptions().tooLong(tooLong);
            View<ChatCompletionCreateParams> view = context.sync(params.build(), options); // glue
            if (!view.sendable()) {
                throw new IllegalStateException("The conversation cannot be sent: " + view.notSendableReason());
            }
            ChatCompletion response;
            try {
                response = client.chat().completions().create(view.request()); // glue
            } catch (OpenAIServiceException error) {
                if (tooLong != null || !Palimpsest.isTooLong(error)) {
                    throw error;
                }
                // The next sync returns a shorter view.
                tooLong = error;
                continue;
            }
            tooLong = null;
            context.answer(response, Map.of("read_log", input -> readLog()), ChatCompletionMessageParam.class) // glue
                    .forEach(params::addMessage);
            ChatCompletionMessage message = response.choices().get(0).message();
            if (message.toolCalls().isEmpty()) {
                return message.content().orElse("");
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
