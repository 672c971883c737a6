// Canonical JSON: one way to write a value down. Gson's is not it: it escapes line separators, and writes
// numbers as they came.
package palimpsest.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.math.BigDecimal;
import java.math.RoundingMode;

/** The writer. */
final class Canonical {
    private Canonical() {}

    static String write(JsonElement value) {
        StringBuilder out = new StringBuilder();
        append(out, value);
        return out.toString();
    }

    private static void append(StringBuilder out, JsonElement value) {
        if (value.isJsonObject()) {
            appendObject(out, value.getAsJsonObject());
        } else if (value.isJsonArray()) {
            appendArray(out, value.getAsJsonArray());
        } else if (value.isJsonNull()) {
            out.append("null");
        } else {
            appendPrimitive(out, value.getAsJsonPrimitive());
        }
    }

    private static void appendObject(StringBuilder out, JsonObject object) {
        String before = "{";
        for (String key : Json.sorted(object.keySet())) {
            appendString(out.append(before), key);
            append(out.append(':'), object.get(key));
            before = ",";
        }
        out.append(object.size() == 0 ? "{}" : "}");
    }

    private static void appendArray(StringBuilder out, JsonArray array) {
        String before = "[";
        for (JsonElement element : array) {
            append(out.append(before), element);
            before = ",";
        }
        out.append(array.size() == 0 ? "[]" : "]");
    }

    private static void appendPrimitive(StringBuilder out, JsonPrimitive value) {
        if (value.isString()) {
            appendString(out, value.getAsString());
        } else if (value.isBoolean()) {
            out.append(value.getAsBoolean());
        } else {
            appendNumber(out, value.getAsString());
        }
    }

    private static void appendString(StringBuilder out, String text) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            switch (c) {
                case '"', '\\' -> out.append('\\').append(c);
                case '\b' -> out.append("\\b");
                case '\t' -> out.append("\\t");
                case '\n' -> out.append("\\n");
                case '\f' -> out.append("\\f");
                case '\r' -> out.append("\\r");
                default -> {
                    if (c < 0x20) {
                        out.append(String.format("\\u%04x", (int) c));
                    } else {
                        out.append(c);
                    }
                }
            }
        }
        out.append('"');
    }

    /** Whole numbers have no point; others are rounded to six digits after it, without zeros at the end. */
    private static void appendNumber(StringBuilder out, String number) {
        if (number.matches("-?[0-9]+")) {
            out.append(number);
            return;
        }
        // By way of a double, so that what is rounded is the number itself and not how it was written.
        BigDecimal exact = new BigDecimal(Double.parseDouble(number));
        out.append(exact.setScale(6, RoundingMode.HALF_EVEN).stripTrailingZeros().toPlainString());
    }
}
