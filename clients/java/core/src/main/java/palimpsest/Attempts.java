package palimpsest;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Counts the attempts of one call and waits between them. */
final class Attempts {
    private static final long FIRST_DELAY_MS = 100;
    private static final long LONGEST_DELAY_MS = 10_000;

    private final long deadline;
    private int left;
    private long delay = FIRST_DELAY_MS;

    Attempts(Options options) {
        deadline = System.nanoTime() + options.timeout().toNanos();
        left = options.maxRetries();
    }

    /** Returns the milliseconds until the deadline, at least 1. */
    long remainingMs() {
        return Math.max(leftMs(), 1);
    }

    /** Returns the milliseconds until the deadline. Negative after it. */
    long leftMs() {
        return (deadline - System.nanoTime()) / 1_000_000;
    }

    /** Waits before the next attempt, or throws the error if there is none. */
    void waitAfter(ApiException error) {
        long least = Math.max(delay, error.retryAfter().map(Duration::toMillis).orElse(0L));
        // Random jitter keeps clients from retrying at the same moment.
        long chosen = (long) (least * ThreadLocalRandom.current().nextDouble(1.0, 1.5));
        if (!error.retryable() || left == 0 || chosen >= remainingMs()) {
            throw error;
        }
        left--;
        delay = Math.min(delay * 2, LONGEST_DELAY_MS);
        try {
            Thread.sleep(chosen);
        } catch (InterruptedException interrupt) {
            throw PalimpsestException.interrupted(interrupt);
        }
    }
}
