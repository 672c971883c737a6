package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.Stream;

/** Finds the revision before the last view-changing event that is not undone. */
final class UndoSearch {
    /** Events of the levels, in the order latest first, and their undos. */
    static final Map<String, ?> QUERY = Map.of(
            "descending",
            true,
            "kinds",
            List.of("content_snipped", "results_cleared", "spans_collapsed", "compacted", "context_restored"));

    private long below = Long.MAX_VALUE;

    /** Returns the revision to restore, or nothing if nothing can be undone. */
    OptionalLong revisionIn(Stream<? extends JsonNode> events) {
        return events.filter(this::isLast)
                .mapToLong(it -> it.path("revision").asLong() - 1)
                .findFirst();
    }

    private boolean isLast(JsonNode event) {
        if (event.path("revision").asLong() > below) {
            return false;
        }
        if (event.has("context_restored")) {
            below = event.path("context_restored").path("to_revision").asLong();
            return false;
        }
        return true;
    }
}
