package palimpsest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import palimpsest.testing.Server;

/** Views that are streamed because of their size, through a proxy that breaks streams. */
class LargeViewTest {
    private static final Map<String, Object> BODY = Map.of(
            "model", "claude-fake", "messages", List.of(Map.of("role", "user", "content", "words ".repeat(20_000))));

    private final HttpClient http = HttpClient.newHttpClient();
    /** The timeouts of the requests in milliseconds. */
    private final List<Long> timeouts = new CopyOnWriteArrayList<>();

    private HttpServer proxy;
    private String id;

    /** Answers a request for a stream. */
    private interface Break {
        /** Returns true if it has answered. */
        boolean answer(HttpExchange exchange) throws IOException;
    }

    private Break streams;

    @BeforeEach
    void start(TestInfo test) throws IOException {
        proxy = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        proxy.createContext("/", this::forward);
        proxy.start();
        id = test.getTestMethod().orElseThrow().getName();
        Session direct = Server.shared().connect().session("largeView", id);
        direct.create(Map.of("policy_overrides", Map.of("limits", Map.of("max_reply_bytes", 65_536))));
    }

    /** Returns the session of the test. It holds no view yet. */
    private Session context() {
        return Palimpsest.builder()
                .url("http://127.0.0.1:" + proxy.getAddress().getPort())
                .build()
                .session("largeView", id, Format.ANTHROPIC_MESSAGES);
    }

    @AfterEach
    void stop() {
        proxy.stop(0);
    }

    private void forward(HttpExchange exchange) throws IOException {
        try (exchange) {
            timeouts.add(Long.valueOf(exchange.getRequestHeaders().getFirst("connect-timeout-ms")));
            byte[] body = exchange.getRequestBody().readAllBytes();
            // Time passes between the requests of a sync.
            Thread.sleep(100);
            if (exchange.getRequestURI().getPath().endsWith(":stream") && streams.answer(exchange)) {
                return;
            }
            var response = http.send(
                    HttpRequest.newBuilder(URI.create(Server.shared().url() + exchange.getRequestURI()))
                            .header("content-type", "application/json")
                            .POST(BodyPublishers.ofByteArray(body))
                            .build(),
                    BodyHandlers.ofByteArray());
            exchange.sendResponseHeaders(response.statusCode(), response.body().length);
            exchange.getResponseBody().write(response.body());
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
    }

    @Test
    void aStreamHasTheOtherAttemptsOfItsSync() {
        streams = exchange -> {
            if (timeouts.size() > 3) {
                return false;
            }
            // The first stream has no status of success, and the second one no lines.
            exchange.sendResponseHeaders(timeouts.size() == 2 ? 503 : 200, -1);
            return true;
        };
        assertEquals(1, context().sync(BODY).messages().size());
        assertEquals(4, timeouts.size());
        for (int index = 1; index < timeouts.size(); index++) {
            assertTrue(timeouts.get(index) <= timeouts.get(index - 1) - 100, timeouts.toString());
        }
        timeouts.clear();
        assertThrows(ApiException.class, () -> context().withMaxRetries(1).sync(BODY));
        assertEquals(3, timeouts.size());
    }

    @Test
    void aStreamThatDoesNotEndFailsAtTheDeadline() {
        streams = exchange -> {
            exchange.sendResponseHeaders(200, 0);
            while (true) {
                // Ends with an exception when the client closes the connection.
                exchange.getResponseBody().write("{\"messages\":[]}\n".getBytes());
                exchange.getResponseBody().flush();
            }
        };
        Session impatient = context().withTimeout(Duration.ofSeconds(2));
        ApiException error = assertTimeoutPreemptively(
                Duration.ofMinutes(5), () -> assertThrows(ApiException.class, () -> impatient.sync(BODY)));
        assertEquals("DEADLINE_EXCEEDED", error.code());
    }
}
