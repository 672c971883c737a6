package palimpsest;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.function.Supplier;

/**
 * Asynchronous work in several parts. A cancellation of the result ends the current part, and no other part begins: a
 * late sync would replace the view of a later one, and a call of the model costs tokens.
 */
final class AsyncWork<R> {
    private final Executor executor;
    private final CompletableFuture<R> result = new CompletableFuture<>();

    AsyncWork(Executor executor) {
        this.executor = executor;
    }

    /** Runs a part on the executor. A cancellation interrupts its thread. */
    <V> CompletableFuture<V> run(Supplier<V> part) {
        CompletableFuture<V> done = new CompletableFuture<>();
        FutureTask<Void> task = new FutureTask<>(() -> complete(done, part), null);
        whenCancelled(() -> task.cancel(true));
        executor.execute(task);
        return done;
    }

    private <V> void complete(CompletableFuture<V> done, Supplier<V> part) {
        try {
            done.complete(part.get());
        } catch (Throwable error) {
            done.completeExceptionally(error);
        } finally {
            if (result.isCancelled()) {
                // The thread belongs to the executor, whose next task is not interrupted.
                Thread.interrupted();
            }
        }
    }

    /** Begins a part that is asynchronous itself. A cancellation cancels it. */
    <V> CompletableFuture<V> await(Supplier<CompletableFuture<V>> part) {
        if (result.isCancelled()) {
            return new CompletableFuture<>();
        }
        CompletableFuture<V> future = part.get();
        whenCancelled(() -> future.cancel(true));
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

    private void whenCancelled(Runnable end) {
        result.whenComplete((value, error) -> {
            if (result.isCancelled()) {
                end.run();
            }
        });
    }
}
