package palimpsest;

import java.time.Duration;

/** Settings of calls. The timeout includes all retries. */
record Options(Duration timeout, int maxRetries) {}
