package harness;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.util.Map;

/** The lines of JSON to and from the harness. `tests/frameworks/python/program.py` describes them. */
public final class Harness {
    private static final JsonMapper JSON = new JsonMapper();

    private final BufferedReader input;
    private final PrintStream output;

    Harness(BufferedReader input, PrintStream output) {
        this.input = input;
        this.output = output;
    }

    /** Reads a line, or returns null after the last one. */
    synchronized <T> T receive(Class<T> type) {
        try {
            String line = input.readLine();
            return line == null ? null : JSON.readValue(line, type);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Writes a line with one field. */
    synchronized void send(String field, Object value) {
        output.println(json(Map.of(field, value)));
    }

    /** Reports the input tokens of an answered request. */
    public void used(int tokens) {
        send("used", tokens);
    }

    /** Runs a tool. A framework may run tools in parallel, and the harness runs one at a time. */
    public synchronized String call(String tool, Map<String, String> arguments) {
        send("call", Map.of("tool", tool, "arguments", arguments));
        JsonNode answer = receive(JsonNode.class);
        if (answer == null || !answer.has("result")) {
            throw new IllegalStateException("the harness has no result for " + tool);
        }
        return answer.get("result").textValue();
    }

    /** Returns the JSON schema of the arguments of a tool. All are strings and required. */
    public static String schema(Map<String, String> arguments) {
        var schema = JSON.createObjectNode().put("type", "object");
        var properties = schema.putObject("properties");
        arguments.forEach((name, description) ->
                properties.putObject(name).put("type", "string").put("description", description));
        var required = schema.putArray("required");
        arguments.keySet().forEach(required::add);
        return schema.toString();
    }

    private static String json(Object value) {
        try {
            return JSON.writeValueAsString(value);
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }
}
