package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Logs the warnings of views, each code once per session. The oldest entries are forgotten. Threads can share it. */
final class WarningLog {
    private static final System.Logger LOGGER = System.getLogger("palimpsest");
    private static final int MAX_ENTRIES = 1_024;

    /** The names of sessions and the codes that were logged for them. */
    private final Set<List<String>> logged = new LinkedHashSet<>();

    /** Logs the warnings of a reply that were not logged for its session. */
    void log(ObjectNode reply) {
        String session = reply.path("session").asText();
        for (JsonNode warning : reply.path("warnings")) {
            String code = warning.path("code").asText();
            if (isNew(List.of(session, code))) {
                String text = session + ": " + warning.path("detail").asText() + " (" + code + ")";
                LOGGER.log(System.Logger.Level.WARNING, text);
            }
        }
    }

    private synchronized boolean isNew(List<String> key) {
        boolean isNew = logged.add(key);
        if (logged.size() > MAX_ENTRIES) {
            logged.remove(logged.iterator().next());
        }
        return isNew;
    }
}
