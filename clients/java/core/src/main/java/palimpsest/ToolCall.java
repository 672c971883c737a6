package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;

/** A tool call of a model. {@code json} is the call in the format of the provider. */
record ToolCall(Format format, String id, String name, JsonNode input, ObjectNode json) {
    /** Reads a call of any format: a block, an entry of {@code tool_calls}, an item, or the object of an SDK. */
    static ToolCall of(Object call) {
        if (!(Json.tree(call) instanceof ObjectNode json)) {
            throw new IllegalArgumentException("A tool call is a JSON object.");
        }
        String type = json.path("type").asText();
        if (type.equals("tool_use")) {
            return new ToolCall(
                    Format.ANTHROPIC_MESSAGES, text(json, "id"), text(json, "name"), json.path("input"), json);
        }
        if (type.equals("function_call")) {
            JsonNode input = arguments(json.path("arguments"));
            return new ToolCall(Format.OPENAI_RESPONSES, text(json, "call_id"), text(json, "name"), input, json);
        }
        JsonNode function = json.path("function");
        if (!function.isObject()) {
            throw new IllegalArgumentException("A " + type + " is no tool call of a known format.");
        }
        JsonNode input = arguments(function.path("arguments"));
        return new ToolCall(Format.OPENAI_CHAT, text(json, "id"), text(function, "name"), input, json);
    }

    private static String text(JsonNode json, String field) {
        return json.path(field).asText();
    }

    private static JsonNode arguments(JsonNode text) {
        try {
            JsonNode arguments = Json.parse(text.asText());
            return arguments.isObject() ? arguments : Json.object();
        } catch (IOException error) {
            return Json.object();
        }
    }

    /** Returns the result of the call in its format. Output that is neither text nor a list is written as JSON. */
    ObjectNode result(Object output, boolean isError) {
        JsonNode json = Json.tree(output);
        JsonNode content =
                json.isTextual() || json.isArray() ? json : Json.object().textNode(json.toString());
        ObjectNode result = Json.object();
        return switch (format) {
            case ANTHROPIC_MESSAGES -> {
                result.put("type", "tool_result").put("tool_use_id", id).set("content", content);
                yield isError ? result.put("is_error", true) : result;
            }
            case OPENAI_CHAT ->
                result.put("role", "tool").put("tool_call_id", id).set("content", content);
            case OPENAI_RESPONSES ->
                result.put("type", "function_call_output").put("call_id", id).set("output", content);
        };
    }
}
