package palimpsest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import palimpsest.testing.Server;

/** Errors, retries, deadlines and keys, against real faults. */
class ErrorTest {
    private static final Map<String, Object> BODY =
            Map.of("model", "claude-fake", "messages", List.of(Map.of("role", "user", "content", "hello")));

    @TempDir
    private Path folder;

    private static ApiException failure(Runnable call) {
        return assertThrows(ApiException.class, call::run);
    }

    @Test
    void errorsHaveAReasonAndDetails() {
        Session context = Server.shared().connect().session("demo", "missing");
        ApiException error = failure(context::get);
        assertEquals(404, error.status());
        assertEquals("NOT_FOUND", error.code());
        assertEquals("SESSION_NOT_FOUND", error.reason());
        assertEquals(Map.of("session", context.name()), error.metadata());
        assertTrue(error.getMessage().contains("does not exist"));
        assertTrue(error.toString().startsWith("palimpsest.ApiException: SESSION_NOT_FOUND: "));
        assertEquals(2, error.details().size());
        assertTrue(error.retryAfter().isEmpty());
        assertFalse(error.retryable());
        ApiException invalid = failure(() -> context.sync(BODY, new SyncOptions().parameter("nope", 1)));
        assertTrue(invalid.getMessage().contains("palimpsest.nope"));
        assertEquals(
                "SESSION_NOT_FOUND", failure(() -> context.watch().findFirst()).reason());
        Map<String, Object> call = Map.of("type", "tool_use", "id", "c1", "name", "nope", "input", Map.of());
        assertEquals("NOT_FOUND", failure(() -> context.runTool(call)).code());
    }

    private String key(Path keys, String right) throws Exception {
        List<String> command = List.of(
                Server.BINARY,
                "keys",
                "create",
                "--keys-file",
                keys.toString(),
                "--project",
                "demo",
                "--right",
                right,
                "--json");
        Process create = new ProcessBuilder(command).start();
        return Json.parse(create.getInputStream().readAllBytes()).path("key").asText();
    }

    @Test
    void keysHaveRights() throws Exception {
        Path keys = folder.resolve("keys.toml");
        String writer = key(keys, "read,write");
        String reader = key(keys, "read");
        Server server = Server.start(folder.resolve("data"), "--set", "auth.keys_file=" + keys);
        Palimpsest.Builder client = Palimpsest.builder().url(server.url());
        assertTrue(client.apiKey(writer).build().session("demo", "a").sync(BODY).sendable());
        Session readable = client.apiKey(reader).build().session("demo", "a");
        assertTrue(readable.get().path("revision").asLong() > 0);
        ApiException denied = failure(() -> readable.update(Map.of("title", "A title")));
        assertEquals("PERMISSION_DENIED", denied.code());
        assertEquals(Map.of("permission", "write"), denied.metadata());
        // A key that was read from a file ends with a line break.
        Session ofFile = client.apiKey(" " + reader + "\r\n").build().session("demo", "a");
        assertTrue(ofFile.get().path("revision").asLong() > 0);
        for (String invalid : List.of(reader + "\nx", reader + "ä")) {
            client.apiKey(invalid);
            String message =
                    assertThrows(IllegalArgumentException.class, client::build).getMessage();
            assertTrue(message.contains("PALIMPSEST_API_KEY"));
            assertFalse(message.contains(reader));
        }
        for (String wrong : new String[] {null, "wrong"}) {
            Session session = client.apiKey(wrong).build().session("demo", "a");
            assertEquals("UNAUTHENTICATED", failure(session::get).code());
        }
        server.kill();
    }

    @Test
    void aUrlCanBeHostAndPortAndCanHaveThePathOfTheApi() {
        String address = Server.shared().address();
        for (String url : List.of(address, " " + address + "/\n", "http://" + address + "/v1", address + "/v1/")) {
            Palimpsest client = Palimpsest.builder().url(url).build();
            assertTrue(client.session("demo", "urls").sync(BODY).sendable());
        }
        for (String url : List.of("", "localhost", "grpc://localhost:50051", "/api", ":50051")) {
            Palimpsest.Builder builder = Palimpsest.builder().url(url);
            String message =
                    assertThrows(IllegalArgumentException.class, builder::build).getMessage();
            assertTrue(message.contains("must begin with http:// or https://, or be host:port"), message);
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "<html>",
                "{}",
                "null",
                "{'error': {'message': 'Unknown request URL', 'type': 'invalid_request_error', 'code': null}}",
                "{'type': 'error', 'error': {'type': 'not_found_error', 'message': 'Not Found'}}"
            })
    void theErrorOfAnotherServerHasItsUrl(String answer) throws Exception {
        Map<Integer, String> texts = Map.of(
                404, "this is no Palimpsest server. Check the URL of the server.",
                503, "a proxy answered, or this is no Palimpsest server.");
        for (int status : texts.keySet()) {
            HttpServer other = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
            other.createContext("/", exchange -> {
                byte[] content = answer.replace('\'', '"').getBytes(StandardCharsets.UTF_8);
                exchange.sendResponseHeaders(status, content.length);
                exchange.getResponseBody().write(content);
                exchange.close();
            });
            other.start();
            String url = "http://127.0.0.1:" + other.getAddress().getPort();
            Session session =
                    Palimpsest.builder().url(url + "/").maxRetries(0).build().session("demo", "none");
            ApiException error = failure(() -> session.sync(BODY));
            other.stop(0);
            String response = "The response from " + url + " has the HTTP status " + status;
            assertEquals(response + " and no error of Palimpsest: " + texts.get(status), error.getMessage());
            assertEquals(status, error.status());
        }
    }

    @Test
    void callsWaitForAServerThatRestarts() {
        Path data = folder.resolve("data");
        Server server = Server.start(data);
        Session context = server.connect().session("demo", "a");
        View<Map<String, Object>> view = context.sync(BODY);
        CompletableFuture<ObjectNode> watched;
        try (Stream<ObjectNode> events = context.watch("session_updated")) {
            var iterator = events.iterator();
            watched = CompletableFuture.supplyAsync(iterator::next);
            server.stop();
            CompletableFuture<Server> restarted = CompletableFuture.supplyAsync(() -> {
                assertFalse(watched.isDone());
                return Server.restart(server, data);
            });
            assertEquals(view.messages(), context.sync(BODY).messages());
            context.update(Map.of("title", "after the restart"));
            assertTrue(watched.join().has("session_updated"));
            restarted.join().kill();
        }
    }

    @Test
    void anUnreachableServerFailsAtTheDeadline() {
        Palimpsest client = Palimpsest.builder()
                .url("http://127.0.0.1:9")
                .timeout(Duration.ofMillis(500))
                .build();
        ApiException error = failure(() -> client.session("demo", "a").get());
        assertEquals("UNAVAILABLE", error.code());
        assertEquals("", error.reason());
        assertTrue(error.retryable());
    }

    @Test
    void anExceededRateIsRetriedAfterItsDelay() throws Exception {
        Path config = folder.resolve("palimpsest.toml");
        Files.writeString(config, "[projects.demo.quotas]\nrequests_per_second = 1\n");
        Server server = Server.start(folder.resolve("data"), "--config", config.toString());
        Session context = server.connect().session("demo", "a");
        Session impatient = context.withMaxRetries(0);
        // Parallel calls exceed the rate on a machine of any speed.
        List<CompletableFuture<View<Map<String, Object>>>> calls = Stream.generate(
                        () -> CompletableFuture.supplyAsync(() -> impatient.sync(BODY)))
                .limit(50)
                .toList();
        ApiException error = null;
        for (CompletableFuture<?> call : calls) {
            error = (ApiException) call.handle((it, failed) -> failed == null ? null : failed.getCause())
                    .join();
            if (error != null) {
                break;
            }
        }
        assertEquals("REQUEST_RATE_EXCEEDED", error.reason());
        assertTrue(error.retryAfter().isPresent());
        assertTrue(error.retryable());
        assertTrue(context.sync(BODY).sendable());
        server.kill();
    }

    @Test
    void aDeadlineEndsACall() {
        Session context = Server.shared().connect().session("demo", "deadline");
        Map<String, String> message = Map.of("role", "user", "content", "some words ".repeat(200_000));
        Map<String, Object> large = Map.of("model", "claude-fake", "messages", List.of(message));
        ApiException error =
                failure(() -> context.withTimeout(Duration.ofMillis(1)).sync(large));
        assertEquals("DEADLINE_EXCEEDED", error.code());
        assertTrue(context.sync(large).sendable());
    }

    @Test
    void aServerThatDoesNotAnswerFailsAtTheDeadline() {
        Server server = Server.start(folder.resolve("data"));
        server.signal("STOP");
        Session context = server.connect().session("demo", "a").withTimeout(Duration.ofMillis(500));
        assertEquals("DEADLINE_EXCEEDED", failure(() -> context.sync(BODY)).code());
        server.kill();
    }

    @Test
    void anInterruptEndsACall() {
        Server server = Server.start(folder.resolve("data"));
        server.signal("STOP");
        Session context = server.connect().session("demo", "a");
        Thread.currentThread().interrupt();
        assertThrows(PalimpsestException.class, () -> context.sync(BODY));
        assertTrue(Thread.interrupted());
        server.kill();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "prompt is too long: 210000 tokens > 200000 maximum | true",
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000 | true",
                "This model's maximum context length is 8192 tokens. | true",
                "Your input exceeds the context window of this model. | true",
                "Input is too long for requested model. | true",
                "The input token count (9) exceeds the maximum number of tokens allowed (8) | true",
                "messages.0.content: Field required | false",
                "rate limit exceeded | false"
            })
    void rejectionsAsTooLongAreRecognized(String text, boolean expected) {
        assertEquals(expected, Palimpsest.isTooLong(new IllegalStateException(new Exception(text))));
    }
}
