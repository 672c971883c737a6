package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The lines of an answer, each a JSON object. One thread reads, and any thread can close. */
final class Lines implements BodySubscriber<byte[]>, Iterator<ObjectNode>, AutoCloseable {
    private static final Object END = new Object();

    /** Complete lines as bytes, then the end or an exception. */
    private final BlockingQueue<Object> queue = new LinkedBlockingQueue<>();

    private final ByteArrayOutputStream line = new ByteArrayOutputStream();
    /** The attempts of the call, whose deadline ends the lines. Null for a watch. */
    private final Attempts attempts;

    private volatile Flow.Subscription subscription;
    private volatile boolean closed;
    private Object head;

    Lines(Attempts attempts) {
        this.attempts = attempts;
    }

    /** Returns a completed stage, so that the call returns with the head of the answer. */
    @Override
    public CompletionStage<byte[]> getBody() {
        return CompletableFuture.completedFuture(new byte[0]);
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
        subscription = given;
        if (closed) {
            given.cancel();
        } else {
            given.request(1);
        }
    }

    @Override
    public void onNext(List<ByteBuffer> buffers) {
        int before = queue.size();
        for (ByteBuffer buffer : buffers) {
            while (buffer.hasRemaining()) {
                byte next = buffer.get();
                line.write(next);
                if (next == '\n') {
                    endLine();
                }
            }
        }
        // The reader requests more when it has read all lines. It never sees the start of a line.
        if (queue.size() == before) {
            subscription.request(1);
        }
    }

    private void endLine() {
        if (line.size() > 0) {
            queue.add(line.toByteArray());
            line.reset();
        }
    }

    @Override
    public void onError(Throwable error) {
        queue.add(error);
    }

    @Override
    public void onComplete() {
        endLine();
        queue.add(END);
    }

    @Override
    public boolean hasNext() {
        if (head == null && !closed) {
            long patienceMs = attempts == null ? Http.SILENCE_MS : attempts.leftMs() + Http.GRACE_MS;
            try {
                head = patienceMs > 0 ? queue.poll(patienceMs, TimeUnit.MILLISECONDS) : null;
            } catch (InterruptedException error) {
                throw PalimpsestException.interrupted(error);
            }
            if (head == null) {
                throw Http.failure(
                        attempts == null
                                ? new IOException("no data for " + patienceMs + " ms")
                                : new HttpTimeoutException("the deadline of the call has passed"));
            }
        }
        return head != END && !closed;
    }

    @Override
    public ObjectNode next() {
        JsonNode element = read();
        if (element.has("error")) {
            throw ApiException.of(element);
        }
        return (ObjectNode) element;
    }

    private JsonNode read() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        Object read = head;
        head = null;
        if (queue.isEmpty()) {
            subscription.request(1);
        }
        if (read instanceof Throwable error) {
            throw Http.failure(error);
        }
        try {
            return Json.parse((byte[]) read);
        } catch (IOException error) {
            throw Http.failure(error);
        }
    }

    @Override
    public void close() {
        closed = true;
        queue.add(END);
        Flow.Subscription current = subscription;
        if (current != null) {
            current.cancel();
        }
    }
}
