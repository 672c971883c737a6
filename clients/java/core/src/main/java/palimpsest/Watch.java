package palimpsest;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;

/** Events as they happen. Reconnects after errors that can be retried, and continues after the last event. */
final class Watch implements Iterator<ObjectNode>, AutoCloseable {
    private final Http http;
    private final String path;
    private final Map<String, Object> query;
    private final Options options;
    /** The latest revision of each kind. A resumed watch can repeat events of its first revision. */
    private final Map<Set<String>, Long> latest = new HashMap<>();
    /** The attempts since the first failure after an element. */
    private Attempts attempts;

    private volatile Lines lines;
    private volatile boolean closed;
    private ObjectNode next;

    Watch(Http http, String path, long afterRevision, List<String> kinds, Options options) {
        this.http = http;
        this.path = path;
        this.query = new HashMap<>(Map.of("after_revision", afterRevision, "kinds", kinds));
        this.options = options;
    }

    @Override
    public boolean hasNext() {
        while (next == null && !closed) {
            try {
                read();
            } catch (ApiException error) {
                disconnect();
                lines = null;
                if (!closed) {
                    attempts = attempts == null ? new Attempts(options) : attempts;
                    attempts.waitAfter(error);
                }
            }
        }
        return next != null;
    }

    private void read() {
        Lines current = lines;
        if (current == null) {
            current = http.lines(Request.read(path, query), null);
            lines = current;
        }
        // A close before the connection existed has not closed it.
        if (closed || !current.hasNext()) {
            throw ApiException.streamEnded();
        }
        ObjectNode element = current.next();
        query.put("after_revision", element.path("revision").asLong());
        attempts = null;
        if (element.get("event") instanceof ObjectNode event && isNew(event)) {
            next = event;
        }
    }

    /** Two events of one kind have different revisions. */
    private boolean isNew(ObjectNode event) {
        // The kind is the field with the content, an object. Later servers can add other fields to all events.
        Set<String> kind = new HashSet<>();
        event.fields().forEachRemaining(field -> {
            if (field.getValue().isObject() && !field.getKey().equals("effect")) {
                kind.add(field.getKey());
            }
        });
        long revision = event.path("revision").asLong();
        boolean isNew = latest.getOrDefault(kind, -1L) < revision;
        if (isNew) {
            latest.put(kind, revision);
        }
        return isNew;
    }

    private void disconnect() {
        Lines current = lines;
        if (current != null) {
            current.close();
        }
    }

    @Override
    public ObjectNode next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        ObjectNode event = next;
        next = null;
        return event;
    }

    @Override
    public void close() {
        closed = true;
        disconnect();
    }
}
