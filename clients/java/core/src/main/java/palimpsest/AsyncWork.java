package palimpsest;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.function.Supplier;

/**
 * Asynchronous work in several parts. If the caller cancels or completes the result, for example by a timeout, the
 * current part ends and no other part begins: a late sync would replace the view of a later one, and a call of the
 * model costs tokens.
 */
final class AsyncWork<R> {
    private final Executor executor;
    private final CompletableFuture<R> result = new CompletableFuture<>();

    AsyncWork(Executor executor) {
        this.executor = executor;
    }

    /** Runs a part on the executor. The end of the result interrupts its thread. */
    <V> CompletableFuture<V> run(Supplier<V> part) {
        CompletableFuture<V> done = new CompletableFuture<>();
        FutureTask<Void> task = new FutureTask<>(() -> complete(done, part), null);
        whenEnded(() -> {
            // The thread of a finished part runs the next steps, and can complete the result itself.
            if (!done.isDone()) {
                task.cancel(true);
            }
        });
        executor.execute(() -> {
            task.run();
            if (task.isCancelled()) {
                // The thread belongs to the executor, whose next task is not interrupted.
                Thread.interrupted();
            }
        });
        return done;
    }

    private static <V> void complete(CompletableFuture<V> done, Supplier<V> part) {
        try {
            done.complete(part.get());
        } catch (Throwable error) {
            done.completeExceptionally(error);
        }
    }

    /** Begins a part that is asynchronous itself. The end of the result cancels it. */
    <V> CompletableFuture<V> await(Supplier<CompletableFuture<V>> part) {
        if (result.isDone()) {
            return new CompletableFuture<>();
        }
        CompletableFuture<V> future = part.get();
        whenEnded(() -> future.cancel(true));
        return future;
    }

    /** Returns the result, which is that of the last part. */
    CompletableFuture<R> endWith(CompletableFuture<R> last) {
        last.whenComplete((value, error) -> {
            if (error == null) {
                result.complete(value);
            } else {
                boolean wrapped = error instanceof CompletionException && error.getCause() != null;
                result.completeExceptionally(wrapped ? error.getCause() : error);
            }
        });
        return result;
    }

    private void whenEnded(Runnable end) {
        result.whenComplete((value, error) -> end.run());
    }
}
