package palimpsest.langchain4j;

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
import dev.langchain4j.agent.tool.Tool;
import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.data.message.ChatMessage;
import dev.langchain4j.data.message.Content;
import dev.langchain4j.data.message.ImageContent;
import dev.langchain4j.data.message.TextContent;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.memory.ChatMemory;
import dev.langchain4j.memory.chat.MessageWindowChatMemory;
import dev.langchain4j.model.anthropic.AnthropicChatModel;
import dev.langchain4j.model.anthropic.AnthropicStreamingChatModel;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.model.openai.OpenAiStreamingChatModel;
import dev.langchain4j.service.AiServices;
import dev.langchain4j.service.MemoryId;
import dev.langchain4j.service.TokenStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import palimpsest.Palimpsest;
import palimpsest.Session;
import palimpsest.testing.JavaProgram;
import palimpsest.testing.Provider;
import palimpsest.testing.Server;

/** AI services of LangChain4j, with its models of Anthropic and OpenAI. */
class ContextTest {
    private static final Provider PROVIDER = Provider.shared();
    private static final Palimpsest CLIENT = Server.shared().connect();

    enum Api {
        ANTHROPIC,
        OPENAI;

        ChatModel model(String name) {
            return this == ANTHROPIC
                    ? AnthropicChatModel.builder()
                            .baseUrl(PROVIDER.url() + "/v1")
                            .apiKey("key")
                            .modelName(name)
                            .maxRetries(0)
                            .build()
                    : OpenAiChatModel.builder()
                            .baseUrl(PROVIDER.url() + "/v1")
                            .apiKey("key")
                            .modelName(name)
                            .maxRetries(0)
                            .build();
        }

        StreamingChatModel streaming(String name) {
            return this == ANTHROPIC
                    ? AnthropicStreamingChatModel.builder()
                            .baseUrl(PROVIDER.url() + "/v1")
                            .apiKey("key")
                            .modelName(name)
                            .build()
                    : OpenAiStreamingChatModel.builder()
                            .baseUrl(PROVIDER.url() + "/v1")
                            .apiKey("key")
                            .modelName(name)
                            .build();
        }
    }

    interface Agent {
        String answer(String text);
    }

    interface AgentWithIds {
        String answer(@MemoryId String id, @dev.langchain4j.service.UserMessage String text);
    }

    interface ContentAgent {
        String answer(@dev.langchain4j.service.UserMessage List<Content> contents);
    }

    interface StreamingAgent {
        TokenStream answer(String text);
    }

    /** The tools of the agent. */
    static final class Tools {
        @Tool(name = "read_log", value = "Reads the log of the build.")
        String readLog() {
            return LOG;
        }
    }

    private static <T> AiServices<T> services(Class<T> type, String name, ChatMemory memory) {
        return PalimpsestContext.of(CLIENT.session("langchain4j", name))
                .modelName(name)
                .addTo(AiServices.builder(type))
                .chatMemory(memory)
                .tools(new Tools());
    }

    private static ChatMemory memory(String id) {
        return MessageWindowChatMemory.builder()
                .id(id)
                .maxMessages(Integer.MAX_VALUE)
                .build();
    }

    private static String ask(StreamingAgent agent, String text) {
        StringBuilder texts = new StringBuilder();
        CompletableFuture<Boolean> end = new CompletableFuture<>();
        agent.answer(text)
                .onPartialResponse(texts::append)
                .onCompleteResponse(it -> end.complete(true))
                .onError(end::completeExceptionally)
                .start();
        end.join();
        return texts.toString();
    }

    private static void check(String model, ChatMemory memory) {
        assertEquals(List.of(200, 200, 200), PROVIDER.statuses(model));
        List<String> sent = PROVIDER.sent(model);
        assertTrue(sent.get(1).contains("palimpsest://"));
        assertTrue(sent.stream().allMatch(it -> it.length() < 40_000));
        assertFalse(sent.get(1).contains("disk full"));
        assertTrue(sent.get(2).contains("disk full"));
        assertTrue(memory.messages().toString().length() > 3 * LOG.length());
    }

    @ParameterizedTest
    @EnumSource
    void parallelCallsAndReadBack(Api api) {
        String model = "calls-" + api;
        PROVIDER.script(model, TURNS);
        ChatMemory memory = memory(model);
        Agent agent =
                services(Agent.class, model, memory).chatModel(api.model(model)).build();
        assertEquals(ANSWER, agent.answer("Why did the build fail?"));
        check(model, memory);
    }

    @ParameterizedTest
    @EnumSource
    void stream(Api api) {
        String model = "stream-" + api;
        PROVIDER.script(model, TURNS);
        ChatMemory memory = memory(model);
        StreamingAgent agent = services(StreamingAgent.class, model, memory)
                .streamingChatModel(api.streaming(model))
                .build();
        assertEquals("I look." + ANSWER, ask(agent, "Why did the build fail?"));
        check(model, memory);
    }

    @ParameterizedTest
    @EnumSource
    void tokensAreThoseOfTheProvider(Api api) {
        String model = "usage-" + api;
        String call = "{'calls': [{'name': 'read_log'}], " + USAGE + "}";
        PROVIDER.script(model, call, "{'text': 'a', " + USAGE + "}", call, "{'text': 'b'}");
        ChatMemory memory = memory(model);
        services(Agent.class, model, memory).chatModel(api.model(model)).build().answer("Why did the build fail?");
        assertEquals(USED_TOKENS, count(model, "reported_tokens"));
        ask(
                services(StreamingAgent.class, model, memory)
                        .streamingChatModel(api.streaming(model))
                        .build(),
                "Are you sure?");
        assertEquals(2 * USED_TOKENS, count(model, "reported_tokens"));
    }

    @Test
    void eachMemoryIdHasASession() {
        PROVIDER.script("ids", "{'text': 'a'}", "{'text': 'b'}", "{'text': 'c'}");
        AgentWithIds agent = PalimpsestContext.of(CLIENT, "langchain4j")
                .modelName("ids")
                .addTo(AiServices.builder(AgentWithIds.class))
                .chatModel(Api.OPENAI.model("ids"))
                .chatMemoryProvider(id -> memory(id.toString()))
                .build();
        agent.answer("one", "Hello.");
        agent.answer("two", "Hello.");
        agent.answer("one", "Why?");
        assertEquals(3, count("one", "messages"));
        assertEquals(1, count("two", "messages"));
    }

    private static int count(String session, String name) {
        JsonNode counts = CLIENT.session("langchain4j", session).get().path("counts");
        return counts.path(name).asInt();
    }

    @ParameterizedTest
    @EnumSource
    void compactionAndUndo(Api api) {
        String model = "compaction-" + api;
        PROVIDER.script(model, "{'text': 'a'}", "{'text': 'b'}", "{'text': 'c'}");
        ChatMemory memory = memory(model);
        for (int n = 0; n < 30; n++) {
            memory.add(UserMessage.from("question " + n + " " + "some words ".repeat(400)));
            memory.add(AiMessage.from("answer " + n));
        }
        Agent agent =
                services(Agent.class, model, memory).chatModel(api.model(model)).build();
        Session session = CLIENT.session("langchain4j", model);
        for (Runnable change : List.<Runnable>of(session::compact, session::undo, () -> {})) {
            agent.answer("go on");
            change.run();
        }
        PROVIDER.assertCompactedAndUndone(model);
    }

    @Test
    void imagesAreSentUnchanged() {
        String model = "images";
        PROVIDER.script(model, "{'text': 'a'}");
        String png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
        ContentAgent agent = services(ContentAgent.class, model, memory(model))
                .chatModel(Api.ANTHROPIC.model(model))
                .build();
        assertEquals(
                "a", agent.answer(List.of(TextContent.from("What is this?"), ImageContent.from(png, "image/png"))));
        assertTrue(PROVIDER.sent(model).get(0).contains(png));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "functions.read_log:0", "call_0", "a23456789012345678901234567890123456789012"})
    void callsWithAnyIdKeepTheirFields(String id) {
        Session session = CLIENT.session("langchain4j", "ids" + id.length());
        PalimpsestContext context = PalimpsestContext.of(session).modelName("gpt-5");
        List<ChatMessage> messages = new ArrayList<>(List.of(UserMessage.from("Why did the build fail?")));
        List<ChatMessage> shown = List.of();
        for (int round = 0; round < 3; round++) {
            ToolExecutionRequest call = ToolExecutionRequest.builder()
                    .id(id)
                    .name("read_log")
                    .arguments("{}")
                    .build();
            messages.add(AiMessage.builder()
                    .thinking("reason " + round)
                    .toolExecutionRequests(List.of(call))
                    .build());
            messages.add(ToolExecutionResultMessage.from(call, "result " + round));
            shown = context.apply(ChatRequest.builder().messages(messages).build(), "default")
                    .messages();
        }
        assertEquals(messages, shown);
    }

    @Test
    void aCallWithoutAMemoryIdFails() {
        Agent agent = PalimpsestContext.of(CLIENT, "langchain4j")
                .modelName("none")
                .addTo(AiServices.builder(Agent.class))
                .chatModel(Api.OPENAI.model("none"))
                .build();
        IllegalArgumentException error = assertThrows(IllegalArgumentException.class, () -> agent.answer("Hello."));
        assertTrue(error.getMessage().contains("@MemoryId"));
    }

    @Test
    void aContextWithoutAModelFails() {
        PalimpsestContext context = PalimpsestContext.of(CLIENT.session("langchain4j", "none"));
        ChatRequest request =
                ChatRequest.builder().messages(UserMessage.from("Hello.")).build();
        IllegalStateException error =
                assertThrows(IllegalStateException.class, () -> context.apply(request, "default"));
        assertTrue(error.getMessage().contains("modelName"));
        ChatRequest named = request.toBuilder().modelName("gpt-5").build();
        assertEquals(1, context.apply(named, "default").messages().size());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theToolsOfTheServiceAreOptional(boolean readBack) {
        String model = "readBack-" + readBack;
        PROVIDER.script(model, "{'text': 'a'}");
        PalimpsestContext context =
                PalimpsestContext.of(CLIENT.session("langchain4j", model)).modelName(model);
        Agent agent = (readBack ? context : context.withoutReadBack())
                .addTo(AiServices.builder(Agent.class))
                .chatModel(Api.OPENAI.model(model))
                .build();
        assertEquals("a", agent.answer("Hello."));
        assertEquals(readBack, PROVIDER.requests(model).get(0).toString().contains("SearchTranscript"));
    }

    @Test
    void theCodeOfThePageRuns(@TempDir Path folder) {
        PROVIDER.script("gpt-5-mini", "{'calls': [{'name': 'read_log'}]}", "{'text': '" + ANSWER + "'}");
        Server server = Server.start(folder.resolve("data"));
        Map<String, String> environment = Map.of(
                "PALIMPSEST_URL", server.url(), "OPENAI_BASE_URL", PROVIDER.url() + "/v1", "OPENAI_API_KEY", "key");
        JavaProgram page = new JavaProgram(Path.of("../../../docs/frameworks/langchain4j.md"));
        assertEquals(page.expected(), page.run(folder, environment));
        server.kill();
    }
}
