// One step of a scenario.
package palimpsest.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** One call, or one action on a held call. Unset names are empty. */
record Step(
        String name,
        String call,
        JsonElement request,
        String server,
        String key,
        Map<String, String> headers,
        int deadlineMs,
        int cancelAfterMs,
        int read,
        String hold,
        String resume,
        String release,
        boolean clientStatus,
        List<String> headersShown,
        Map<String, String> capture,
        String array,
        JsonArray checks) {

    private static final Set<String> FIELDS =
            Set.of("name", "call", "request", "server", "key", "headers", "deadline_ms", "cancel_after_ms",
                    "read", "hold", "resume", "release", "client_status", "headers_shown", "capture", "array",
                    "checks", "expect");

    /** Reads a step. Rejects unknown fields, because the runner would play the step wrongly. */
    static Step read(JsonObject step) {
        String name = step.get("name").getAsString();
        for (String field : step.keySet()) {
            if (!FIELDS.contains(field)) {
                throw new IllegalArgumentException("step " + name + ": no field " + field);
            }
        }
        JsonElement key = step.has("key") ? step.get("key") : new JsonPrimitive("agent");
        List<String> headersShown = new ArrayList<>();
        array(step, "headers_shown").forEach(shown -> headersShown.add(shown.getAsString()));
        return new Step(
                name,
                string(step, "call", ""),
                step.has("request") ? step.get("request") : new JsonObject(),
                string(step, "server", "main"),
                key.isJsonNull() ? "" : key.getAsString(),
                Scenario.strings(step, "headers"),
                number(step, "deadline_ms", 30_000),
                number(step, "cancel_after_ms", 0),
                number(step, "read", 0),
                string(step, "hold", ""),
                string(step, "resume", ""),
                string(step, "release", ""),
                step.has("client_status") && step.get("client_status").getAsBoolean(),
                headersShown,
                Scenario.strings(step, "capture"),
                string(step, "array", ""),
                array(step, "checks"));
    }

    private static String string(JsonObject step, String field, String otherwise) {
        return step.has(field) ? step.get(field).getAsString() : otherwise;
    }

    private static int number(JsonObject step, String field, int otherwise) {
        return step.has(field) ? step.get(field).getAsInt() : otherwise;
    }

    private static JsonArray array(JsonObject step, String field) {
        return step.has(field) ? step.getAsJsonArray(field) : new JsonArray();
    }
}
