// The scenario's file.
package palimpsest.clients;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Long texts by name, the rules for writing answers, and the steps in order. */
record Scenario(Map<String, String> texts, Rules show, List<Step> steps) {

    /** The keys whose values are hidden or numbered, with the label of each. */
    record Rules(Map<String, String> hidden, Map<String, String> numbered, Set<String> text) {}

    static Scenario read(JsonObject file) {
        Map<String, String> texts = new LinkedHashMap<>();
        for (Map.Entry<String, JsonElement> named : file.getAsJsonObject("texts").entrySet()) {
            texts.put(named.getKey(), text(named.getValue().getAsJsonObject()));
        }
        JsonObject show = file.getAsJsonObject("show");
        Set<String> decoded = new LinkedHashSet<>();
        show.getAsJsonArray("text").forEach(key -> decoded.add(key.getAsString()));
        List<Step> steps = new ArrayList<>();
        for (JsonElement step : file.getAsJsonArray("steps")) {
            steps.add(Step.read(step.getAsJsonObject()));
        }
        return new Scenario(texts, new Rules(strings(show, "hidden"), strings(show, "numbered"), decoded), steps);
    }

    /** Reads an object of strings. Returns an empty map if the object is missing. */
    static Map<String, String> strings(JsonObject object, String name) {
        Map<String, String> strings = new LinkedHashMap<>();
        if (object.has(name)) {
            object.getAsJsonObject(name)
                    .entrySet()
                    .forEach(it -> strings.put(it.getKey(), it.getValue().getAsString()));
        }
        return strings;
    }

    private static String text(JsonObject rule) {
        String before = rule.get("before").getAsString();
        String after = rule.get("after").getAsString();
        int count = rule.get("count").getAsInt();
        StringBuilder text = new StringBuilder();
        for (int n = 1; n <= count; n++) {
            text.append(before).append(n).append(after);
        }
        return text.toString();
    }
}
