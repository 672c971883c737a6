package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * The body of a model request.
 *
 * @param json the body as JSON
 * @param format the format, or null if the service has to detect it
 * @param rebuild returns an object of the type of the caller with other values of some fields
 */
record Body<T>(ObjectNode json, Format format, Function<ObjectNode, T> rebuild) {
    /** The fields of a request body that the service reads. */
    private static final List<String> READ_FIELDS =
            List.of("model", "system", "instructions", "tools", "messages", "input");

    /** Returns the body of a map, of JSON, or of the parameters of an SDK. */
    @SuppressWarnings("unchecked")
    static <T> Body<T> of(T given, Format declared) {
        String type = given.getClass().getName();
        if (type.startsWith("com.openai.")) {
            return (Body<T>) OpenAiBodies.of(given);
        }
        if (type.startsWith("com.anthropic.")) {
            return (Body<T>) AnthropicBodies.of(given);
        }
        if (!(Json.tree(given) instanceof ObjectNode json)) {
            throw unknown(given);
        }
        Format format = formatOf(json, declared);
        if (given instanceof ObjectNode) {
            return new Body<>(json, format, changed -> (T) json.deepCopy().setAll(changed));
        }
        if (given instanceof Map<?, ?> map) {
            return new Body<>(json, format, changed -> {
                Map<Object, Object> copy = new LinkedHashMap<>(map);
                changed.properties().forEach(it -> copy.put(it.getKey(), Json.convert(it.getValue(), Object.class)));
                return (T) copy;
            });
        }
        throw unknown(given);
    }

    static IllegalArgumentException unknown(Object given) {
        return new IllegalArgumentException("A " + given.getClass().getName() + " is no body of a model request."
                + " Pass parameters of an SDK, a Map, or an ObjectNode.");
    }

    private static Format formatOf(JsonNode json, Format declared) {
        if (!json.has("messages")) {
            return Format.OPENAI_RESPONSES;
        }
        return declared == Format.OPENAI_RESPONSES ? Format.OPENAI_CHAT : declared;
    }

    /** Returns the name of the field with the array. */
    String arrayField() {
        return json.has("messages") ? "messages" : "input";
    }

    /** Returns the first messages of the array. */
    List<ObjectNode> systemMessages(int count) {
        return Json.objects(json.path(arrayField())).subList(0, count);
    }

    /** Returns the body with further tools. */
    Body<T> withTools(List<ObjectNode> tools) {
        ObjectNode changed = Json.object()
                .set("tools", Json.array(Json.list(json.path("tools"))).addAll(tools));
        T body = rebuild.apply(changed);
        return new Body<>(
                json.deepCopy().setAll(changed),
                format,
                it -> of(body, format).rebuild().apply(it));
    }

    /** Returns the part of the body that the service reads. */
    ObjectNode readFields() {
        if (json.hasNonNull("previous_response_id") || json.hasNonNull("conversation")) {
            throw new IllegalArgumentException(
                    "Send the whole conversation in `input`: remove previous_response_id and conversation.");
        }
        return json.deepCopy().retain(READ_FIELDS);
    }

    /** Returns the target of the view, if the body enables thinking: without it, thinking blocks are omitted. */
    ObjectNode target() {
        String thinking = json.path("thinking").path("type").asText("disabled");
        if (thinking.equals("disabled") || format != null && format != Format.ANTHROPIC_MESSAGES) {
            return null;
        }
        return Json.object()
                .put("provider", "anthropic")
                .put("model", json.path("model").asText())
                .put("thinking", true);
    }
}
