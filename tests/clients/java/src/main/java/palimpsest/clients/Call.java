// One call of a method of the generated stubs, looked up by name: unary, or a stream that is read in parts.
package palimpsest.clients;

import com.google.gson.JsonArray;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;

/** A call in flight. */
final class Call {
    private static final ScheduledExecutorService TIMER = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "timer");
        thread.setDaemon(true);
        return thread;
    });

    private final Context.CancellableContext context = Context.current().withCancellation();
    private final AtomicReference<Metadata> headers = new AtomicReference<>();
    private final AtomicReference<Metadata> trailers = new AtomicReference<>();
    private final boolean streaming;
    private final Supplier<Iterator<Message>> start;
    private Iterator<Message> answers;

    /** The outcome of a step. `refused` is null for a successful call. Absent headers are null. */
    record Outcome(
            boolean streaming,
            JsonArray answers,
            StatusRuntimeException refused,
            Metadata headers,
            Metadata trailers) {}

    /** Prepares a step's call with a request in proto3 JSON. The first `read` starts the call. */
    Call(Step step, World world, String request) {
        MethodDescriptor<Message, Message> method = Contract.method(step.call());
        Message asked = Contract.request(method, request);
        Metadata sent = new Metadata();
        step.headers().forEach((name, value) -> sent.put(header(name), value));
        if (!step.key().isEmpty()) {
            sent.put(header("authorization"), "Bearer " + world.key(step.key()));
        }
        Channel channel = ClientInterceptors.intercept(
                world.channel(step.server()),
                MetadataUtils.newAttachHeadersInterceptor(sent),
                MetadataUtils.newCaptureMetadataInterceptor(headers, trailers));
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(step.deadlineMs(), TimeUnit.MILLISECONDS);
        streaming = method.getType() == MethodDescriptor.MethodType.SERVER_STREAMING;
        start = streaming
                ? () -> ClientCalls.blockingServerStreamingCall(channel, method, options, asked)
                : () -> List.of(ClientCalls.blockingUnaryCall(channel, method, options, asked)).iterator();
        if (step.cancelAfterMs() > 0) {
            TIMER.schedule(this::cancel, step.cancelAfterMs(), TimeUnit.MILLISECONDS);
        }
    }

    /** Reads `count` more answers, or all if `count` is 0. */
    Outcome read(int count) {
        JsonArray read = new JsonArray();
        StatusRuntimeException refused = null;
        Context before = context.attach();
        try {
            if (answers == null) {
                answers = start.get();
            }
            while ((count == 0 || read.size() < count) && answers.hasNext()) {
                read.add(Contract.asJson(answers.next()));
            }
        } catch (StatusRuntimeException status) {
            refused = status;
        } finally {
            context.detach(before);
        }
        return new Outcome(streaming, read, refused, headers.get(), trailers.get());
    }

    void cancel() {
        context.cancel(null);
    }

    static Metadata.Key<String> header(String name) {
        return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
    }
}
