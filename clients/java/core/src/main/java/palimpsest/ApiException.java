package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A failed call. */
public final class ApiException extends PalimpsestException {
    private static final long serialVersionUID = 1L;

    /** Codes for answers of proxies, which have no error body of the service. */
    private static final Map<Integer, String> CODES = Map.of(
            400, "INVALID_ARGUMENT",
            401, "UNAUTHENTICATED",
            403, "PERMISSION_DENIED",
            404, "NOT_FOUND",
            413, "RESOURCE_EXHAUSTED",
            429, "RESOURCE_EXHAUSTED",
            500, "INTERNAL",
            502, "UNAVAILABLE",
            503, "UNAVAILABLE",
            504, "DEADLINE_EXCEEDED");

    private final String code;
    private final int status;
    private final transient List<JsonNode> details;
    private final String reason;
    private final Map<String, String> metadata;
    private final Duration retryAfter;

    private ApiException(String code, String message, int status, List<JsonNode> details, Throwable cause) {
        super(message, cause);
        this.code = code;
        this.status = status;
        this.details = List.copyOf(details);
        JsonNode info = detail("ErrorInfo");
        reason = info.path("reason").asText("");
        Map<String, String> found = new HashMap<>();
        info.path("metadata")
                .properties()
                .forEach(it -> found.put(it.getKey(), it.getValue().asText()));
        metadata = Map.copyOf(found);
        // proto3 JSON writes a duration as seconds with an `s`, which is also the syntax of ISO 8601.
        String delay = detail("RetryInfo").path("retryDelay").asText("");
        retryAfter = delay.isEmpty() ? null : Duration.parse("PT" + delay);
    }

    static ApiException ofConnection(String code, Throwable cause) {
        return new ApiException(code, "Cannot reach the service: " + cause, 0, List.of(), cause);
    }

    static ApiException streamEnded() {
        return new ApiException("UNAVAILABLE", "The stream ended early.", 0, List.of(), null);
    }

    /** Returns true if JSON is an error of the service. Errors of providers have no name of a status. */
    static boolean isOfService(JsonNode body) {
        return body.path("error").path("status").isTextual();
    }

    /** Returns the exception for a response without an error of the service. */
    static ApiException ofOtherServer(String url, int status) {
        String message = "The response from " + url + " has the HTTP status " + status + " and no error of Palimpsest: "
                + (status == 404 || status == 405
                        ? "this is no Palimpsest server. Check the URL of the server."
                        : "a proxy answered, or this is no Palimpsest server.");
        return new ApiException(CODES.getOrDefault(status, "UNKNOWN"), message, status, List.of(), null);
    }

    /** Returns the exception for the JSON of an error of the service. */
    static ApiException of(JsonNode body) {
        JsonNode error = body.path("error");
        return new ApiException(
                error.path("status").asText("UNKNOWN"),
                error.path("message").asText(),
                error.path("code").asInt(),
                Json.list(error.path("details")),
                null);
    }

    private JsonNode detail(String kind) {
        return details.stream()
                .filter(it -> it.path("@type").asText().endsWith("." + kind))
                .findFirst()
                .orElse(Json.object());
    }

    /** Returns the status code, such as {@code NOT_FOUND}. */
    public String code() {
        return code;
    }

    /** Returns the HTTP status, or 0 if the server did not answer. */
    public int status() {
        return status;
    }

    /** Returns the stable name of the cause, such as {@code SESSION_NOT_FOUND}. Empty for errors of the connection. */
    public String reason() {
        return reason;
    }

    /** Returns the values of the reason, such as {@code session}. */
    public Map<String, String> metadata() {
        return metadata;
    }

    /** Returns all details of the error, as JSON of {@code google.rpc}. */
    public List<JsonNode> details() {
        return details;
    }

    /** Returns the delay before a retry, if the error has one. */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retryAfter);
    }

    /** Returns true if the contract permits a retry of the same call. */
    public boolean retryable() {
        return retryAfter != null || code.equals("UNAVAILABLE") || code.equals("DEADLINE_EXCEEDED");
    }

    @Override
    public String toString() {
        return getClass().getName() + ": " + (reason.isEmpty() ? code : reason) + ": " + getMessage();
    }
}
