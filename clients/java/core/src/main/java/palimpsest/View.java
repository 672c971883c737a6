package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;

/**
 * The reply to a sync.
 *
 * @param <T> the type of the body that was synced
 */
public final class View<T> {
    private final Body<T> body;
    private final List<ObjectNode> messages;
    private final ObjectNode reply;

    View(Body<T> body, List<ObjectNode> messages, ObjectNode reply) {
        this.body = body;
        this.messages = List.copyOf(messages);
        this.reply = reply;
    }

    /**
     * Returns the body with the messages of the view, in the type of the body.
     *
     * @throws NotSendableException if the view must not be sent
     */
    public T request() {
        if (!sendable()) {
            throw new NotSendableException(notSendableReason());
        }
        ObjectNode changed = Json.object();
        ArrayNode array = changed.putArray(body.arrayField());
        array.addAll(messages());
        setBreakpoints(changed);
        return body.rebuild().apply(changed);
    }

    private void setBreakpoints(ObjectNode changed) {
        for (JsonNode breakpoint : reply.path("cache_breakpoints")) {
            JsonNode block;
            if (breakpoint.has("position")) {
                JsonNode position = breakpoint.get("position");
                ObjectNode message = (ObjectNode) changed.path("messages")
                        .path(position.path("message_index").asInt());
                block = blocks(message, "content")
                        .path(position.path("block_index").asInt());
            } else {
                if (!changed.has("system")) {
                    changed.set("system", body.json().path("system").deepCopy());
                }
                block = blocks(changed, "system")
                        .path(breakpoint.path("system_block_index").asInt());
            }
            ((ObjectNode) block).setAll((ObjectNode) breakpoint.path("merge"));
        }
    }

    /** Writes text as a block, because only a block can have a breakpoint. */
    private static JsonNode blocks(ObjectNode parent, String field) {
        JsonNode content = parent.path(field);
        if (content.isTextual()) {
            parent.putArray(field).addObject().put("type", "text").set("text", content);
        }
        return parent.path(field);
    }

    /** Returns the messages to send to the model instead of those of the body. */
    public List<ObjectNode> messages() {
        // The session keeps the messages, so a change of the caller must not reach them.
        return messages.stream().map(ObjectNode::deepCopy).toList();
    }

    /** Returns the resource name of the session that took the array. A side request has a session of its own. */
    public String session() {
        return reply.path("session").asText();
    }

    /** Returns the relation of the array to the last one, such as {@code extended} or {@code rewound}. */
    public String outcome() {
        return reply.path("outcome").asText();
    }

    /** Returns true if the view may be sent to the model. */
    public boolean sendable() {
        return reply.path("sendable").asBoolean();
    }

    /** Returns {@code open_calls}, {@code ends_with_assistant} or {@code empty}. Empty if the view is sendable. */
    public String notSendableReason() {
        return reply.path("not_sendable_reason").asText();
    }

    /** Returns the opaque name of this view. */
    public String etag() {
        return reply.path("etag").asText();
    }

    /** Returns the revision of the session after the call. */
    public long revision() {
        return reply.path("revision").asLong();
    }

    /** Returns the token count of the model request. */
    public JsonNode tokens() {
        return reply.path("tokens");
    }

    /** Returns the used and free tokens of the context window. */
    public JsonNode budget() {
        return reply.path("budget");
    }

    /** Returns problems that did not fail the call. */
    public List<JsonNode> warnings() {
        return Json.list(reply.path("warnings"));
    }

    /** Returns one report per level that ran or was skipped. */
    public List<JsonNode> levelReports() {
        return Json.list(reply.path("level_reports"));
    }

    /** Returns the JSON of the reply with all fields of {@code SyncContextResponse}. */
    public ObjectNode reply() {
        return reply;
    }
}
