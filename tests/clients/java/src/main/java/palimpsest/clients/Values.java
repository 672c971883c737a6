// Placeholders and paths, which insert values of earlier answers and long texts into requests and checks.
package palimpsest.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The values of placeholders, by name. */
final class Values {
    private static final Pattern PLACEHOLDER = Pattern.compile("\\{\\{([^{}]+)\\}\\}");

    private final Map<String, JsonElement> known = new HashMap<>();

    void put(String name, JsonElement value) {
        known.put(name, value);
    }

    /** Replaces placeholders at every depth, then converts objects that describe bytes. */
    JsonElement fill(JsonElement value) {
        if (value.isJsonArray()) {
            JsonArray filled = new JsonArray();
            value.getAsJsonArray().forEach(element -> filled.add(fill(element)));
            return filled;
        }
        if (value.isJsonObject()) {
            JsonObject filled = new JsonObject();
            value.getAsJsonObject().entrySet().forEach(field -> filled.add(field.getKey(), fill(field.getValue())));
            return asBytes(filled);
        }
        return Json.isString(value) ? fillString(value.getAsString()) : value;
    }

    private JsonElement fillString(String text) {
        Matcher found = PLACEHOLDER.matcher(text);
        StringBuilder filled = new StringBuilder();
        int end = 0;
        while (found.find()) {
            JsonElement value = known.get(found.group(1));
            if (value == null) {
                throw new IllegalArgumentException("nothing is known as " + found.group());
            }
            if (found.start() == 0 && found.end() == text.length()) {
                return value;
            }
            filled.append(text, end, found.start());
            filled.append(Json.isString(value) ? value.getAsString() : Canonical.write(value));
            end = found.end();
        }
        return new JsonPrimitive(filled.append(text, end, text.length()).toString());
    }

    /** Converts {@code {"$text": …}} and {@code {"$sha256": …}} to base64. Other objects stay as they are. */
    private static JsonElement asBytes(JsonObject object) {
        boolean isText = object.has("$text");
        if (object.size() != 1 || !(isText || object.has("$sha256"))) {
            return object;
        }
        byte[] bytes = object.get(isText ? "$text" : "$sha256").getAsString().getBytes(StandardCharsets.UTF_8);
        return new JsonPrimitive(Base64.getEncoder().encodeToString(isText ? bytes : Json.sha256(bytes)));
    }

    /** Returns the value at a path of names and indexes. */
    static JsonElement lookUp(JsonElement value, String path) {
        JsonElement inner = value;
        for (String name : path.split("\\.")) {
            if (inner.isJsonObject()) {
                inner = inner.getAsJsonObject().get(name);
            } else if (inner.isJsonArray()) {
                JsonArray array = inner.getAsJsonArray();
                boolean there = name.matches("[0-9]{1,9}") && Integer.parseInt(name) < array.size();
                inner = there ? array.get(Integer.parseInt(name)) : null;
            } else {
                inner = null;
            }
            if (inner == null) {
                throw new IllegalArgumentException(path + " leads nowhere: there is no " + name);
            }
        }
        return inner;
    }
}
