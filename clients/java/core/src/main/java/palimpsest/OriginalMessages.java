package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.UnaryOperator;

/**
 * The messages of a framework and their JSON in OpenAI's Chat format. Adapters find the messages that a view shows
 * with it, so that these stay the objects of the framework.
 *
 * @param <M> the type of messages of the framework
 */
public final class OriginalMessages<M> {
    private final List<ObjectNode> json = new ArrayList<>();
    private final List<M> messages = new ArrayList<>();
    private final Map<List<Object>, Deque<Integer>> places = new HashMap<>();
    private final CallIds ids = new CallIds();
    private final Map<String, String> toolNames = new HashMap<>();

    /**
     * A message of a view.
     *
     * @param chat the message with the call ids of the framework
     * @param original the message of the framework. Empty for a message that the service has written or changed.
     *     Results of tools are found by the id of their call, even with other content
     * @param toolName the name of the tool of a result, or an empty text
     */
    public record Shown<M>(ObjectNode chat, Optional<M> original, String toolName) {
        /** Returns the text of the message. Text blocks are separated by a line break. */
        public String text() {
            JsonNode content = chat.path("content");
            return content.isArray() ? String.join("\n", content.findValuesAsText("text")) : content.asText("");
        }

        /** Returns the tool calls of the message. */
        public List<Call> calls() {
            return Json.list(chat.path("tool_calls")).stream()
                    .map(it -> new Call(
                            it.path("id").asText(),
                            it.path("function").path("name").asText(),
                            it.path("function").path("arguments").asText()))
                    .toList();
        }
    }

    /** A tool call of a message of the assistant. An id that is null is synced as an empty one. */
    public record Call(String id, String name, String arguments) {
        ObjectNode json() {
            ObjectNode json = Json.object().put("id", id == null ? "" : id).put("type", "function");
            json.putObject("function").put("name", name).put("arguments", arguments);
            return json;
        }
    }

    /** Adds a message of the conversation. Ids of calls that the service would replace are synced as aliases. */
    public void add(ObjectNode chat, M message) {
        add(chat, List.of(), message);
    }

    /** Adds a message of the assistant with tool calls. */
    public void add(ObjectNode chat, List<Call> calls, M message) {
        ObjectNode synced = chat.deepCopy();
        if (!calls.isEmpty()) {
            synced.set("tool_calls", Json.array(calls.stream().map(Call::json).toList()));
        }
        rename(synced, ids::ofCall, ids::ofResult);
        for (JsonNode call : synced.path("tool_calls")) {
            toolNames.put(
                    call.path("id").asText(), call.path("function").path("name").asText());
        }
        places.computeIfAbsent(key(synced), it -> new ArrayDeque<>()).add(json.size());
        json.add(synced);
        messages.add(message);
    }

    private static void rename(ObjectNode chat, UnaryOperator<String> ofCall, UnaryOperator<String> ofResult) {
        for (JsonNode call : chat.path("tool_calls")) {
            ((ObjectNode) call).put("id", ofCall.apply(call.path("id").asText("")));
        }
        if (chat.has("tool_call_id")) {
            chat.put("tool_call_id", ofResult.apply(chat.path("tool_call_id").asText("")));
        }
    }

    /** Returns the array to sync. */
    public List<ObjectNode> json() {
        return json;
    }

    /** Returns the messages of a view. */
    public List<Shown<M>> of(List<ObjectNode> view) {
        LinkedList<Shown<M>> shown = new LinkedList<>();
        int limit = messages.size();
        // The service removes old messages first, so equal texts are matched from the end.
        for (int index = view.size() - 1; index >= 0; index--) {
            ObjectNode chat = view.get(index).deepCopy();
            Integer place = take(key(chat), limit);
            limit = place == null ? limit : Math.min(limit, place);
            String toolName = toolNames.getOrDefault(chat.path("tool_call_id").asText(), "");
            rename(chat, ids::original, ids::original);
            shown.addFirst(new Shown<>(chat, Optional.ofNullable(place).map(messages::get), toolName));
        }
        return shown;
    }

    /** Returns the last place with a key, for a text before a limit. The service can move the result of a call. */
    private Integer take(List<Object> key, int limit) {
        Deque<Integer> found = places.getOrDefault(key, new ArrayDeque<>());
        boolean hasIds = !(key.get(1) instanceof JsonNode);
        while (!hasIds && !found.isEmpty() && found.getLast() >= limit) {
            found.removeLast();
        }
        return found.pollLast();
    }

    /** Returns the identity of a message: the role, and the ids of its calls, which are unique, or its content. */
    private static List<Object> key(JsonNode chat) {
        String role = chat.path("role").asText();
        if (chat.has("tool_call_id")) {
            return List.of(role, chat.path("tool_call_id").asText());
        }
        List<String> callIds = Json.list(chat.path("tool_calls")).stream()
                .map(it -> it.path("id").asText())
                .toList();
        return List.of(role, callIds.isEmpty() ? chat.path("content") : callIds);
    }
}
