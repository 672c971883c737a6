package palimpsest;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The last response of each session with its usage. Adapters of frameworks send it with the next sync, so that token
 * counts are exact up to the response. The oldest entries are removed. Threads can share it.
 */
public final class LastResponses {
    private static final int MAX_ENTRIES = 1_024;

    private final Map<String, ObjectNode> responses = new LinkedHashMap<>();

    /**
     * Records a response.
     *
     * @param message the message in OpenAI's Chat format
     * @param inputTokens all tokens of the request, with those of the cache
     */
    public synchronized void record(
            Session session, ObjectNode message, String model, int inputTokens, int outputTokens) {
        ObjectNode response = Json.object().put("object", "chat.completion").put("model", model);
        response.putArray("choices").addObject().put("index", 0).set("message", message);
        response.putObject("usage").put("prompt_tokens", inputTokens).put("completion_tokens", outputTokens);
        responses.remove(session.name());
        responses.put(session.name(), response);
        if (responses.size() > MAX_ENTRIES) {
            responses.remove(responses.keySet().iterator().next());
        }
    }

    /** Returns options that send the last response of a session, once. */
    public synchronized SyncOptions options(Session session) {
        ObjectNode response = responses.remove(session.name());
        return response == null
                ? new SyncOptions()
                : new SyncOptions().parameter("last_response", Map.of("format", Format.OPENAI_CHAT, "json", response));
    }
}
