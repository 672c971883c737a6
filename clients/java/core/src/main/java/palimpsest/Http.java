package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpResponse.BodySubscribers;
import java.net.http.HttpTimeoutException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** HTTP requests with deadlines and retries. Threads can share it. */
final class Http {
    /** The connection must outlive the deadline, so that the server can report a passed deadline itself. */
    static final long GRACE_MS = 500;
    /** A watch sends a heartbeat every 30 seconds, so a longer silence is a broken connection. */
    static final long SILENCE_MS = 90_000;

    private final HttpClient client;
    private final String url;
    private final String apiKey;

    Http(HttpClient client, String url, String apiKey) {
        this.client = client;
        this.url = url;
        this.apiKey = apiKey;
    }

    /** Returns the JSON of the answer. Retries errors that the contract calls retryable. */
    ObjectNode send(Request request, Options options) {
        return send(request, new Attempts(options));
    }

    /** Returns the JSON of the answer. Other requests of the same call can share its attempts. */
    ObjectNode send(Request request, Attempts attempts) {
        while (true) {
            try {
                long timeout = attempts.remainingMs();
                HttpResponse<byte[]> response = exchange(request, timeout, BodyHandlers.ofByteArray());
                return parsed(response.statusCode(), response.body());
            } catch (ApiException error) {
                attempts.waitAfter(error);
            }
        }
    }

    /** Returns the elements of a stream that ends at the deadline of a call. Null is a watch, which has no deadline. */
    Lines lines(Request request, Attempts attempts) {
        Lines lines = new Lines(attempts);
        HttpResponse<byte[]> response = exchange(
                request,
                attempts == null ? 0 : attempts.remainingMs(),
                head -> head.statusCode() == 200 ? lines : BodySubscribers.ofByteArray());
        if (response.statusCode() != 200) {
            throw failure(response.statusCode(), json(response.body()));
        }
        return lines;
    }

    private <B> HttpResponse<B> exchange(Request request, long timeoutMs, BodyHandler<B> handler) {
        CompletableFuture<HttpResponse<B>> future = client.sendAsync(http(request, timeoutMs), handler);
        try {
            // The timeout of an HttpRequest ends with the head of the answer. This one includes the body.
            return future.get(timeoutMs == 0 ? SILENCE_MS : timeoutMs + GRACE_MS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            throw ApiException.ofConnection("DEADLINE_EXCEEDED", error);
        } catch (ExecutionException error) {
            throw failure(error.getCause());
        } catch (InterruptedException error) {
            throw PalimpsestException.interrupted(error);
        } finally {
            future.cancel(true);
        }
    }

    static RuntimeException failure(Throwable cause) {
        if (!(cause instanceof IOException)) {
            return cause instanceof RuntimeException error ? error : new IllegalStateException(cause);
        }
        boolean passed = cause instanceof HttpTimeoutException && !(cause instanceof HttpConnectTimeoutException);
        return ApiException.ofConnection(passed ? "DEADLINE_EXCEEDED" : "UNAVAILABLE", cause);
    }

    private HttpRequest http(Request request, long timeoutMs) {
        BodyPublisher body = request.body() == null
                ? BodyPublishers.noBody()
                : BodyPublishers.ofByteArray(Json.bytes(request.body()));
        HttpRequest.Builder builder = HttpRequest.newBuilder(URI.create(url + "/v1" + request.target()))
                .method(request.method(), body)
                .header("content-type", "application/json")
                .header("accept", "application/json, application/x-ndjson");
        if (timeoutMs > 0) {
            builder.header("connect-timeout-ms", Long.toString(timeoutMs));
        }
        if (apiKey != null) {
            builder.header("authorization", "Bearer " + apiKey);
        }
        return builder.build();
    }

    private ObjectNode parsed(int status, byte[] text) {
        JsonNode body = text.length == 0 ? Json.object() : json(text);
        if (status != 200 || !(body instanceof ObjectNode object)) {
            throw failure(status, body);
        }
        return object;
    }

    private ApiException failure(int status, JsonNode body) {
        return ApiException.isOfService(body) ? ApiException.of(body) : ApiException.ofOtherServer(url, status);
    }

    /** Returns the JSON of a text. An answer of a proxy can have another format. */
    private static JsonNode json(byte[] text) {
        try {
            return Json.parse(text);
        } catch (IOException error) {
            return Json.object().missingNode();
        }
    }
}
