package palimpsest;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** JSON of values that can contain objects of the SDKs. */
final class Json {
    private static final JsonMapper PLAIN = new JsonMapper();

    private Json() {}

    static ObjectNode object() {
        return PLAIN.createObjectNode();
    }

    static ArrayNode array(Iterable<? extends JsonNode> items) {
        ArrayNode array = PLAIN.createArrayNode();
        items.forEach(array::add);
        return array;
    }

    static List<JsonNode> list(JsonNode array) {
        List<JsonNode> items = new ArrayList<>();
        array.forEach(items::add);
        return items;
    }

    static List<ObjectNode> objects(JsonNode array) {
        List<ObjectNode> items = new ArrayList<>();
        array.forEach(it -> items.add((ObjectNode) it));
        return items;
    }

    /** Returns the JSON of a value as the SDK that the value belongs to would send it. */
    static JsonNode tree(Object value) {
        if (value instanceof JsonNode node) {
            return node.deepCopy();
        }
        if (value instanceof Map<?, ?> map) {
            ObjectNode object = object();
            map.forEach((name, it) -> object.set(name.toString(), tree(it)));
            return object;
        }
        if (value instanceof Iterable<?> items) {
            ArrayNode array = PLAIN.createArrayNode();
            items.forEach(it -> array.add(tree(it)));
            return array;
        }
        if (value instanceof Format format) {
            return PLAIN.getNodeFactory().textNode(format.value());
        }
        return value == null ? PLAIN.nullNode() : mapperOf(value.getClass()).valueToTree(value);
    }

    /** Returns JSON as an object of a type, for example of a message type of an SDK. */
    static <T> T convert(JsonNode json, Class<T> type) {
        return mapperOf(type).convertValue(json, type);
    }

    static JsonNode parse(byte[] text) throws IOException {
        return PLAIN.readTree(text);
    }

    static JsonNode parse(String text) throws JsonProcessingException {
        return PLAIN.readTree(text);
    }

    static byte[] bytes(JsonNode json) {
        try {
            return PLAIN.writeValueAsBytes(json);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }

    /** The SDKs have annotations that need their own mapper. A class that is not used is not loaded. */
    private static ObjectMapper mapperOf(Class<?> type) {
        String name = type.getName();
        if (name.startsWith("com.openai.")) {
            return com.openai.core.ObjectMappers.jsonMapper();
        }
        return name.startsWith("com.anthropic.") ? com.anthropic.core.ObjectMappers.jsonMapper() : PLAIN;
    }
}
