// Writes canonical JSON, which has exactly one form for each value. Gson's output is not canonical: it escapes line
// separators and keeps the original form of numbers.
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

    /** Writes integers without a point and rounds other numbers to six decimals without trailing zeros. */
    private static void appendNumber(StringBuilder out, String number) {
        if (number.matches("-?[0-9]+")) {
            out.append(number);
            return;
        }
        // Converts to double first, so that the number is rounded and not its decimal text.
        BigDecimal exact = new BigDecimal(Double.parseDouble(number));
        out.append(exact.setScale(6, RoundingMode.HALF_EVEN).stripTrailingZeros().toPlainString());
    }
}
