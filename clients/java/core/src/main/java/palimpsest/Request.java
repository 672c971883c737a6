package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** One call: an HTTP method, a path below {@code /v1}, and the query or the body. */
record Request(String method, String path, Map<String, ?> query, ObjectNode body) {
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

    /** Returns an id as a segment of a path. A proxy can resolve some texts to the path of another resource. */
    static String segment(String id) {
        if (id.isEmpty() || id.equals(".") || id.equals("..")) {
            throw new IllegalArgumentException("An id of a project or session must not be empty, . or ..");
        }
        return encode(id);
    }

    /** Returns a text as a segment of a path, or as a value of a query. */
    static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
