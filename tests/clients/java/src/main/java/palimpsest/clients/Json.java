// Helpers for JSON and bytes.
package palimpsest.clients;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Set;

/** Helpers. */
final class Json {
    /** Compares by UTF-8 bytes. The order of `String` differs for surrogates. */
    private static final Comparator<String> BY_BYTES =
            (a, b) -> Arrays.compareUnsigned(a.getBytes(UTF_8), b.getBytes(UTF_8));

    private Json() {}

    static boolean isString(JsonElement value) {
        return value.isJsonPrimitive() && value.getAsJsonPrimitive().isString();
    }

    static List<String> sorted(Set<String> keys) {
        List<String> sorted = new ArrayList<>(keys);
        sorted.sort(BY_BYTES);
        return sorted;
    }

    static byte[] sha256(byte[] bytes) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(bytes);
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError("every Java platform has SHA-256", impossible);
        }
    }
}
