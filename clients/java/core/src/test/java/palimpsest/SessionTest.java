package palimpsest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import palimpsest.testing.Provider;
import palimpsest.testing.Server;

/** Every method of a session against a real server. */
class SessionTest {
    private final Palimpsest client = Server.shared().connect();
    private Session context;

    @BeforeEach
    void name(TestInfo test) {
        context = client.session("demo", test.getTestMethod().orElseThrow().getName());
    }

    private static Map<String, Object> user(String text) {
        return Map.of("role", "user", "content", text);
    }

    private static Map<String, Object> assistant(String text) {
        return Map.of("role", "assistant", "content", text);
    }

    private static List<Object> turns(int count, int words) {
        List<Object> turns = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            turns.add(n % 2 == 0 ? user("question " + n + " " + "word ".repeat(words)) : assistant("answer " + n));
        }
        turns.add(user("last question"));
        return turns;
    }

    private static Map<String, Object> body(Object messages) {
        return Map.of("model", "claude-fake", "messages", messages);
    }

    @Test
    void aViewHasTheBodyWithItsArray() {
        ObjectNode body = (ObjectNode) Json.tree(body(List.of(user("Why did the build fail?"))));
        body.put("system", "Be brief.").put("max_tokens", 100);
        ObjectNode before = body.deepCopy();
        View<ObjectNode> view = context.sync(body);
        assertTrue(view.sendable());
        assertEquals("", view.notSendableReason());
        assertEquals("new", view.outcome());
        assertEquals(context.name(), view.session());
        assertEquals(before, body);
        assertEquals(Json.array(view.messages()), view.request().get("messages"));
        assertEquals("Be brief.", view.request().path("system").asText());
        assertEquals(100, view.request().path("max_tokens").asInt());
        assertTrue(view.messages().toString().contains("Why did the build fail?"));
        assertTrue(view.tokens().path("total_tokens").asInt() > 0);
        assertEquals("normal", view.budget().path("state").asText());
        assertEquals("window_assumed", view.warnings().get(0).path("code").asText());
        assertFalse(view.etag().isEmpty());
        assertTrue(view.revision() > 0);
        assertTrue(view.reply().has("level_reports"));
        assertEquals(Json.list(view.reply().path("level_reports")), view.levelReports());
        View<ObjectNode> repeated = context.sync(body);
        assertEquals("equal", repeated.outcome());
        assertEquals(view.messages(), repeated.messages());
        Map<String, Object> map =
                context.sync(body(List.of(user("Why did the build fail?")))).request();
        assertTrue(map.get("messages") instanceof List<?>);
        assertThrows(IllegalArgumentException.class, () -> context.sync("text"));
    }

    @Test
    void eachWarningOfASessionIsLoggedOnce() {
        List<String> logged = new CopyOnWriteArrayList<>();
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord record) {
                logged.add(record.getMessage());
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger logger = Logger.getLogger("palimpsest");
        logger.addHandler(handler);
        try {
            // Adapters open a session for each model call.
            IntStream.range(0, 3).forEach(n -> client.session("demo", "warned").sync(body(List.of(user("Hello.")))));
        } finally {
            logger.removeHandler(handler);
        }
        List<String> own =
                logged.stream().filter(it -> it.contains("sessions/warned:")).toList();
        assertEquals(1, own.size());
        assertTrue(own.get(0).endsWith("(window_assumed)"), own.get(0));
    }

    @Test
    void responsesHaveAnInput() {
        View<Map<String, Object>> view = context.sync(Map.of("model", "gpt-fake", "input", "hello"));
        assertTrue(view.request().get("input").toString().contains("hello"));
        Map<String, String> stored = Map.of("model", "gpt-fake", "input", "hello", "previous_response_id", "resp_1");
        assertThrows(IllegalArgumentException.class, () -> context.sync(stored));
    }

    @Test
    void openAiArraysKeepTheirSystemMessages() {
        Map<String, String> system = Map.of("role", "system", "content", "Be brief.");
        Session chat = client.session("demo", "systemMessages", Format.OPENAI_CHAT);
        View<Map<String, Object>> view = chat.sync(body(List.of(system, user("hello"))));
        assertEquals(2, view.messages().size());
        assertEquals(Json.tree(system), view.messages().get(0));
    }

    @Test
    void aReplyIsADeltaToTheLastView() {
        Session chat = client.session("demo", "delta", Format.OPENAI_CHAT);
        List<Object> messages = turns(4, 10);
        messages.add(0, Map.of("role", "system", "content", "Be brief."));
        chat.sync(body(messages)).messages().get(1).put("content", "a change of the caller");
        messages.add(assistant("yes"));
        messages.add(user("go on"));
        // A side request goes to a lane.
        assertNotEquals(
                chat.name(), chat.sync(body(List.of(user("Write a title.")))).session());
        assertEquals(0, chat.sync(body(messages)).reply().path("keep_messages").asInt());
        messages.set(0, Map.of("role", "system", "content", "Be verbose."));
        messages.add(assistant("yes"));
        messages.add(user("go on"));
        View<Map<String, Object>> view = chat.sync(body(messages));
        assertEquals(7, view.reply().path("keep_messages").asInt());
        assertEquals(2, view.reply().path("messages").size());
        Session fresh = client.session("demo", "delta", Format.OPENAI_CHAT);
        assertEquals(fresh.sync(body(messages)).messages(), view.messages());
        assertEquals("Be verbose.", view.messages().get(0).path("content").asText());
    }

    @Test
    void thinkingStaysInTheViewIfTheRequestEnablesIt() {
        Map<String, String> thought = Map.of("type", "thinking", "thinking", "Hm.", "signature", "abc");
        Map<String, Object> call = Map.of("type", "tool_use", "id", "t1", "name", "read_log", "input", Map.of());
        Map<String, String> result = Map.of("type", "tool_result", "tool_use_id", "t1", "content", "ok");
        List<Object> messages = List.of(
                user("a"),
                Map.of("role", "assistant", "content", List.of(thought, call)),
                Map.of("role", "user", "content", List.of(result)));
        Map<String, Object> thinking = Map.of("type", "enabled", "budget_tokens", 1_024);
        View<Map<String, Object>> view =
                context.sync(Map.of("model", "claude-fake", "thinking", thinking, "messages", messages));
        assertEquals(Json.tree(thought), view.messages().get(1).path("content").path(0));
    }

    @Test
    void aLargeResultIsReplacedAndReadBack() {
        Session anthropic = client.session("demo", "largeResult", Format.ANTHROPIC_MESSAGES);
        List<ObjectNode> tools = anthropic.tools();
        assertTrue(tools.stream().anyMatch(it -> it.path("name").asText().equals("ReadToolResult")));
        Map<String, Object> call = Map.of("type", "tool_use", "id", "c1", "name", "read_log", "input", Map.of());
        Map<String, String> result = Map.of("type", "tool_result", "tool_use_id", "c1", "content", Provider.LOG);
        List<Object> messages = List.of(
                user("Why?"),
                Map.of("role", "assistant", "content", List.of(call)),
                Map.of("role", "user", "content", List.of(result)));
        View<Map<String, Object>> view = anthropic.sync(body(messages));
        assertTrue(view.messages().toString().length() < 5_000);
        Map<String, Object> input = Map.of("tool_use_id", "c1", "tail_lines", 1);
        Map<String, Object> read = Map.of("type", "tool_use", "id", "c2", "name", "ReadToolResult", "input", input);
        assertTrue(anthropic.isOwn(read));
        assertFalse(anthropic.isOwn(call));
        assertEquals(
                Json.tree(Map.of("type", "tool_result", "tool_use_id", "c2", "content", "disk full\n")),
                anthropic.runTool(read));
        assertTrue(anthropic.search("disk full").findAny().isPresent());
    }

    @ParameterizedTest
    @EnumSource
    void toolsAreDefinedInEachFormat(Format format) {
        assertTrue(context.tools(format).size() > 2);
        assertThrows(IllegalArgumentException.class, context::tools);
    }

    @Test
    void undoGoesBackStepByStep() {
        List<Object> messages = turns(10, 2_000);
        List<ObjectNode> first = context.sync(body(messages)).messages();
        assertEquals(
                "succeeded", context.compact().path("compaction").path("state").asText());
        messages.add(assistant("yes"));
        messages.addAll(turns(10, 2_000));
        List<ObjectNode> second = context.sync(body(messages)).messages();
        context.compact(Map.of());
        assertNotEquals(second, context.sync(body(messages)).messages());
        assertTrue(context.undo().isPresent());
        assertEquals(second, context.sync(body(messages)).messages());
        assertTrue(context.undo().isPresent());
        assertEquals(first, context.sync(body(messages)).messages().subList(0, first.size()));
        assertEquals(Optional.empty(), context.undo());
    }

    @Test
    void anUndoCanExceedTheLimitOfARequest() {
        Map<String, Integer> target = Map.of("window_tokens", 32_000, "max_output_tokens", 2_000);
        context.sync(body(turns(40, 1_500)), new SyncOptions().parameter("target", target));
        ApiException error = assertThrows(ApiException.class, context::undo);
        assertEquals("RESTORE_OVER_BLOCK", error.reason());
        ObjectNode restored = context.undo(Map.of("force", true)).orElseThrow();
        assertEquals("compacted", restored.at("/restored/undone/0/kind").asText());
    }

    @Test
    void aPromptThatIsTooLongIsShortened() {
        Map<String, Object> body = body(turns(20, 2_000));
        int before = context.sync(body).tokens().path("total_tokens").asInt();
        Exception rejection = new Exception("prompt is too long: 30000 tokens > 15000 maximum");
        View<Map<String, Object>> after = context.sync(body, new SyncOptions().tooLong(rejection));
        assertTrue(after.tokens().path("total_tokens").asInt() < before / 2);
        assertTrue(after.sendable());
        assertTrue(context.sync(body, new SyncOptions().tooLong(null)).sendable());
    }

    @Test
    void aViewOverTheReplyLimitIsStreamed() {
        Session chat = client.session("demo", "replyLimit", Format.OPENAI_CHAT);
        chat.create(Map.of("policy_overrides", Map.of("limits", Map.of("max_reply_bytes", 65_536))));
        List<Object> messages = turns(20, 2_000);
        messages.add(0, Map.of("role", "system", "content", "Be brief."));
        View<Map<String, Object>> view = chat.sync(body(messages));
        assertTrue(view.reply().path("view_omitted").asBoolean());
        assertEquals(messages.size(), view.messages().size());
        assertEquals(Json.tree(messages.get(0)), view.messages().get(0));
        assertTrue(view.messages().get(messages.size() - 1).toString().contains("last question"));
    }

    private static List<Long> ordinals(Stream<ObjectNode> messages) {
        return messages.map(it -> it.path("ordinal").asLong()).toList();
    }

    @Test
    void transcriptEventsAndMemoryAreReadable() {
        context.sync(body(turns(6, 10)), new SyncOptions().parameter("format", "anthropic_messages"));
        assertEquals(LongStream.rangeClosed(1, 7).boxed().toList(), ordinals(context.messages()));
        List<Long> descending =
                IntStream.rangeClosed(1, 7).mapToObj(n -> 8L - n).toList();
        assertEquals(descending, ordinals(context.messages(Map.of("page_size", 2, "descending", true))));
        Pattern pattern = Pattern.compile("QUESTION \\d", Pattern.CASE_INSENSITIVE);
        assertEquals(3, context.search(pattern).count());
        assertTrue(context.events().findFirst().orElseThrow().has("session_created"));
        List<ObjectNode> events = context.events("messages_appended").toList();
        assertEquals(1, events.size());
        try (Stream<ObjectNode> watched = context.watch("messages_appended")) {
            assertEquals(events.get(0), watched.iterator().next());
        }
        assertEquals("not_started", context.memory().path("state").asText());
    }

    @Test
    void aWatchReturnsEventsAsTheyHappenUntilItIsClosed() throws Exception {
        context.sync(body(turns(10, 2_000)));
        long revision = context.get().path("revision").asLong();
        Stream<ObjectNode> watched = context.watch(revision, "compacted");
        Iterator<ObjectNode> events = watched.iterator();
        CompletableFuture<ObjectNode> compaction = CompletableFuture.supplyAsync(context::compact);
        assertEquals("succeeded", events.next().path("compacted").path("state").asText());
        compaction.join();
        CompletableFuture<Boolean> waits = CompletableFuture.supplyAsync(events::hasNext);
        Thread.sleep(50);
        watched.close();
        assertFalse(waits.join());
    }

    @Test
    void sessionsAreListedChangedAndDeleted() {
        List<Session> sessions = List.of(client.session("list", "first"), client.session("list", "second"));
        sessions.forEach(it -> it.sync(body(List.of(user("hello")))));
        ObjectNode updated = sessions.get(0).update(Map.of("title", "A title", "attributes", Map.of("team", "red")));
        assertEquals("A title", updated.path("title").asText());
        assertEquals("A title", sessions.get(0).get().path("title").asText());
        List<String> names = client.sessions("list", Map.of("page_size", 1))
                .map(it -> it.path("name").asText())
                .sorted()
                .toList();
        assertEquals(sessions.stream().map(Session::name).toList(), names);
        sessions.get(0).delete();
        sessions.get(0).delete();
        assertEquals(1, client.sessions("list").count());
    }

    @Test
    void threadsShareAClient() {
        List<CompletableFuture<Boolean>> works = IntStream.range(0, 16)
                .mapToObj(n -> CompletableFuture.supplyAsync(() -> {
                    Session session = client.session("demo", "threads." + n);
                    return Stream.of(2, 4, 6)
                            .allMatch(it -> session.sync(body(turns(it, 10))).sendable());
                }))
                .toList();
        assertTrue(works.stream().allMatch(CompletableFuture::join));
    }

    @Test
    void asynchronousCallsRunOnTheExecutorOfTheConnection() {
        AtomicInteger works = new AtomicInteger();
        Executor executor = work -> {
            works.incrementAndGet();
            work.run();
            // The completed result has not interrupted the thread that completed it.
            assertFalse(Thread.interrupted());
        };
        Session session = Palimpsest.builder()
                .url(Server.shared().url())
                .executor(executor)
                .build()
                .session("demo", "executor", Format.ANTHROPIC_MESSAGES);
        String answer = session.sendAsync(body(turns(1, 10)), it -> CompletableFuture.completedFuture("an answer"))
                .join();
        assertEquals("an answer", answer);
        assertEquals(1, works.get());
        Session standard = client.session("demo", "standardExecutor", Format.ANTHROPIC_MESSAGES);
        // The provider rejects the first request, and the next one is sent by a thread of the connection.
        CompletableFuture<String> thread = standard.sendAsync(body(turns(20, 2_000)), new Function<>() {
            private boolean rejected;

            @Override
            public CompletableFuture<String> apply(Map<String, Object> request) {
                if (rejected) {
                    return CompletableFuture.completedFuture(
                            Thread.currentThread().getName());
                }
                rejected = true;
                return CompletableFuture.failedFuture(
                        new IllegalStateException("prompt is too long: 30000 tokens > 15000 maximum"));
            }
        });
        assertEquals("palimpsest", thread.join());
    }

    @Test
    void aCancelledCallSendsNothingMore() {
        List<Runnable> queue = new ArrayList<>();
        Session session = Palimpsest.builder()
                .url(Server.shared().url())
                .executor(queue::add)
                .build()
                .session("demo", "cancelled", Format.ANTHROPIC_MESSAGES);
        AtomicInteger calls = new AtomicInteger();
        Function<Map<String, Object>, CompletableFuture<String>> model = it -> {
            calls.incrementAndGet();
            return new CompletableFuture<>();
        };
        // Before its sync: a late sync would rewind the session to an earlier array.
        session.sendAsync(body(turns(2, 10)), model).cancel(true);
        queue.remove(0).run();
        assertEquals("new", session.sync(body(turns(4, 10))).outcome());

        // During the call of the model.
        CompletableFuture<String> call = new CompletableFuture<>();
        CompletableFuture<String> answered = session.sendAsync(body(turns(4, 10)), it -> call);
        queue.remove(0).run();
        answered.cancel(true);
        assertTrue(call.isCancelled());
        assertEquals(0, calls.get());
    }

    /** The ways in which a caller ends a result. */
    enum End {
        CANCEL(it -> it.cancel(true)),
        COMPLETE(it -> it.complete("")),
        FAIL(it -> it.completeExceptionally(new IllegalStateException())),
        TIMEOUT(it -> it.orTimeout(1, TimeUnit.MILLISECONDS));

        private final Consumer<CompletableFuture<String>> end;

        End(Consumer<CompletableFuture<String>> end) {
            this.end = end;
        }
    }

    @ParameterizedTest
    @EnumSource
    void theEndOfTheResultInterruptsTheSync(End end) throws Exception {
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        // Unlike a pool, this executor keeps the interrupt of its thread.
        Executor executor = work -> new Thread(() -> {
                    work.run();
                    interrupted.complete(Thread.interrupted());
                })
                .start();
        try (ServerSocket silent = new ServerSocket(0)) {
            Session session = Palimpsest.builder()
                    .url("http://127.0.0.1:" + silent.getLocalPort())
                    .timeout(Duration.ofHours(1))
                    .executor(executor)
                    .build()
                    .session("demo", "a", Format.ANTHROPIC_MESSAGES);
            CompletableFuture<String> answer =
                    session.sendAsync(body(turns(2, 10)), it -> CompletableFuture.completedFuture(""));
            try (Socket underWay = silent.accept()) {
                assertFalse(interrupted.isDone());
                end.end.accept(answer);
                assertFalse(interrupted.get(5, TimeUnit.MINUTES));
                assertTrue(underWay.isConnected());
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void theEndOfTheResultCancelsTheCallOfTheModel(End end) throws Exception {
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Session session = Palimpsest.builder()
                .url(Server.shared().url())
                .executor(work -> {
                    work.run();
                    interrupted.complete(Thread.interrupted());
                })
                .build()
                .session("demo", "ended" + end, Format.ANTHROPIC_MESSAGES);
        CompletableFuture<String> call = new CompletableFuture<>();
        CompletableFuture<String> answer = session.sendAsync(body(turns(2, 10)), it -> call);
        end.end.accept(answer);
        assertThrows(CancellationException.class, () -> call.get(5, TimeUnit.MINUTES));
        assertFalse(interrupted.get());
    }

    @Test
    void aLateSyncDoesNotChangeTheNextView() {
        Session late = client.session("demo", context.name().replaceAll(".*/", ""), Format.ANTHROPIC_MESSAGES);
        List<Object> whole = turns(4, 10);
        context.sync(body(whole.subList(0, 1)));
        context.sync(body(whole.subList(0, 3)));
        // A cancelled sync can reach the server after a later one. Its reply reaches nobody.
        late.sync(body(whole.subList(0, 1)));
        View<Map<String, Object>> view = context.sync(body(whole));
        assertEquals(context.name(), view.session());
        assertEquals(whole.size(), view.messages().size());
        assertEquals(late.sync(body(whole)).messages(), view.messages());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", ".", "..", "a/b", "a b", "-a", "Ä", "a\n"})
    void invalidIdsAreRejected(String id) {
        assertEquals(
                "The id \"" + id
                        + "\" of a session is invalid. Use at most 128 letters, digits, \"-\", \"_\" and \".\","
                        + " and begin with a letter or a digit.",
                assertThrows(IllegalArgumentException.class, () -> client.session("demo", id))
                        .getMessage());
        assertThrows(IllegalArgumentException.class, () -> client.session(id, "a"));
        assertThrows(IllegalArgumentException.class, () -> client.sessions(id));
    }

    @Test
    void idsHaveALimit() {
        String project = "a".repeat(64);
        String session = "0-_." + "Z".repeat(124);
        assertThrows(IllegalArgumentException.class, () -> client.session(project + "a", "a"));
        assertThrows(IllegalArgumentException.class, () -> client.session("demo", session + "a"));
        Session longest = client.session(project, session);
        assertEquals(
                "SESSION_NOT_FOUND",
                assertThrows(ApiException.class, longest::get).reason());
    }

    @Test
    void flagsOfAPatternAreSentOrRejected() {
        context.sync(body(List.of(Map.of("role", "user", "content", "One.\ntwo"))));
        for (Pattern found : List.of(
                Pattern.compile("^two$", Pattern.MULTILINE),
                Pattern.compile("one.*TWO", Pattern.DOTALL | Pattern.CASE_INSENSITIVE),
                Pattern.compile("one.", Pattern.LITERAL | Pattern.CASE_INSENSITIVE))) {
            assertEquals(1, context.search(found).count(), found.pattern());
        }
        assertEquals(0, context.search(Pattern.compile("One.two")).count());
        assertThrows(IllegalArgumentException.class, () -> context.search(Pattern.compile("o n e", Pattern.COMMENTS)));
    }

    @Test
    void aResponseOfNoFormatIsRejected() {
        for (Object response : List.of("text", Map.of("text", "an answer"))) {
            assertThrows(IllegalArgumentException.class, () -> context.answer(response, Map.of()));
        }
    }

    @Test
    void anInterruptOfAFunctionIsNoResult() {
        Map<String, Object> call = Map.of("type", "tool_use", "id", "c1", "name", "wait", "input", Map.of());
        assertThrows(
                PalimpsestException.class,
                () -> context.answer(Map.of("content", List.of(call)), Map.of("wait", input -> {
                    throw new InterruptedException();
                })));
        assertTrue(Thread.interrupted());
    }

    @Test
    void callsOfEachFormatAreRead() {
        JsonNode empty = Json.object();
        Map<String, String> function = Map.of("name", "f", "arguments", "no JSON");
        assertEquals(
                empty,
                ToolCall.of(Map.of("id", "a", "type", "function", "function", function))
                        .input());
        assertThrows(IllegalArgumentException.class, () -> ToolCall.of(Map.of("type", "text")));
    }
}
