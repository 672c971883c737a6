package palimpsest;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.http.HttpClient;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A connection to the service, for all threads of a program. */
public final class Palimpsest {
    private static final String DEFAULT_URL = "http://127.0.0.1:50051";

    private final Connection connection;
    private final Options options;

    /** Connects to {@code PALIMPSEST_URL}, or else to {@code http://127.0.0.1:50051}. */
    public Palimpsest() {
        this(builder());
    }

    private Palimpsest(Builder builder) {
        HttpClient client = builder.httpClient != null ? builder.httpClient : defaultClient();
        Executor executor = builder.executor != null ? builder.executor : Threads.EXECUTOR;
        Http http = new Http(client, baseOf(builder.url), keyOf(builder.apiKey));
        connection = new Connection(http, executor, new Lanes(), new WarningLog());
        options = new Options(builder.timeout, builder.maxRetries);
    }

    /** Returns the URL of a server without the path of the API, which each request adds. */
    private static String baseOf(String given) {
        String base = given.strip().replaceAll("(/v1)?/*$", "");
        if (base.matches("(?i)https?://.*")) {
            return base;
        }
        // The command line has the same default scheme.
        if (base.matches("[^/\\s]+:\\d+(/.*)?")) {
            return "http://" + base;
        }
        throw new IllegalArgumentException(
                "The URL of the server must begin with http:// or https://, or be host:port, not \"" + given + "\".");
    }

    /** Returns an API key without white space around it, such as the line break at the end of a file, or null. */
    private static String keyOf(String given) {
        String key = given == null ? "" : given.strip();
        // The HTTP client would reject the header with an exception that contains the key.
        if (!key.matches("[!-~]*")) {
            throw new IllegalArgumentException("The API key contains a character that no key has, such as a line break."
                    + " Check the builder or PALIMPSEST_API_KEY.");
        }
        return key.isEmpty() ? null : key;
    }

    private static HttpClient defaultClient() {
        // Without TLS, version 2 would send an Upgrade header with each new connection.
        return HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(Duration.ofSeconds(10))
                .build();
    }

    /** Returns a builder for other settings. */
    public static Builder builder() {
        return new Builder();
    }

    /** Returns true if an exception of a provider reports that the prompt is too long. */
    public static boolean isTooLong(Throwable error) {
        return TooLong.matches(error);
    }

    /**
     * Returns a session of a project. Makes no call. The service detects the format of each array.
     *
     * @param project the id of the project: at most 64 letters, digits, {@code -}, {@code _} and {@code .}. It begins
     *     with a letter or a digit
     * @param session the id of the session: at most 128 characters, with the same rule
     */
    public Session session(String project, String session) {
        return session(project, session, null);
    }

    /** Returns a session of a project whose arrays have a format. Makes no call. */
    public Session session(String project, String session, Format format) {
        return new Session(connection, project, session, format, options);
    }

    /** Returns the sessions of a project, latest first. The pages are read on demand. */
    public Stream<ObjectNode> sessions(String project) {
        return sessions(project, Map.of());
    }

    /** Returns the sessions of a project for parameters of {@code ListSessions}. */
    public Stream<ObjectNode> sessions(String project, Map<String, ?> query) {
        Request request = Request.read("/projects/" + Request.projectId(project) + "/sessions", query);
        return Iterators.pages(connection.http(), request, options, "sessions");
    }

    /** The default executor. A sync blocks its thread, so the common pool of the JVM is no place for it. */
    private static final class Threads {
        private static final int MAX_THREADS = 64;
        private static final ThreadPoolExecutor EXECUTOR = new ThreadPoolExecutor(
                MAX_THREADS, MAX_THREADS, 10, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), Threads::daemon);

        static {
            EXECUTOR.allowCoreThreadTimeOut(true);
        }

        private static Thread daemon(Runnable work) {
            Thread thread = new Thread(work, "palimpsest");
            thread.setDaemon(true);
            return thread;
        }
    }

    /** Settings of a connection. */
    public static final class Builder {
        private String url = environment("PALIMPSEST_URL", DEFAULT_URL);
        private String apiKey = environment("PALIMPSEST_API_KEY", null);
        private Duration timeout = Duration.ofSeconds(120);
        private int maxRetries = 8;
        private HttpClient httpClient;
        private Executor executor;

        private Builder() {}

        private static String environment(String name, String otherwise) {
            String value = System.getenv(name);
            return value == null || value.isEmpty() ? otherwise : value;
        }

        /** Sets the URL of the server, or its {@code host:port}. Default: {@code PALIMPSEST_URL}. */
        public Builder url(String value) {
            url = value;
            return this;
        }

        /** Sets the API key or JWT. Default: {@code PALIMPSEST_API_KEY}. Null sends none. */
        public Builder apiKey(String value) {
            apiKey = value;
            return this;
        }

        /** Sets the deadline of a call with its retries. Default: 120 seconds. */
        public Builder timeout(Duration value) {
            timeout = value;
            return this;
        }

        /** Sets the maximum number of retries of a call. Default: 8. */
        public Builder maxRetries(int value) {
            maxRetries = value;
            return this;
        }

        /** Sets the HTTP client, for example for certificates or a proxy. */
        public Builder httpClient(HttpClient value) {
            httpClient = value;
            return this;
        }

        /** Sets the executor of {@link Session#sendAsync}. Default: a pool of at most 64 daemon threads. */
        public Builder executor(Executor value) {
            executor = value;
            return this;
        }

        /** Returns the connection. Makes no call. */
        public Palimpsest build() {
            return new Palimpsest(this);
        }
    }
}
