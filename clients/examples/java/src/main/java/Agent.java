// A complete agent on Palimpsest with the SDK of OpenAI. See ../../../../../README.md.
//
//     mvn -f clients/examples/java package
//     OPENAI_API_KEY=… java -jar target/clients/java/example/agent.jar "Why did the build fail?"

import com.fasterxml.jackson.databind.json.JsonMapper;
import com.google.protobuf.ByteString;
import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.ObjectMappers;
import com.openai.models.FunctionDefinition;
import com.openai.models.FunctionParameters;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionMessage;
import com.openai.models.chat.completions.ChatCompletionMessageFunctionToolCall;
import com.openai.models.chat.completions.ChatCompletionMessageParam;
import com.openai.models.chat.completions.ChatCompletionToolMessageParam;
import com.openai.models.chat.completions.ChatCompletionUserMessageParam;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import palimpsest.context.v1.AppendMessagesRequest;
import palimpsest.context.v1.CallRef;
import palimpsest.context.v1.CallToolRequest;
import palimpsest.context.v1.CallToolResponse;
import palimpsest.context.v1.ContextServiceGrpc;
import palimpsest.context.v1.ContextServiceGrpc.ContextServiceBlockingStub;
import palimpsest.context.v1.Format;
import palimpsest.context.v1.ListToolsRequest;
import palimpsest.context.v1.MessageInput;
import palimpsest.context.v1.Payload;
import palimpsest.context.v1.PersistToolResultRequest;
import palimpsest.context.v1.PersistToolResultResponse;
import palimpsest.context.v1.PrepareContextRequest;
import palimpsest.context.v1.PrepareContextResponse;
import palimpsest.context.v1.Provider;
import palimpsest.context.v1.Target;
import palimpsest.context.v1.ToolDefinition;
import palimpsest.context.v1.ToolResultContent;

public final class Agent {
    private static final String SESSION = variable("PALIMPSEST_SESSION", "projects/demo/sessions/agent");
    private static final String MODEL = variable("MODEL", "gpt-5");
    private static final Target TARGET =
            Target.newBuilder().setProvider(Provider.PROVIDER_OPENAI).setModel(MODEL).build();
    private static final FunctionDefinition READ_LOG =
            FunctionDefinition.builder().name("read_log").description("Reads the build's log.").build();
    private static final JsonMapper JSON = ObjectMappers.jsonMapper();

    private static String variable(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    private static String readLog() {
        return IntStream.range(0, 5_000)
                .mapToObj(n -> "step " + n + ": compiled, and nothing was wrong\n")
                .collect(Collectors.joining("", "", "disk full\n"));
    }

    /** Wraps an OpenAI message or response without changes. */
    private static MessageInput asInput(Object message) throws Exception {
        ByteString json = ByteString.copyFrom(JSON.writeValueAsBytes(message));
        Payload payload = Payload.newBuilder().setFormat(Format.FORMAT_OPENAI_CHAT).setJson(json).build();
        return MessageInput.newBuilder().setPayload(payload).build();
    }

    /** Runs a tool. Palimpsest replaces a large result by a preview and a reference. */
    private static MessageInput resultOf(
            ContextServiceBlockingStub palimpsest, ChatCompletionMessageFunctionToolCall call) throws Exception {
        ToolResultContent content = ToolResultContent.newBuilder().setText(readLog()).build();
        PersistToolResultResponse stored = palimpsest.persistToolResult(PersistToolResultRequest.newBuilder()
                .setSession(SESSION)
                .setCall(CallRef.newBuilder().setToolUseId(call.id()))
                .setToolName(call.function().name())
                .setContent(content)
                .build());
        String shown = (stored.hasReplacement() ? stored.getReplacement() : content).getText();
        return asInput(ChatCompletionToolMessageParam.builder().toolCallId(call.id()).content(shown).build());
    }

    /** Answers a tool call. Palimpsest runs its own tools, this program runs all others. */
    private static MessageInput answerOf(
            ContextServiceBlockingStub palimpsest, Set<String> own, ChatCompletionMessageFunctionToolCall call)
            throws Exception {
        if (!own.contains(call.function().name())) {
            return resultOf(palimpsest, call);
        }
        ByteString json = ByteString.copyFrom(JSON.writeValueAsBytes(call));
        Payload payload = Payload.newBuilder().setFormat(Format.FORMAT_OPENAI_CHAT).setJson(json).build();
        CallToolResponse reply = palimpsest.callTool(
                CallToolRequest.newBuilder().setSession(SESSION).setPayload(payload).build());
        return MessageInput.newBuilder()
                .setPayload(payload.toBuilder().setJson(reply.getToolResultJson()))
                .build();
    }

    private static String answer(ContextServiceBlockingStub palimpsest, String text) throws Exception {
        OpenAIClient provider = OpenAIOkHttpClient.fromEnv();
        // The tools of Palimpsest, with which the model reads removed content.
        List<FunctionDefinition> offered = new ArrayList<>(List.of(READ_LOG));
        Set<String> own = new HashSet<>();
        for (ToolDefinition tool : palimpsest.listTools(ListToolsRequest.newBuilder()
                .setSession(SESSION).setFormat(Format.FORMAT_OPENAI_CHAT).build()).getToolsList()) {
            own.add(tool.getName());
            offered.add(FunctionDefinition.builder()
                    .name(tool.getName())
                    .description(tool.getDescription())
                    .parameters(JSON.readValue(tool.getInputSchemaJson().toByteArray(), FunctionParameters.class))
                    .build());
        }
        List<ChatCompletionMessageParam> array = new ArrayList<>();
        ByteString etag = ByteString.EMPTY;
        List<MessageInput> next = List.of(asInput(ChatCompletionUserMessageParam.builder().content(text).build()));
        while (true) {
            PrepareContextResponse view = palimpsest.prepareContext(PrepareContextRequest.newBuilder()
                    .setSession(SESSION).setTarget(TARGET).setKnownEtag(etag).addAllMessages(next).build());
            array.subList(view.getKeepMessages(), array.size()).clear();
            for (ByteString message : view.getMessagesJsonList()) {
                array.add(JSON.readValue(message.toByteArray(), ChatCompletionMessageParam.class));
            }
            etag = view.getEtag();
            ChatCompletionCreateParams.Builder request =
                    ChatCompletionCreateParams.builder().model(MODEL).messages(array);
            offered.forEach(request::addFunctionTool);
            ChatCompletion response = provider.chat().completions().create(request.build());
            // Appends the complete response. Palimpsest reads its usage, so token counts are exact afterwards.
            palimpsest.appendMessages(AppendMessagesRequest.newBuilder()
                    .setSession(SESSION).setTarget(TARGET).addMessages(asInput(response)).build());
            ChatCompletionMessage said = response.choices().get(0).message();
            if (said.toolCalls().isEmpty()) {
                return said.content().orElse("");
            }
            next = new ArrayList<>();
            for (var call : said.toolCalls().get()) {
                next.add(answerOf(palimpsest, own, call.asFunction()));
            }
        }
    }

    public static void main(String[] args) throws Exception {
        String address = variable("PALIMPSEST_ADDRESS", "127.0.0.1:50051");
        ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        System.out.println(answer(ContextServiceGrpc.newBlockingStub(channel), String.join(" ", args)));
        channel.shutdownNow();
        System.exit(0); // Threads of the SDK would keep the process alive for a minute.
    }
}
