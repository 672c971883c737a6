package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;

/** A response of a model: its format, its JSON, and the messages and tool calls in it. */
record ModelResponse(Format format, ObjectNode json, List<ObjectNode> messages, List<ToolCall> calls) {
    /** Reads a response of any format: the object of an SDK, or its JSON. */
    static ModelResponse of(Object response) {
        if (!(Json.tree(raw(response)) instanceof ObjectNode json)) {
            throw unknown();
        }
        if (json.has("choices")) {
            ObjectNode message =
                    (ObjectNode) json.path("choices").path(0).path("message").deepCopy();
            // Accumulators of streams set an empty list, which the API rejects in a request.
            if (message.path("tool_calls").isEmpty()) {
                message.remove("tool_calls");
            }
            List<ToolCall> calls = calls(message.path("tool_calls"), it -> it.has("function"));
            return new ModelResponse(Format.OPENAI_CHAT, json, List.of(message), calls);
        }
        if (json.has("output")) {
            List<ToolCall> calls =
                    calls(json.path("output"), it -> it.path("type").asText().equals("function_call"));
            return new ModelResponse(Format.OPENAI_RESPONSES, json, Json.objects(json.path("output")), calls);
        }
        if (!json.path("content").isArray()) {
            throw unknown();
        }
        JsonNode content = json.path("content");
        ObjectNode message = Json.object().put("role", "assistant").set("content", content);
        // A message without content is rejected in a later request.
        List<ObjectNode> messages = content.isEmpty() ? List.of() : List.of(message);
        List<ToolCall> calls = calls(content, it -> it.path("type").asText().equals("tool_use"));
        return new ModelResponse(Format.ANTHROPIC_MESSAGES, json, messages, calls);
    }

    /** Returns the response inside of one with structured output, which has no JSON of its own. */
    private static Object raw(Object response) {
        Class<?> type = response.getClass();
        if (!type.getSimpleName().startsWith("Structured")) {
            return response;
        }
        try {
            for (Method method : type.getMethods()) {
                if (method.getName().startsWith("raw") && method.getParameterCount() == 0) {
                    return method.invoke(response);
                }
            }
            return response;
        } catch (IllegalAccessException | InvocationTargetException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static IllegalArgumentException unknown() {
        return new IllegalArgumentException("The response has no known format. Pass a complete response of the model.");
    }

    private static List<ToolCall> calls(JsonNode items, Predicate<JsonNode> isCall) {
        return Json.list(items).stream().filter(isCall).map(ToolCall::of).toList();
    }

    /** Returns the messages that follow the request: those of the response, and the results of its calls. */
    List<ObjectNode> with(List<ObjectNode> results) {
        List<ObjectNode> all = new ArrayList<>(messages);
        if (format == Format.ANTHROPIC_MESSAGES && !results.isEmpty()) {
            all.add(Json.object().put("role", "user").set("content", Json.array(results)));
        } else {
            all.addAll(results);
        }
        return all;
    }
}
