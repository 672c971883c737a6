package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/** One call: an HTTP method, a path below {@code /v1}, and the query or the body. */
record Request(String method, String path, Map<String, ?> query, ObjectNode body) {
    private static final Pattern ID = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._-]*");

    /** Returns a call without a body. */
    static Request read(String path, Map<String, ?> query) {
        return new Request("GET", path, query, null);
    }

    /** Returns the request for a page of a list. The token is a field of the body, if there is one. */
    Request page(String token) {
        if (token.isEmpty()) {
            return this;
        }
        if (body != null) {
            return new Request(method, path, query, body.deepCopy().put("page_token", token));
        }
        Map<String, Object> next = new HashMap<>(query);
        next.put("page_token", token);
        return new Request(method, path, next, null);
    }

    /** Returns the path and the query. */
    String target() {
        List<String> pairs = new ArrayList<>();
        query.forEach((name, value) -> {
            JsonNode json = Json.tree(value);
            List<JsonNode> values = json.isArray() ? Json.list(json) : List.of(json);
            values.forEach(it -> pairs.add(name + "=" + encode(it.asText())));
        });
        return pairs.isEmpty() ? path : path + "?" + String.join("&", pairs);
    }

    /** Returns the valid id of a project. */
    static String projectId(String id) {
        return checked("project", id, 64);
    }

    /** Returns the valid id of a session. */
    static String sessionId(String id) {
        return checked("session", id, 128);
    }

    /** Returns a valid id, which is a segment of a path. Another id could name the path of another resource. */
    private static String checked(String kind, String id, int limit) {
        if (!ID.matcher(id).matches() || id.length() > limit) {
            throw new IllegalArgumentException("The id \"" + id + "\" of a " + kind + " is invalid. Use at most "
                    + limit + " letters, digits, \"-\", \"_\" and \".\", and begin with a letter or a digit.");
        }
        return id;
    }

    /** Returns a text as a segment of a path, or as a value of a query. */
    static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
