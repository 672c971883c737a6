package palimpsest;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The sessions in which the tools of the service read. The view of a side request is that of a lane. The oldest entries
 * are removed. Threads can share it.
 */
final class Lanes {
    private static final int MAX_ENTRIES = 4_096;

    /** The resource names by the name of the session and the id of a call, and for its last view with tools. */
    private final Map<List<String>, String> lanes = new LinkedHashMap<>();

    /** Records the session that took the last array with tools. */
    void viewed(String session, String lane) {
        put(List.of(session), lane);
    }

    /** Records the session of the view that produced a call. */
    void called(String session, String callId, String lane) {
        put(List.of(session, callId), lane);
    }

    private synchronized void put(List<String> key, String lane) {
        lanes.remove(key);
        lanes.put(key, lane);
        if (lanes.size() > MAX_ENTRIES) {
            lanes.remove(lanes.keySet().iterator().next());
        }
    }

    /** Returns the session in which a call reads: by the id of the call, of the last view with tools, or the named. */
    synchronized String of(String session, String callId) {
        return lanes.getOrDefault(List.of(session, callId), lanes.getOrDefault(List.of(session), session));
    }
}
