package palimpsest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import palimpsest.testing.Server;

/** A watch whose connections end. */
class WatchTest {
    private static final long IDLE_MS = 600;

    /** Passes a watch on, and ends the connection some time after three lines. */
    private static void threeLines(HttpExchange exchange) throws IOException {
        URI uri = URI.create(Server.shared().url() + exchange.getRequestURI());
        try (exchange;
                var lines = new BufferedReader(
                        new InputStreamReader(uri.toURL().openConnection().getInputStream()))) {
            exchange.sendResponseHeaders(200, 0);
            for (int n = 0; n < 3; n++) {
                exchange.getResponseBody().write((lines.readLine() + "\n").getBytes());
                exchange.getResponseBody().flush();
            }
            Thread.sleep(IDLE_MS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void aWatchResumesAfterAnIdleConnectionWithoutRepeatedEvents() throws IOException {
        Session direct = Server.shared().connect().session("demo", "threeLines");
        Map<String, Object> call = Map.of("type", "tool_use", "id", "c1", "name", "read_log", "input", Map.of());
        // The open call is closed in the revision that serves the view: a watch can end between its two events.
        List<Object> messages = List.of(
                Map.of("role", "user", "content", "one"),
                Map.of("role", "assistant", "content", List.of(call)),
                Map.of("role", "user", "content", "two"));
        direct.sync(Map.of("model", "claude-fake", "messages", messages));
        direct.update(Map.of("title", "A title"));
        HttpServer proxy = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        ExecutorService threads = Executors.newCachedThreadPool();
        proxy.setExecutor(threads);
        proxy.createContext("/", WatchTest::threeLines);
        proxy.start();
        // Each connection lasts longer than the time for retries, which begins with the end of the connection.
        Session proxied = Palimpsest.builder()
                .url("http://127.0.0.1:" + proxy.getAddress().getPort())
                .timeout(Duration.ofMillis(IDLE_MS - 100))
                .build()
                .session("demo", "threeLines");
        List<ObjectNode> recorded = direct.events().toList();
        try (Stream<ObjectNode> watched = proxied.watch()) {
            assertEquals(recorded, watched.limit(recorded.size()).toList());
        } finally {
            proxy.stop(0);
            threads.shutdownNow();
        }
    }

    @Test
    void aPageOfAProxyHasTheCodeOfItsStatus() throws IOException {
        HttpServer proxy = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        proxy.createContext("/", exchange -> {
            try (exchange) {
                byte[] page = "<html>\n<body>\nno such page\n".getBytes();
                exchange.sendResponseHeaders(404, page.length);
                exchange.getResponseBody().write(page);
            }
        });
        proxy.start();
        String url = "http://127.0.0.1:" + proxy.getAddress().getPort();
        Session session = Palimpsest.builder().url(url).build().session("demo", "a");
        try (Stream<ObjectNode> events = session.watch()) {
            ApiException error = assertThrows(ApiException.class, events::findFirst);
            assertEquals("NOT_FOUND", error.code());
            assertEquals(404, error.status());
        } finally {
            proxy.stop(0);
        }
    }
}
