package palimpsest;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;

/** Options of a sync. Each method returns a copy with one more option. */
public final class SyncOptions {
    private final ObjectNode parameters;
    private final boolean readBack;

    /** Creates options with the defaults. */
    public SyncOptions() {
        this(Json.object(), true);
    }

    private SyncOptions(ObjectNode parameters, boolean readBack) {
        this.parameters = parameters;
        this.readBack = readBack;
    }

    /** Returns options with a field of {@code SyncContextRequest}, such as {@code target}. */
    public SyncOptions parameter(String name, Object value) {
        return new SyncOptions(parameters.deepCopy().set(name, Json.tree(value)), readBack);
    }

    /**
     * Returns options that request a shorter view.
     *
     * @param error the exception with which the provider rejected the last view as too long. Null has no effect
     */
    public SyncOptions tooLong(Throwable error) {
        return error == null
                ? this
                : parameter("prompt_too_long", Map.of("error_text", String.valueOf(error.getMessage())));
    }

    /** Returns options that set cache breakpoints in the request, for Anthropic. */
    public SyncOptions cacheBreakpoints() {
        return parameter("cache_breakpoints", Map.of());
    }

    /** Returns options for {@link Session#send} that do not add the tools of the service to the request. */
    public SyncOptions withoutReadBack() {
        return new SyncOptions(parameters, false);
    }

    ObjectNode parameters() {
        return parameters;
    }

    boolean readBack() {
        return readBack;
    }
}
