// Writes answers. Values that differ between runs are replaced by stable names.
package palimpsest.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.UnaryOperator;

/** Hides, numbers, replaces and shortens. */
final class Shower {
    /** Shorter values are not replaced within other strings, because they would match by chance. */
    private static final int LEAST_REPLACED = 6;
    /** Longer strings are written as a digest. */
    private static final int MOST_SHOWN = 2_000;
    private static final Comparator<String> LONGEST_FIRST = Comparator.comparingInt(Shower::length).reversed();

    private final Scenario.Rules rules;
    /** The name of each value. */
    private final Map<String, String> numbers = new HashMap<>();
    /** The last number of each label. */
    private final Map<String, Integer> last = new HashMap<>();
    /** Numbered values, in the order of replacement. */
    private final List<String> replaced = new ArrayList<>();
    /** The finished strings of a line, in which nothing else is replaced. */
    private final Set<JsonElement> done = Collections.newSetFromMap(new IdentityHashMap<>());

    Shower(Scenario.Rules rules) {
        this.rules = rules;
    }

    /** Decodes, hides and numbers values. The whole line is processed before `finish` is called for any part of it. */
    JsonElement begin(JsonElement value) {
        return number(decodeAndHide(value));
    }

    private JsonElement decodeAndHide(JsonElement value) {
        return rewrite(value, (key, field) -> {
            String label = rules.hidden().get(key);
            if (label != null) {
                return doneWith("<" + label + ">");
            }
            return rules.text().contains(key) ? eachString(field, Shower::decoded) : decodeAndHide(field);
        });
    }

    private static JsonElement decoded(JsonElement encoded) {
        byte[] bytes = Base64.getDecoder().decode(encoded.getAsString());
        return new JsonPrimitive(new String(bytes, StandardCharsets.UTF_8));
    }

    private JsonElement number(JsonElement value) {
        return rewrite(value, (key, field) -> {
            String label = rules.numbered().get(key);
            boolean named = label != null && (Json.isString(field) || field.isJsonArray());
            return named ? eachString(field, text -> nameOf(text, label)) : number(field);
        });
    }

    /** Returns the name of a value: its earlier name, or the next number of the label. */
    private JsonElement nameOf(JsonElement value, String label) {
        String text = value.getAsString();
        if (text.isEmpty()) {
            return value;
        }
        if (!numbers.containsKey(text)) {
            numbers.put(text, "<" + label + ":" + last.merge(label, 1, Integer::sum) + ">");
            if (length(text) >= LEAST_REPLACED) {
                replaced.add(text);
                replaced.sort(LONGEST_FIRST);
            }
        }
        return doneWith(numbers.get(text));
    }

    private JsonElement doneWith(String text) {
        JsonPrimitive value = new JsonPrimitive(text);
        done.add(value);
        return value;
    }

    /** Replaces numbered values within other strings of a line, and shortens long strings. */
    JsonObject finish(JsonObject line) {
        JsonObject finished = finished(line).getAsJsonObject();
        done.clear();
        return finished;
    }

    private JsonElement finished(JsonElement value) {
        if (Json.isString(value)) {
            return done.contains(value) ? value : new JsonPrimitive(finished(value.getAsString()));
        }
        if (value.isJsonArray()) {
            return each(value.getAsJsonArray(), this::finished);
        }
        return rewrite(value, (key, field) -> finished(field));
    }

    private String finished(String text) {
        String shown = text;
        for (String known : replaced) {
            shown = shown.replace(known, numbers.get(known));
        }
        byte[] bytes = shown.getBytes(StandardCharsets.UTF_8);
        if (bytes.length <= MOST_SHOWN) {
            return shown;
        }
        return "<" + bytes.length + " bytes, sha256 " + HexFormat.of().formatHex(Json.sha256(bytes)) + ">";
    }

    /** Counts code points, not UTF-16 units. */
    private static int length(String text) {
        return text.codePointCount(0, text.length());
    }

    /** Returns a copy in which `change` replaces each field of every outermost object, by sorted keys. */
    private static JsonElement rewrite(JsonElement value, BiFunction<String, JsonElement, JsonElement> change) {
        if (value.isJsonArray()) {
            return each(value.getAsJsonArray(), element -> rewrite(element, change));
        }
        if (!value.isJsonObject()) {
            return value;
        }
        JsonObject object = value.getAsJsonObject();
        JsonObject changed = new JsonObject();
        for (String key : Json.sorted(object.keySet())) {
            changed.add(key, change.apply(key, object.get(key)));
        }
        return changed;
    }

    private static JsonArray each(JsonArray array, UnaryOperator<JsonElement> change) {
        JsonArray changed = new JsonArray();
        array.forEach(element -> changed.add(change.apply(element)));
        return changed;
    }

    /** Changes a string, or each string of an array. Other values stay as they are. */
    private static JsonElement eachString(JsonElement value, UnaryOperator<JsonElement> change) {
        if (value.isJsonArray()) {
            return each(value.getAsJsonArray(), element -> eachString(element, change));
        }
        return Json.isString(value) ? change.apply(value) : value;
    }
}
