package palimpsest;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Pattern;

/**
 * The ids of the calls and results of an array in OpenAI's Chat format, in its order.
 *
 * <p>An id that the service would replace has an alias: an id with other characters, a long one, and a repeated one. An
 * alias depends on the earlier calls with the same id only, so each sync has the same.
 */
final class CallIds {
    private static final Pattern ACCEPTED = Pattern.compile("[A-Za-z0-9_-]{1,40}");

    private final Map<String, Integer> counts = new HashMap<>();
    /** The aliases of the calls with an id that have no result yet. */
    private final Map<String, Deque<String>> open = new HashMap<>();

    private final Map<String, String> last = new HashMap<>();
    private final Map<String, String> originals = new HashMap<>();

    /** Returns the id to sync for the next call. */
    String ofCall(String id) {
        int number = counts.merge(id, 1, Integer::sum);
        String alias = number == 1 && ACCEPTED.matcher(id).matches() ? id : alias(id, number);
        originals.put(alias, id);
        open.computeIfAbsent(id, it -> new ArrayDeque<>()).add(alias);
        last.put(id, alias);
        return alias;
    }

    /** Returns the id to sync for the next result: that of the first call with this id and without a result. */
    String ofResult(String id) {
        Deque<String> calls = open.getOrDefault(id, new ArrayDeque<>());
        return calls.isEmpty() ? last.getOrDefault(id, id) : calls.poll();
    }

    /** Returns the id of the framework. */
    String original(String alias) {
        return originals.getOrDefault(alias, alias);
    }

    private static String alias(String id, int number) {
        byte[] source = (number + " " + id).getBytes(StandardCharsets.UTF_8);
        return "call_" + UUID.nameUUIDFromBytes(source).toString().replace("-", "");
    }
}
