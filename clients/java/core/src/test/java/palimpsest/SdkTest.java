package palimpsest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static palimpsest.testing.Provider.ANSWER;
import static palimpsest.testing.Provider.LOG;
import static palimpsest.testing.Provider.TURNS;

import com.anthropic.client.AnthropicClient;
import com.anthropic.client.okhttp.AnthropicOkHttpClient;
import com.anthropic.helpers.MessageAccumulator;
import com.anthropic.models.messages.ContentBlock;
import com.anthropic.models.messages.Message;
import com.anthropic.models.messages.MessageCreateParams;
import com.anthropic.models.messages.MessageParam;
import com.anthropic.models.messages.StopReason;
import com.anthropic.models.messages.Tool;
import com.anthropic.models.messages.Tool.InputSchema;
import com.anthropic.models.messages.ToolUnion;
import com.fasterxml.jackson.databind.JsonNode;
import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.JsonValue;
import com.openai.helpers.ChatCompletionAccumulator;
import com.openai.helpers.ResponseAccumulator;
import com.openai.models.FunctionDefinition;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionMessageParam;
import com.openai.models.chat.completions.ChatCompletionTool;
import com.openai.models.responses.FunctionTool;
import com.openai.models.responses.Response;
import com.openai.models.responses.ResponseCreateParams;
import com.openai.models.responses.ResponseInputItem;
import com.openai.models.responses.ResponseOutputItem;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import palimpsest.testing.Provider;
import palimpsest.testing.Server;

/** Model calls with the SDKs of Anthropic and OpenAI against the strict fake provider. */
class SdkTest {
    private static final Provider PROVIDER = Provider.shared();
    private static final AnthropicClient CLAUDE = AnthropicOkHttpClient.builder()
            .baseUrl(PROVIDER.url())
            .apiKey("key")
            .maxRetries(0)
            .build();
    private static final OpenAIClient GPT = OpenAIOkHttpClient.builder()
            .baseUrl(PROVIDER.url() + "/v1")
            .apiKey("key")
            .maxRetries(0)
            .build();
    private static final Map<String, ToolFunction> TOOLS = Map.of("read_log", input -> LOG);

    private Session context;
    private String model;

    @BeforeEach
    void name(TestInfo test) {
        String name = test.getTestMethod().orElseThrow().getName();
        model = "fake-" + name;
        context = Server.shared().connect().session("demo", name);
    }

    private MessageCreateParams.Builder claude() {
        return MessageCreateParams.builder()
                .model(model)
                .maxTokens(100)
                .system("Be brief.")
                .addUserMessage("Why did the build fail?")
                .addTool(Tool.builder()
                        .name("read_log")
                        .inputSchema(InputSchema.builder().build())
                        .build());
    }

    private ChatCompletionCreateParams.Builder chat() {
        return ChatCompletionCreateParams.builder()
                .model(model)
                .addSystemMessage("Be brief.")
                .addUserMessage("Why did the build fail?")
                .addFunctionTool(FunctionDefinition.builder().name("read_log").build());
    }

    /** Checks the three requests of a run. */
    private void check(String conversation) {
        assertEquals(List.of(200, 200, 200), PROVIDER.statuses(model));
        List<String> sent = PROVIDER.sent(model);
        assertTrue(sent.get(1).contains("palimpsest://"));
        assertTrue(sent.stream().allMatch(it -> it.length() < 40_000));
        // Only the search of the service has found the last line.
        assertFalse(sent.get(1).contains("disk full"));
        assertTrue(sent.get(2).contains("disk full"));
        assertTrue(conversation.length() > 3 * LOG.length());
        assertTrue(conversation.contains(ANSWER));
    }

    private static String text(Message message) {
        return message.content().stream()
                .flatMap(it -> it.text().stream())
                .map(it -> it.text())
                .reduce("", String::concat);
    }

    @Test
    void messagesOfAnthropic() {
        PROVIDER.script(model, TURNS);
        MessageCreateParams.Builder params = claude();
        SyncOptions options = new SyncOptions().cacheBreakpoints();
        Message response;
        do {
            response = context.send(params.build(), options, CLAUDE.messages()::create);
            context.answer(response, TOOLS, MessageParam.class).forEach(params::addMessage);
        } while (response.stopReason().equals(java.util.Optional.of(StopReason.TOOL_USE)));
        assertEquals(ANSWER, text(response));
        check(Json.tree(params.build()._body()).toString());
        assertTrue(PROVIDER.sent(model).get(2).contains("cache_control"));
        JsonNode system = PROVIDER.requests(model).get(2).path("body").path("system");
        assertTrue(system.isTextual() || system.path(0).has("cache_control"));
        // The usage of each response was sent with the next sync.
        assertEquals(
                2,
                context.messages()
                        .filter(it -> it.path("metadata").hasNonNull("usage"))
                        .count());
        assertTrue(context.sync(params.build()).outcome().matches("equal|extended"));
    }

    @Test
    void streamOfAnthropic() {
        PROVIDER.script(model, TURNS);
        MessageCreateParams.Builder params = claude();
        Message response;
        do {
            MessageAccumulator accumulator = MessageAccumulator.create();
            try (var events = context.send(params.build(), CLAUDE.messages()::createStreaming)) {
                events.stream().forEach(accumulator::accumulate);
            }
            response = accumulator.message();
            context.answer(response, TOOLS, MessageParam.class).forEach(params::addMessage);
        } while (response.content().stream().anyMatch(ContentBlock::isToolUse));
        assertEquals(ANSWER, text(response));
        check(Json.tree(params.build()._body()).toString());
    }

    @Test
    void chatCompletions() {
        PROVIDER.script(model, TURNS);
        ChatCompletionCreateParams.Builder params = chat();
        ChatCompletion response;
        do {
            response = context.send(params.build(), GPT.chat().completions()::create);
            context.answer(response, TOOLS, ChatCompletionMessageParam.class).forEach(params::addMessage);
        } while (response.choices().get(0).message().toolCalls().isPresent());
        assertEquals(ANSWER, response.choices().get(0).message().content().orElseThrow());
        check(Json.tree(params.build()._body()).toString());
        assertTrue(context.sync(params.build()).outcome().matches("equal|extended"));
    }

    @Test
    void streamOfChatCompletions() {
        PROVIDER.script(model, TURNS);
        ChatCompletionCreateParams.Builder params = chat();
        ChatCompletion response;
        do {
            ChatCompletionAccumulator accumulator = ChatCompletionAccumulator.create();
            try (var chunks = context.send(params.build(), GPT.chat().completions()::createStreaming)) {
                chunks.stream().forEach(accumulator::accumulate);
            }
            response = accumulator.chatCompletion();
            context.answer(response, TOOLS, ChatCompletionMessageParam.class).forEach(params::addMessage);
            // The accumulator of the SDK sets an empty list of calls.
        } while (!response.choices().get(0).message().toolCalls().orElseThrow().isEmpty());
        check(Json.tree(params.build()._body()).toString());
        assertTrue(context.sync(params.addUserMessage("And now?").build()).sendable());
    }

    @Test
    void asynchronousChatCompletions() {
        PROVIDER.script(model, TURNS);
        ChatCompletionCreateParams.Builder params = chat();
        ChatCompletion response;
        do {
            response = context.sendAsync(params.build(), GPT.async().chat().completions()::create)
                    .join();
            context.answer(response, TOOLS, ChatCompletionMessageParam.class).forEach(params::addMessage);
        } while (response.choices().get(0).message().toolCalls().isPresent());
        check(Json.tree(params.build()._body()).toString());
    }

    private ResponseCreateParams responses(List<ResponseInputItem> items) {
        return ResponseCreateParams.builder()
                .model(model)
                .instructions("Be brief.")
                .inputOfResponse(items)
                .store(false)
                .addTool(FunctionTool.builder()
                        .name("read_log")
                        .parameters(FunctionTool.Parameters.builder()
                                .putAdditionalProperty("type", JsonValue.from("object"))
                                .build())
                        .strict(false)
                        .build())
                .build();
    }

    private static List<ResponseInputItem> question() {
        Map<String, String> question = Map.of("role", "user", "content", "Why did the build fail?");
        return new ArrayList<>(List.of(Json.convert(Json.tree(question), ResponseInputItem.class)));
    }

    @Test
    void responsesOfOpenAi() {
        PROVIDER.script(model, TURNS);
        List<ResponseInputItem> items = question();
        Response response;
        do {
            response = context.send(responses(items), GPT.responses()::create);
            items.addAll(context.answer(response, TOOLS, ResponseInputItem.class));
        } while (response.output().stream().anyMatch(ResponseOutputItem::isFunctionCall));
        check(Json.tree(items).toString());
        assertTrue(context.sync(responses(items)).outcome().matches("equal|extended"));
    }

    @Test
    void streamOfResponses() {
        PROVIDER.script(model, TURNS);
        List<ResponseInputItem> items = question();
        Response response;
        do {
            ResponseAccumulator accumulator = ResponseAccumulator.create();
            try (var events = context.send(responses(items), GPT.responses()::createStreaming)) {
                events.stream().forEach(accumulator::accumulate);
            }
            response = accumulator.response();
            items.addAll(context.answer(response, TOOLS, ResponseInputItem.class));
        } while (response.output().stream().anyMatch(ResponseOutputItem::isFunctionCall));
        check(Json.tree(items).toString());
    }

    private void addLongConversation(MessageCreateParams.Builder params) {
        for (int n = 0; n < 30; n++) {
            params.addUserMessage("question " + n + " " + "some words ".repeat(400));
            params.addAssistantMessage("answer " + n);
        }
        params.addUserMessage("last question");
    }

    @Test
    void promptThatIsTooLong() {
        MessageCreateParams.Builder params = claude().model(model + "+window=20000");
        addLongConversation(params);
        try (var events = context.send(params.build(), CLAUDE.messages()::createStreaming)) {
            assertTrue(events.stream().count() > 0);
        }
        assertEquals(List.of(400, 200), PROVIDER.statuses(model));
        ChatCompletionCreateParams.Builder chat = chat().model(model + "+window=20000");
        for (int n = 0; n < 30; n++) {
            chat.addUserMessage("question " + n + " " + "some words ".repeat(400))
                    .addAssistantMessage("answer " + n);
        }
        chat.addUserMessage("last question");
        Session second = Server.shared().connect().session("demo", "promptThatIsTooLong.chat");
        second.sendAsync(chat.build(), GPT.async().chat().completions()::create).join();
        assertEquals(List.of(400, 200, 400, 200), PROVIDER.statuses(model));
        // Other errors of the provider reach the caller at once.
        MessageCreateParams rejected = claude().model(model + "+status=400").build();
        RuntimeException error = assertThrows(
                com.anthropic.errors.BadRequestException.class,
                () -> context.send(rejected, CLAUDE.messages()::create));
        assertFalse(Palimpsest.isTooLong(error));
        assertEquals(5, PROVIDER.statuses(model).size());
    }

    @Test
    void aPromptThatCannotBeShortenedHasTheExceptionOfTheProvider() {
        model += "+ptl=anthropic-output";
        MessageCreateParams params = claude().addUserMessage("Hello").build();
        Throwable error = assertThrows(
                com.anthropic.errors.BadRequestException.class, () -> context.send(params, CLAUDE.messages()::create));
        assertTrue(error.getMessage().contains("max_tokens` exceed context limit"), error.getMessage());
        assertEquals("PROMPT_TOO_LONG", ((ApiException) error.getSuppressed()[0]).reason());
        Throwable later = assertThrows(
                        CompletionException.class,
                        () -> context.sendAsync(params, CLAUDE.async().messages()::create)
                                .join())
                .getCause();
        assertTrue(later instanceof com.anthropic.errors.BadRequestException, later.toString());
        assertEquals("PROMPT_TOO_LONG", ((ApiException) later.getSuppressed()[0]).reason());
        assertEquals(2, PROVIDER.statuses(model).size());
    }

    @Test
    void compactionAndUndoInTheMiddleOfAConversation() {
        PROVIDER.script(model, "{'text': 'a'}", "{'text': 'b'}", "{'text': 'c'}");
        MessageCreateParams.Builder params = claude();
        addLongConversation(params);
        for (Runnable change : List.<Runnable>of(() -> context.compact(), () -> context.undo(), () -> {})) {
            Message response = context.send(params.build(), CLAUDE.messages()::create);
            context.answer(response, TOOLS, MessageParam.class).forEach(params::addMessage);
            params.addUserMessage("go on");
            change.run();
        }
        PROVIDER.assertCompactedAndUndone(model);
    }

    @Test
    void exceptionsOfToolsReachTheModel() {
        PROVIDER.script(model, "{'calls': [{'name': 'broken', 'input': {'path': '/x'}}, {'name': 'read_log'}]}");
        MessageCreateParams params = claude().addTool(Tool.builder()
                        .name("broken")
                        .inputSchema(InputSchema.builder().build())
                        .build())
                .build();
        Message response = context.send(params, new SyncOptions().withoutReadBack(), CLAUDE.messages()::create);
        Map<String, ToolFunction> broken = Map.of("broken", input -> {
            throw new java.io.IOException("no file " + input.path("path").asText());
        });
        // The warnings with the exceptions would fill the output of the tests.
        Logger logger = Logger.getLogger("palimpsest");
        logger.setLevel(Level.OFF);
        JsonNode results = context.answer(response, broken).get(1).path("content");
        assertEquals("IOException: no file /x", results.path(0).path("content").asText());
        assertTrue(results.path(0).path("is_error").asBoolean());
        assertEquals(
                "NoSuchElementException: no tool has the name read_log",
                results.path(1).path("content").asText());
        assertEquals(
                1, PROVIDER.requests(model).get(0).path("body").path("tools").size() - 1);
    }

    @Test
    void anArrayThatIsNotSendableIsNotSent() {
        MessageCreateParams params = claude().addAssistantMessage("It").build();
        NotSendableException error =
                assertThrows(NotSendableException.class, () -> context.send(params, CLAUDE.messages()::create));
        assertEquals("ends_with_assistant", error.reason());
        assertTrue(PROVIDER.requests(model).isEmpty());
    }

    @Test
    void theLoopWithoutHelper() {
        PROVIDER.script(model, TURNS);
        ChatCompletionCreateParams.Builder params = chat();
        context.tools(Format.OPENAI_CHAT, ChatCompletionTool.class).forEach(params::addTool);
        while (true) {
            View<ChatCompletionCreateParams> view = context.sync(params.build());
            var message = GPT.chat()
                    .completions()
                    .create(view.request())
                    .choices()
                    .get(0)
                    .message();
            params.addMessage(message);
            if (message.toolCalls().isEmpty()) {
                break;
            }
            for (var call : message.toolCalls().get()) {
                JsonNode result = context.isOwn(call)
                        ? context.runTool(call)
                        : Json.tree(Map.of(
                                "role",
                                "tool",
                                "tool_call_id",
                                call.asFunction().id(),
                                "content",
                                LOG));
                params.addMessage(Json.convert(result, ChatCompletionMessageParam.class));
            }
        }
        check(Json.tree(params.build()._body()).toString());
        List<ToolUnion> tools = context.tools(Format.ANTHROPIC_MESSAGES, ToolUnion.class);
        assertTrue(tools.stream().allMatch(ToolUnion::isTool));
    }
}
