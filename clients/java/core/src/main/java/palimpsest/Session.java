package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** One conversation of one agent. It is created with the first sync. Threads can share it. */
public final class Session {
    private static final System.Logger LOGGER = System.getLogger("palimpsest");

    /** The complete responses of the SDKs. A stream has no calls yet, and must not be read. */
    private static final Set<String> RESPONSES = Set.of(
            "com.anthropic.models.messages.Message",
            "com.anthropic.models.messages.StructuredMessage",
            "com.anthropic.models.beta.messages.BetaMessage",
            "com.anthropic.models.beta.messages.StructuredMessage",
            "com.openai.models.chat.completions.ChatCompletion",
            "com.openai.models.chat.completions.StructuredChatCompletion",
            "com.openai.models.responses.Response",
            "com.openai.models.responses.StructuredResponse");

    /** An etag of no view. */
    private static final String NO_VIEW = "AA==";

    private final Connection connection;
    private final String project;
    private final String id;
    private final Format format;
    private final Options options;
    private final State state;

    /** The tools of the service, the last response, whose usage goes with the next sync, and the last view. */
    private record State(
            Map<Format, List<ObjectNode>> tools,
            AtomicReference<ModelResponse> lastResponse,
            AtomicReference<KnownView> lastView) {}

    /** A view without the system messages in front of it. The service sends the difference to it. */
    private record KnownView(String etag, List<ObjectNode> messages) {}

    Session(Connection connection, String project, String id, Format format, Options options) {
        this(
                connection,
                project,
                id,
                format,
                options,
                new State(new ConcurrentHashMap<>(), new AtomicReference<>(), new AtomicReference<>()));
    }

    private Session(Connection connection, String project, String id, Format format, Options options, State state) {
        this.connection = connection;
        // Invalid ids fail here, and not in a call.
        this.project = Request.projectId(project);
        this.id = Request.sessionId(id);
        this.format = format;
        this.options = options;
        this.state = state;
    }

    /** Returns the resource name, {@code projects/{project}/sessions/{session}}. */
    public String name() {
        return "projects/" + project + "/sessions/" + id;
    }

    @Override
    public String toString() {
        return "Session(" + name() + ")";
    }

    /** Returns the same session with another deadline of its calls. */
    public Session withTimeout(Duration timeout) {
        return new Session(connection, project, id, format, new Options(timeout, options.maxRetries()), state);
    }

    /** Returns the same session with another maximum number of retries. */
    public Session withMaxRetries(int maxRetries) {
        return new Session(connection, project, id, format, new Options(options.timeout(), maxRetries), state);
    }

    /** Syncs the body of the next model request with the default options. */
    public <T> View<T> sync(T body) {
        return sync(body, new SyncOptions());
    }

    /**
     * Sends the body of the next model request and returns the view. A repeat is safe.
     *
     * @param body the body with the whole conversation: parameters of the SDK of OpenAI or Anthropic, a map, or JSON
     */
    public <T> View<T> sync(T body, SyncOptions syncOptions) {
        return sync(Body.of(body, format), syncOptions);
    }

    private <T> View<T> sync(Body<T> body, SyncOptions syncOptions) {
        ObjectNode values = Json.object();
        if (body.format() != null) {
            values.put("format", body.format().value());
        }
        if (body.target() != null) {
            values.set("target", body.target());
        }
        ModelResponse last = state.lastResponse().get();
        if (last != null) {
            values.putObject("last_response")
                    .put("format", last.format().value())
                    .set("json", last.json());
        }
        KnownView known = state.lastView().get();
        // With an etag, also an unknown one, the reply never has the system messages.
        values.put("known_etag", known == null ? NO_VIEW : known.etag());
        values.setAll(syncOptions.parameters());
        ObjectNode synced = body.readFields().set("palimpsest", values);
        Attempts attempts = new Attempts(options);
        ObjectNode reply = connection.http().send(new Request("POST", path(":sync"), Map.of(), synced), attempts);
        List<ObjectNode> messages = new ArrayList<>();
        if (known != null) {
            messages.addAll(
                    known.messages().subList(0, reply.path("keep_messages").asInt()));
        }
        messages.addAll(Json.objects(reply.path("messages")));
        if (reply.path("view_omitted").asBoolean()) {
            messages.addAll(omitted(reply, attempts));
        }
        if (!body.json().path("tools").isEmpty()) {
            connection.lanes().viewed(name(), reply.path("session").asText());
        }
        state.lastResponse().compareAndSet(last, null);
        state.lastView().set(new KnownView(reply.path("etag").asText(), List.copyOf(messages)));
        messages.addAll(0, body.systemMessages(reply.path("lead_messages").asInt()));
        connection.warningLog().log(reply);
        return new View<>(body, messages, reply);
    }

    /** Returns the messages that a reply omits because of its size, with the other attempts of the sync. */
    private List<ObjectNode> omitted(ObjectNode reply, Attempts attempts) {
        ObjectNode body = Json.object();
        body.set("etag", reply.path("etag"));
        body.set("skip_messages", reply.path("keep_messages"));
        // The etag is that of a lane for a side request.
        Request request = new Request("POST", pathOf(reply.path("session").asText()) + ":stream", Map.of(), body);
        while (true) {
            try (Lines chunks = connection.http().lines(request, attempts)) {
                return messages(chunks);
            } catch (ApiException error) {
                attempts.waitAfter(error);
            }
        }
    }

    private static List<ObjectNode> messages(Lines chunks) {
        List<ObjectNode> messages = new ArrayList<>();
        while (chunks.hasNext()) {
            ObjectNode chunk = chunks.next();
            messages.addAll(Json.objects(chunk.path("messages")));
            if (chunk.path("last").asBoolean()) {
                return messages;
            }
        }
        throw ApiException.streamEnded();
    }

    /** Syncs and calls the model with the default options. */
    public <T, R> R send(T body, Function<? super T, R> call) {
        return send(body, new SyncOptions(), call);
    }

    /**
     * Syncs and calls the model. The request also has the tools of the service, with which the model reads removed
     * content. If the provider rejects the prompt as too long, it is shortened and sent once more. If no level can
     * shorten it, the exception of the provider is thrown, with that of the service among its suppressed ones.
     *
     * @param body the body with the whole conversation
     * @param call the method of the SDK that sends a request, such as {@code client.messages()::create}
     * @return the result of the SDK
     * @throws NotSendableException if the view must not be sent
     */
    public <T, R> R send(T body, SyncOptions syncOptions, Function<? super T, R> call) {
        Body<T> request = request(body, syncOptions);
        View<T> first = sync(request, syncOptions);
        T toSend = first.request();
        R response;
        try {
            response = call.apply(toSend);
        } catch (RuntimeException error) {
            if (!TooLong.matches(error)) {
                throw error;
            }
            View<T> shorter;
            try {
                shorter = sync(request, syncOptions.tooLong(error));
            } catch (ApiException failure) {
                throw TooLong.reported(error, failure);
            }
            return assigned(shorter, call.apply(shorter.request()));
        }
        return assigned(first, response);
    }

    private <R> R assigned(View<?> view, R response) {
        if (response != null && RESPONSES.contains(response.getClass().getName())) {
            assignCalls(view, response);
        }
        return response;
    }

    /**
     * Lets calls of a response read the session that took the array of a view. {@link #send} does this for each
     * complete response of an SDK. Other calls read the session that took the last array with tools.
     *
     * @param response the response of the SDK, or its JSON
     */
    public void assignCalls(View<?> view, Object response) {
        ModelResponse.of(response).calls().forEach(it -> connection.lanes().called(name(), it.id(), view.session()));
    }

    /**
     * Syncs on a thread of the executor of the connection and calls the model with an asynchronous method of the SDK,
     * as {@link #send} does. If the result is cancelled or completed, for example by {@code orTimeout}, the sync
     * ends, or the call of the model is cancelled.
     */
    public <T, R> CompletableFuture<R> sendAsync(T body, Function<? super T, CompletableFuture<R>> call) {
        SyncOptions first = new SyncOptions();
        AsyncWork<R> work = new AsyncWork<>(connection.executor());
        return work.endWith(sendOnce(work, body, first, call).exceptionallyCompose(error -> {
            if (!TooLong.matches(error)) {
                return CompletableFuture.failedFuture(error);
            }
            return sendOnce(work, body, first.tooLong(error), call)
                    .exceptionallyCompose(failure -> CompletableFuture.failedFuture(TooLong.reported(error, failure)));
        }));
    }

    private <T, R> CompletableFuture<R> sendOnce(
            AsyncWork<R> work, T body, SyncOptions syncOptions, Function<? super T, CompletableFuture<R>> call) {
        return work.run(() -> sync(request(body, syncOptions), syncOptions))
                .thenCompose(view ->
                        work.await(() -> call.apply(view.request())).thenApply(response -> assigned(view, response)));
    }

    private <T> Body<T> request(T given, SyncOptions syncOptions) {
        Body<T> body = Body.of(given, format);
        return syncOptions.readBack() ? body.withTools(tools(chosen(body.format()))) : body;
    }

    private Format chosen(Format given) {
        Format chosen = given != null ? given : format;
        if (chosen == null) {
            throw new IllegalArgumentException("Pass a format to tools(), or to the session.");
        }
        return chosen;
    }

    /** Returns the definitions of the tools of the service in the format of the session. */
    public List<ObjectNode> tools() {
        return tools(chosen(null));
    }

    /**
     * Returns the definitions of the tools of the service, for {@code tools} of the model request. The model reads
     * stored results and the transcript with them.
     */
    public List<ObjectNode> tools(Format toolsFormat) {
        return state.tools().computeIfAbsent(toolsFormat, it -> {
            ObjectNode reply = call(Request.read(path("/tools"), Map.of("format", it)));
            return Json.list(reply.path("tools")).stream()
                    .map(tool -> (ObjectNode) tool.path("definition"))
                    .toList();
        });
    }

    /** Returns the definitions of the tools of the service as objects of an SDK, such as {@code ToolUnion}. */
    public <M> List<M> tools(Format toolsFormat, Class<M> type) {
        return tools(toolsFormat).stream().map(it -> Json.convert(it, type)).toList();
    }

    /**
     * Returns true if a call of the model names a tool of the service. The names are known after {@link #tools} or
     * {@link #send}.
     */
    public boolean isOwn(Object call) {
        return isOwn(ToolCall.of(call));
    }

    private boolean isOwn(ToolCall call) {
        return state.tools().values().stream()
                .flatMap(List::stream)
                .map(it ->
                        it.path("function").path("name").asText(it.path("name").asText()))
                .anyMatch(call.name()::equals);
    }

    /** Runs a call of a tool of the service and returns the result in the format of the call. */
    public ObjectNode runTool(Object call) {
        return runOwn(ToolCall.of(call));
    }

    private ObjectNode runOwn(ToolCall call) {
        ObjectNode body = Json.object();
        body.putObject("payload").put("format", call.format().value()).set("json", call.json());
        body.put("request_id", requestId());
        String lane = pathOf(connection.lanes().of(name(), call.id()));
        return (ObjectNode)
                call(new Request("POST", lane + ":callTool", Map.of(), body)).path("tool_result");
    }

    /**
     * Runs a call of a tool of the service in OpenAI's Chat format, for adapters of frameworks.
     *
     * @param callId the id of the call, or null if the framework does not pass it on
     * @return the text of the result
     */
    public String runTool(String callId, String toolName, String arguments) {
        String callOrRandomId = callId == null ? requestId() : callId;
        ObjectNode call = new OriginalMessages.Call(callOrRandomId, toolName, arguments).json();
        return runTool(call).path("content").asText();
    }

    /**
     * Runs the tool calls of a response and returns the messages to append to the conversation: those of the response,
     * and the results. The service runs calls of its own tools. An error of the service or of a function becomes an
     * error result for the model, and an interrupt of the thread an exception. The usage of the response is sent with
     * the next sync.
     *
     * @param response the response of the SDK, or its JSON
     * @param tools a function for the name of each tool of the agent
     */
    public List<ObjectNode> answer(Object response, Map<String, ToolFunction> tools) {
        ModelResponse parsed = ModelResponse.of(response);
        state.lastResponse().set(parsed);
        return parsed.with(parsed.calls().stream().map(it -> run(it, tools)).toList());
    }

    /** Answers a response with messages of an SDK, such as {@code MessageParam}. */
    public <M> List<M> answer(Object response, Map<String, ToolFunction> tools, Class<M> type) {
        return answer(response, tools).stream()
                .map(it -> Json.convert(it, type))
                .toList();
    }

    private ObjectNode run(ToolCall call, Map<String, ToolFunction> tools) {
        ToolFunction tool = tools.get(call.name());
        try {
            if (tool != null) {
                return call.result(tool.run(call.input()), false);
            }
            if (isOwn(call)) {
                return runOwn(call);
            }
            throw new NoSuchElementException("no tool has the name " + call.name());
        } catch (Exception error) {
            if (error instanceof InterruptedException interrupt) {
                throw PalimpsestException.interrupted(interrupt);
            }
            if (Thread.currentThread().isInterrupted()) {
                throw error instanceof RuntimeException runtime ? runtime : new IllegalStateException(error);
            }
            LOGGER.log(System.Logger.Level.WARNING, "The tool " + call.name() + " failed", error);
            return call.result(error.getClass().getSimpleName() + ": " + error.getMessage(), true);
        }
    }

    /** Compacts the session now and returns the {@code CompactResponse}. */
    public ObjectNode compact() {
        return compact(Map.of());
    }

    /** Compacts the session now, with fields of {@code CompactRequest}. */
    public ObjectNode compact(Map<String, ?> fields) {
        return change("POST", ":compact", fields);
    }

    /**
     * Undoes the last compaction, collapse, clear or snip of the view. Another call undoes the one before.
     *
     * @return the {@code RestoreContextResponse}, or nothing if nothing can be undone
     */
    public Optional<ObjectNode> undo() {
        return undo(Map.of());
    }

    /**
     * Undoes the last change of the view, with fields of {@code RestoreContextRequest}. {@code Map.of("force", true)}
     * also restores a view that exceeds the limit of a request. Without it, the call fails with the reason
     * {@code RESTORE_OVER_BLOCK}.
     *
     * @return the {@code RestoreContextResponse}, or nothing if nothing can be undone
     */
    public Optional<ObjectNode> undo(Map<String, ?> fields) {
        OptionalLong revision = new UndoSearch().revisionIn(events(UndoSearch.QUERY));
        return revision.isEmpty() ? Optional.empty() : Optional.of(restore(revision.getAsLong(), fields));
    }

    /** Restores the view of a revision and returns the {@code RestoreContextResponse}. */
    public ObjectNode restore(long toRevision) {
        return restore(toRevision, Map.of());
    }

    /** Restores the view of a revision, with other fields of {@code RestoreContextRequest}, such as {@code force}. */
    public ObjectNode restore(long toRevision, Map<String, ?> fields) {
        Map<String, Object> all = new HashMap<>(fields);
        all.put("to_revision", toRevision);
        return change("POST", ":restore", all);
    }

    /** Returns the session: its state, counts, policy and budget. */
    public ObjectNode get() {
        return (ObjectNode) call(Request.read(path(""), Map.of())).path("session");
    }

    /** Creates the session with fields of {@code Session}, such as {@code policy_overrides}. */
    public ObjectNode create(Map<String, ?> fields) {
        ObjectNode body = Json.object().put("request_id", requestId()).put("session_id", id);
        body.set("session", Json.tree(fields));
        String path = "/projects/" + project + "/sessions";
        return (ObjectNode) call(new Request("POST", path, Map.of(), body)).path("session");
    }

    /** Changes fields of the session, such as {@code title}, {@code attributes} or {@code policy_overrides}. */
    public ObjectNode update(Map<String, ?> fields) {
        return (ObjectNode) change("PATCH", "", Map.of("session", fields)).path("session");
    }

    /** Deletes the session with all its data. A missing session is no error. */
    public void delete() {
        call(new Request("DELETE", path(""), Map.of("allow_missing", true), null));
    }

    /** Returns the session memory: the running summary of the session. */
    public JsonNode memory() {
        return call(Request.read(path("/memory"), Map.of())).path("memory");
    }

    /** Returns the messages of the transcript. The pages are read on demand. */
    public Stream<ObjectNode> messages() {
        return messages(Map.of());
    }

    /** Returns messages of the transcript for parameters of {@code ListMessages}, such as {@code descending}. */
    public Stream<ObjectNode> messages(Map<String, ?> query) {
        Map<String, Object> all = new HashMap<>(query);
        if (format != null) {
            all.putIfAbsent("format", format);
        }
        return pages(Request.read(path("/messages"), all), "messages");
    }

    /** Returns the places of the transcript with a text. */
    public Stream<ObjectNode> search(String text) {
        return search(Map.of("literal", text));
    }

    /**
     * Returns the places of the transcript that match a regular expression. The service uses the syntax of RE2, without
     * references and lookarounds.
     *
     * @throws IllegalArgumentException if a flag is neither {@code CASE_INSENSITIVE}, {@code UNICODE_CASE},
     *     {@code MULTILINE}, {@code DOTALL} nor {@code LITERAL}
     */
    public Stream<ObjectNode> search(Pattern pattern) {
        int flags = pattern.flags();
        int known =
                Pattern.CASE_INSENSITIVE | Pattern.UNICODE_CASE | Pattern.MULTILINE | Pattern.DOTALL | Pattern.LITERAL;
        if ((flags & ~known) != 0) {
            throw new IllegalArgumentException("The service has no counterpart for a flag of the pattern " + pattern);
        }
        boolean ignoreCase = (flags & Pattern.CASE_INSENSITIVE) != 0;
        if ((flags & Pattern.LITERAL) != 0) {
            return search(Map.of("literal", pattern.pattern(), "ignore_case", ignoreCase));
        }
        String inline =
                ((flags & Pattern.MULTILINE) != 0 ? "(?m)" : "") + ((flags & Pattern.DOTALL) != 0 ? "(?s)" : "");
        return search(Map.of("regex", inline + pattern.pattern(), "ignore_case", ignoreCase));
    }

    private Stream<ObjectNode> search(Map<String, ?> pattern) {
        ObjectNode body = Json.object().set("pattern", Json.tree(pattern));
        return pages(new Request("POST", path("/messages:search"), Map.of(), body), "hits");
    }

    /** Returns the recorded events, all or those of some kinds. */
    public Stream<ObjectNode> events(String... kinds) {
        return events(Map.of("kinds", List.of(kinds)));
    }

    /** Returns events for parameters of {@code ListEvents}, such as {@code after_revision}. */
    public Stream<ObjectNode> events(Map<String, ?> query) {
        return pages(Request.read(path("/events"), query), "events");
    }

    /** Returns events as they happen, beginning with the first. */
    public Stream<ObjectNode> watch(String... kinds) {
        return watch(0, kinds);
    }

    /**
     * Returns events after a revision as they happen, without an end. Reconnects after errors that can be retried.
     * Close the stream to end it. Any thread can close it.
     */
    public Stream<ObjectNode> watch(long afterRevision, String... kinds) {
        Watch watch = new Watch(connection.http(), path("/events:watch"), afterRevision, List.of(kinds), options);
        return Iterators.stream(watch).onClose(watch::close);
    }

    private String path(String suffix) {
        return "/projects/" + project + "/sessions/" + id + suffix;
    }

    /** Returns the path of a resource name. */
    private static String pathOf(String name) {
        return "/" + Stream.of(name.split("/")).map(Request::encode).collect(Collectors.joining("/"));
    }

    private static String requestId() {
        return UUID.randomUUID().toString();
    }

    /** Makes a change. The {@code request_id} makes its retries safe. */
    private ObjectNode change(String method, String suffix, Object fields) {
        ObjectNode body = (ObjectNode) Json.tree(fields);
        return call(new Request(method, path(suffix), Map.of(), body.put("request_id", requestId())));
    }

    private ObjectNode call(Request request) {
        return connection.http().send(request, options);
    }

    private Stream<ObjectNode> pages(Request request, String items) {
        return Iterators.pages(connection.http(), request, options, items);
    }
}
