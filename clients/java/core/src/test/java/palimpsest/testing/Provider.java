package palimpsest.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.stream.StreamSupport;

/** The fake provider. Each test has a model of its own, so that its script answers no other test. */
public final class Provider extends Program {
    /** The answer of scripted models. */
    public static final String ANSWER = "Its disk was full.";
    /** A log that the service stores and replaces by a preview. Only its last line has the cause. */
    public static final String LOG = "compiled, and nothing was wrong\n".repeat(5_000) + "disk full\n";
    /** A turn with two parallel calls, one that reads the stored result back and repeats a call, and the answer. */
    public static final String[] TURNS = {
        "{'text': 'I look.', 'calls': [{'name': 'read_log'}, {'name': 'read_log'}]}",
        "{'calls': [{'name': 'SearchTranscript', 'input': {'pattern': 'disk full'}}, {'name': 'read_log'}]}",
        "{'text': '" + ANSWER + "'}"
    };
    /** A scripted usage of {@link #USED_TOKENS} tokens, with a cache. */
    public static final String USAGE = "'usage': {'input': 70000, 'read': 10000, 'written': 5000, 'output': 50}";

    public static final int USED_TOKENS = 85_050;

    private static final JsonMapper JSON = new JsonMapper();
    private static Provider shared;

    private final HttpClient http = HttpClient.newHttpClient();
    private final String url;

    private Provider() {
        super(System.getenv("PALIMPSEST_FAKE_PROVIDER"));
        url = line("http://");
    }

    /** Returns the provider that the tests of a process share. */
    public static synchronized Provider shared() {
        if (shared == null) {
            shared = new Provider();
        }
        return shared;
    }

    /** Returns the base URL of Anthropic's API. That of OpenAI has the suffix {@code /v1}. */
    public String url() {
        return url;
    }

    /** Scripts the next turns of a model, as JSON with single quotes. */
    public void script(String model, String... turns) {
        String body = "{'match': {'model': '" + model + "'}, 'turns': [" + String.join(", ", turns) + "]}";
        exchange(HttpRequest.newBuilder(URI.create(url + "/_control/script"))
                .POST(BodyPublishers.ofString(body.replace('\'', '"')))
                .build());
    }

    /** Asserts that a model had three requests: a long one, one after a compaction, and one after its undo. */
    public void assertCompactedAndUndone(String model) {
        assertEquals(List.of(200, 200, 200), statuses(model));
        List<Integer> sizes = sent(model).stream().map(String::length).toList();
        assertTrue(sizes.get(1) < sizes.get(0) / 2, sizes.toString());
        assertTrue(sizes.get(2) > sizes.get(0), sizes.toString());
    }

    /** Returns the requests for models with a prefix. */
    public List<JsonNode> requests(String model) {
        JsonNode recorded = exchange(
                HttpRequest.newBuilder(URI.create(url + "/_control/requests")).build());
        return StreamSupport.stream(recorded.path("requests").spliterator(), false)
                .filter(it -> it.path("body").path("model").asText().startsWith(model))
                .toList();
    }

    /** Returns the status codes of the answers for models with a prefix. */
    public List<Integer> statuses(String model) {
        return requests(model).stream().map(it -> it.path("status").asInt()).toList();
    }

    /** Returns the arrays of the requests for models with a prefix, as JSON text. */
    public List<String> sent(String model) {
        return requests(model).stream()
                .map(it -> it.path("body"))
                .map(it -> it.has("messages") ? it.get("messages") : it.path("input"))
                .map(JsonNode::toString)
                .toList();
    }

    private JsonNode exchange(HttpRequest request) {
        try {
            var response = http.send(request, BodyHandlers.ofByteArray());
            if (response.statusCode() >= 300) {
                throw new IllegalStateException(new String(response.body()));
            }
            return JSON.readTree(response.body());
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
