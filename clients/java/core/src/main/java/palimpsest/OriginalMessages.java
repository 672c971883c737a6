package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The messages of a framework and their JSON in OpenAI's Chat format. Adapters find the messages that a view shows
 * with it, so that these stay the objects of the framework.
 *
 * @param <M> the type of messages of the framework
 */
public final class OriginalMessages<M> {
    private final List<ObjectNode> json = new ArrayList<>();
    private final Map<List<Object>, Deque<M>> byKey = new HashMap<>();

    /** Adds a message of the conversation. */
    public void add(ObjectNode chat, M message) {
        json.add(chat);
        byKey.computeIfAbsent(key(chat), it -> new ArrayDeque<>()).add(message);
    }

    /** Returns the array to sync. */
    public List<ObjectNode> json() {
        return json;
    }

    /**
     * Returns the next message that a message of the view shows, and removes it. Returns nothing for a message that
     * the service has written or changed. Results of tools are found by the id of their call, even with other content.
     */
    public Optional<M> take(JsonNode shown) {
        return Optional.ofNullable(byKey.get(key(shown))).map(Deque::poll);
    }

    /** Returns the identity of a message in an array. Call ids are unique, so texts beside them do not matter. */
    private static List<Object> key(JsonNode chat) {
        String role = chat.path("role").asText();
        if (chat.has("tool_call_id")) {
            return List.of(role, chat.get("tool_call_id"));
        }
        List<JsonNode> ids = chat.path("tool_calls").findValues("id");
        return List.of(role, ids.isEmpty() ? chat.path("content") : ids);
    }

    /** Returns the text of a message. Text blocks are separated by a line break. */
    public static String text(JsonNode chat) {
        JsonNode content = chat.path("content");
        return content.isArray() ? String.join("\n", content.findValuesAsText("text")) : content.asText("");
    }
}
