package palimpsest;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;

/** Events as they happen. Reconnects after errors that can be retried, and continues after the last event. */
final class Watch implements Iterator<ObjectNode>, AutoCloseable {
    private final Http http;
    private final String path;
    private final Map<String, Object> query;
    private final Options options;
    private Attempts attempts;
    private volatile Lines lines;
    private volatile boolean closed;
    private ObjectNode next;

    Watch(Http http, String path, long afterRevision, List<String> kinds, Options options) {
        this.http = http;
        this.path = path;
        this.query = new HashMap<>(Map.of("after_revision", afterRevision, "kinds", kinds));
        this.options = options;
        this.attempts = new Attempts(options);
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
        attempts = new Attempts(options);
        next = (ObjectNode) element.get("event");
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
