package palimpsest.springai;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static palimpsest.testing.Provider.ANSWER;
import static palimpsest.testing.Provider.LOG;
import static palimpsest.testing.Provider.TURNS;
import static palimpsest.testing.Provider.USAGE;
import static palimpsest.testing.Provider.USED_TOKENS;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.ai.anthropic.AnthropicChatModel;
import org.springframework.ai.anthropic.AnthropicChatOptions;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor;
import org.springframework.ai.chat.client.advisor.ToolCallingAdvisor;
import org.springframework.ai.chat.client.advisor.api.Advisor;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.chat.memory.MessageWindowChatMemory;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.messages.Message;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.chat.messages.UserMessage;
import org.springframework.ai.chat.metadata.ChatResponseMetadata;
import org.springframework.ai.chat.metadata.Usage;
import org.springframework.ai.chat.model.ChatModel;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.Generation;
import org.springframework.ai.content.Media;
import org.springframework.ai.openai.OpenAiChatModel;
import org.springframework.ai.openai.OpenAiChatOptions;
import org.springframework.ai.tool.annotation.Tool;
import palimpsest.ApiException;
import palimpsest.Format;
import palimpsest.Palimpsest;
import palimpsest.Session;
import palimpsest.testing.Provider;
import palimpsest.testing.Server;

/** The advisors in the chat client of Spring AI, with its models of Anthropic and OpenAI. */
class AdvisorTest {
    private static final Provider PROVIDER = Provider.shared();
    private static final Palimpsest CLIENT = Server.shared().connect();

    enum Api {
        ANTHROPIC,
        OPENAI;

        ChatModel model(String name) {
            return this == ANTHROPIC ? anthropic(AnthropicChatOptions.builder(), name) : openAi(name);
        }

        private static ChatModel openAi(String name) {
            return OpenAiChatModel.builder()
                    .options(OpenAiChatOptions.builder()
                            .baseUrl(PROVIDER.url() + "/v1")
                            .apiKey("key")
                            .model(name)
                            .maxRetries(0)
                            .build())
                    .build();
        }
    }

    private static ChatModel anthropic(AnthropicChatOptions.Builder options, String name) {
        return AnthropicChatModel.builder()
                .options(options.baseUrl(PROVIDER.url())
                        .apiKey("key")
                        .model(name)
                        .maxTokens(2_000)
                        .maxRetries(0)
                        .build())
                .build();
    }

    /** The tools of the agent. */
    static final class Tools {
        @Tool(name = "read_log", description = "Reads the log of the build.")
        String readLog() {
            return LOG;
        }
    }

    private static ChatClient client(ChatModel model, String conversation, Advisor... advisors) {
        return ChatClient.builder(model)
                .defaultSystem("Be brief.")
                .defaultTools(new Tools())
                .defaultAdvisors(PalimpsestAdvisors.of(CLIENT, "spring"))
                .defaultAdvisors(advisors)
                .defaultAdvisors(it -> it.param(ChatMemory.CONVERSATION_ID, conversation))
                .build();
    }

    private static Session session(String conversation) {
        return CLIENT.session("spring", conversation);
    }

    private static int count(String conversation, String name) {
        return session(conversation).get().path("counts").path(name).asInt();
    }

    private static void check(String model) {
        assertEquals(List.of(200, 200, 200), PROVIDER.statuses(model));
        List<String> sent = PROVIDER.sent(model);
        assertTrue(sent.get(1).contains("palimpsest://"));
        assertTrue(sent.stream().allMatch(it -> it.length() < 40_000));
        assertFalse(sent.get(1).contains("disk full"));
        assertTrue(sent.get(2).contains("disk full"));
    }

    @ParameterizedTest
    @EnumSource
    void parallelCallsAndReadBack(Api api) {
        String model = "calls-" + api;
        PROVIDER.script(model, TURNS);
        ChatClient client = client(api.model(model), model);
        assertEquals(ANSWER, client.prompt("Why did the build fail?").call().content());
        check(model);
        assertEquals(7, count(model, "messages"));
    }

    @ParameterizedTest
    @EnumSource
    void stream(Api api) {
        String model = "stream-" + api;
        PROVIDER.script(model, TURNS);
        ChatClient client = client(api.model(model), model);
        List<String> texts = client.prompt("Why did the build fail?").stream()
                .content()
                .collectList()
                .block();
        assertEquals("I look." + ANSWER, String.join("", texts));
        check(model);
    }

    @ParameterizedTest
    @EnumSource
    void tokensAreThoseOfTheProvider(Api api) {
        String model = "usage-" + api;
        String call = "{'calls': [{'name': 'read_log'}], " + USAGE + "}";
        PROVIDER.script(model, call, "{'text': 'a'}", call, "{'text': 'b'}");
        client(api.model(model), model).prompt("Why?").call().content();
        assertEquals(USED_TOKENS, count(model, "reported_tokens"));
        client(api.model(model), "stream-" + model).prompt("Why?").stream()
                .content()
                .blockLast();
        assertEquals(USED_TOKENS, count("stream-" + model, "reported_tokens"));
    }

    private static List<Message> longConversation() {
        List<Message> messages = new ArrayList<>();
        for (int n = 0; n < 30; n++) {
            messages.add(new UserMessage("question " + n + " " + "some words ".repeat(400)));
            messages.add(new AssistantMessage("answer " + n));
        }
        return messages;
    }

    @ParameterizedTest
    @EnumSource
    void compactionAndUndo(Api api) {
        String model = "compaction-" + api;
        PROVIDER.script(model, "{'text': 'a'}", "{'text': 'b'}", "{'text': 'c'}");
        ChatClient client = client(api.model(model), model);
        List<Message> messages = longConversation();
        for (Runnable change : List.<Runnable>of(
                () -> session(model).compact(), () -> session(model).undo(), () -> {})) {
            messages.add(new UserMessage("go on"));
            messages.add(new AssistantMessage(
                    client.prompt().messages(messages).call().content()));
            change.run();
        }
        PROVIDER.assertCompactedAndUndone(model);
    }

    @ParameterizedTest
    @EnumSource
    void promptThatIsTooLong(Api api) {
        String model = "long-" + api;
        ChatClient client = client(api.model(model + "+window=20000"), model);
        List<Message> messages = longConversation();
        messages.add(new UserMessage("go on"));
        assertFalse(client.prompt().messages(messages).call().content().isEmpty());
        assertEquals(List.of(400, 200), PROVIDER.statuses(model));
        ChatClient other = client(api.model(model + "+window=20000"), model + ".stream");
        Stream<String> texts =
                other.prompt().messages(messages).stream().content().toStream();
        assertTrue(texts.count() > 0);
        assertEquals(List.of(400, 200, 400, 200), PROVIDER.statuses(model));
    }

    @ParameterizedTest
    @EnumSource
    void aPromptThatCannotBeShortenedHasTheExceptionOfTheProvider(Api api) {
        String model = "short-" + api;
        ChatClient client = client(api.model(model + "+ptl=anthropic-output"), model);
        for (Executable call : List.<Executable>of(
                () -> client.prompt("Hello").call().content(),
                () -> client.prompt("Hello").stream().content().blockLast())) {
            Throwable error = assertThrows(RuntimeException.class, call);
            assertTrue(Palimpsest.isTooLong(error), error.toString());
            assertTrue(
                    Stream.of(error.getSuppressed())
                            .anyMatch(it -> it instanceof ApiException service
                                    && service.reason().equals("PROMPT_TOO_LONG")),
                    error.toString());
        }
        assertEquals(2, PROVIDER.statuses(model).size());
    }

    @ParameterizedTest
    @EnumSource
    void memoryOfTheWholeConversation(Api api) {
        String model = "memory-" + api;
        PROVIDER.script(
                model, "{'calls': [{'name': 'read_log'}, {'name': 'read_log'}]}", "{'text': 'a'}", "{'text': 'b'}");
        ChatMemory memory =
                MessageWindowChatMemory.builder().maxMessages(Integer.MAX_VALUE).build();
        Advisor advisor = MessageChatMemoryAdvisor.builder(memory)
                .order(ToolCallingAdvisor.DEFAULT_ORDER + 50)
                .build();
        ChatClient client = client(api.model(model), model, advisor);
        assertEquals("a", client.prompt("Why did the build fail?").call().content());
        assertEquals("b", client.prompt("Are you sure?").call().content());
        assertEquals(List.of(200, 200, 200), PROVIDER.statuses(model));
        String last = PROVIDER.sent(model).get(2);
        assertTrue(last.contains("palimpsest://"));
        assertTrue(last.contains("Why did the build fail?"));
        // The memory has the complete results.
        assertTrue(memory.get(model).toString().length() > 2 * LOG.length());
    }

    /** The view keeps the oldest messages, which the memory leaves out. */
    @Test
    void memoryWithALimit() {
        String model = "limit";
        PROVIDER.script(model, Stream.generate(() -> "{'text': 'a'}").limit(6).toArray(String[]::new));
        ChatMemory memory = MessageWindowChatMemory.builder().maxMessages(4).build();
        ChatClient client = client(
                Api.OPENAI.model(model),
                model,
                MessageChatMemoryAdvisor.builder(memory).build());
        for (int n = 0; n < 6; n++) {
            client.prompt("question " + n).call().content();
        }
        assertEquals(4, memory.get(model).size());
        assertTrue(PROVIDER.sent(model).get(5).contains("question 0"));
    }

    /** The view lacks the results of earlier prompts, which the memory leaves out. The transcript keeps them. */
    @Test
    void memoryWithoutToolResults() {
        String model = "results";
        PROVIDER.script(model, "{'calls': [{'name': 'read_log'}]}", "{'text': 'a'}", "{'text': 'b'}");
        ChatMemory memory = MessageWindowChatMemory.builder().build();
        ChatClient client = client(
                Api.OPENAI.model(model),
                model,
                MessageChatMemoryAdvisor.builder(memory).build());
        client.prompt("Why did the build fail?").call().content();
        client.prompt("Are you sure?").call().content();
        List<String> sent = PROVIDER.sent(model);
        assertTrue(sent.get(1).contains("palimpsest://"));
        assertFalse(sent.get(2).contains("palimpsest://"));
        assertTrue(sent.get(2).contains("Why did the build fail?"));
        assertEquals(1, session(model).search("disk full").count());
    }

    @Test
    void thinkingIsSentBackUnchanged() {
        String model = "claude-thinking";
        PROVIDER.script(model, "{'thinking': 'Hm.', 'calls': [{'name': 'read_log'}]}", "{'text': 'a'}");
        ChatModel thinking = anthropic(AnthropicChatOptions.builder().thinkingEnabled(1_024L), model);
        assertEquals("a", client(thinking, model).prompt("Why?").call().content());
        assertEquals(List.of(200, 200), PROVIDER.statuses(model));
        assertTrue(PROVIDER.sent(model).get(1).contains("signature"));
    }

    @Test
    void imagesAreSentUnchanged() {
        String model = "images";
        PROVIDER.script(model, "{'text': 'a'}");
        byte[] png = java.util.Base64.getDecoder()
                .decode(
                        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==");
        Media image = Media.builder().mimeType(Media.Format.IMAGE_PNG).data(png).build();
        String answer = client(Api.ANTHROPIC.model(model), model)
                .prompt()
                .user(it -> it.text("What is this?").media(image))
                .call()
                .content();
        assertEquals("a", answer);
        JsonNode content = PROVIDER.requests(model)
                .get(0)
                .path("body")
                .path("messages")
                .path(0)
                .path("content");
        assertTrue(content.toString().contains("iVBORw0KGgo"), content.toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "functions.read_log:0", "call_0", "a23456789012345678901234567890123456789012"})
    void callsWithAnyIdKeepTheirFields(String id) {
        Session session = CLIENT.session("spring", "ids" + id.length(), Format.OPENAI_CHAT);
        List<Message> messages = new ArrayList<>(List.of(new UserMessage("Why did the build fail?")));
        List<Message> shown = List.of();
        for (int round = 0; round < 3; round++) {
            messages.add(AssistantMessage.builder()
                    .content("")
                    .properties(Map.of("thinking", "reason " + round))
                    .toolCalls(List.of(new AssistantMessage.ToolCall(id, "function", "read_log", "{}")))
                    .build());
            messages.add(ToolResponseMessage.builder()
                    .responses(List.of(new ToolResponseMessage.ToolResponse(id, "read_log", "result " + round)))
                    .build());
            ChatMessages synced = new ChatMessages(messages);
            Map<String, Object> body = Map.of("model", "gpt-5", "messages", synced.json());
            shown = synced.of(session.sync(body).messages());
        }
        assertEquals(messages, shown);
    }

    /** The usage of a model that reports no prompt tokens. */
    private static final class PartOfUsage implements Usage {
        @Override
        public Integer getPromptTokens() {
            return null;
        }

        @Override
        public Integer getCompletionTokens() {
            return 7;
        }

        @Override
        public Object getNativeUsage() {
            return null;
        }
    }

    @Test
    void aResponseWithoutTokensSucceeds() {
        for (Usage usage : Arrays.asList(null, new PartOfUsage())) {
            ChatModel model = prompt -> new ChatResponse(
                    List.of(new Generation(new AssistantMessage("a"))),
                    ChatResponseMetadata.builder().usage(usage).build());
            String session = "tokens-" + (usage == null);
            assertEquals("a", client(model, session).prompt("Hello.").call().content());
            assertEquals(0, count(session, "reported_tokens"));
        }
    }

    @Test
    void aCallWithoutAConversationHasTheDefaultSession() {
        PROVIDER.script("default", "{'text': 'a'}", "{'text': 'b'}");
        ChatClient client = ChatClient.builder(Api.OPENAI.model("default"))
                .defaultAdvisors(PalimpsestAdvisors.of(CLIENT, "spring", "default"))
                .build();
        client.prompt("Hello.").call().content();
        client.prompt()
                .messages(new UserMessage("Hello."), new AssistantMessage("Hello."), new UserMessage("Why?"))
                .advisors(it -> it.param(ChatMemory.CONVERSATION_ID, "other"))
                .call()
                .content();
        assertEquals(1, count("default", "messages"));
        assertEquals(3, count("other", "messages"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theToolsOfTheServiceAreOptional(boolean readBack) {
        String model = "readBack-" + readBack;
        PROVIDER.script(model, "{'text': 'a'}");
        List<Advisor> advisors = readBack
                ? PalimpsestAdvisors.of(CLIENT, "spring", model)
                : PalimpsestAdvisors.withoutReadBack(CLIENT, "spring", model);
        ChatClient client = ChatClient.builder(Api.OPENAI.model(model))
                .defaultTools(new Tools())
                .defaultAdvisors(advisors)
                .build();
        assertEquals("a", client.prompt("Hello.").call().content());
        assertEquals(1, count(model, "messages"));
        assertEquals(readBack, PROVIDER.requests(model).get(0).toString().contains("SearchTranscript"));
    }

    @Test
    void aCallWithoutAConversationFails() {
        ChatClient client = ChatClient.builder(Api.OPENAI.model("none"))
                .defaultAdvisors(PalimpsestAdvisors.of(CLIENT, "spring"))
                .build();
        IllegalArgumentException error = assertThrows(
                IllegalArgumentException.class,
                () -> client.prompt("Hello.").call().content());
        assertTrue(error.getMessage().contains("CONVERSATION_ID"));
    }
}
