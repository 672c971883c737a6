package palimpsest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import palimpsest.OriginalMessages.Call;

/** The places of messages in a view, and aliases of ids of calls. */
class OriginalMessagesTest {
    private static ObjectNode chat(String roleAndText) {
        String[] parts = roleAndText.split(" ");
        return Json.object().put("role", parts[0]).put("content", parts[1]);
    }

    /** Returns the numbers of the originals of a view, or -1. */
    private static List<Integer> places(List<String> synced, String... view) {
        OriginalMessages<Integer> originals = new OriginalMessages<>();
        synced.forEach(it -> originals.add(chat(it), originals.json().size()));
        return originals.of(Arrays.stream(view).map(OriginalMessagesTest::chat).toList()).stream()
                .map(it -> it.original().orElse(-1))
                .toList();
    }

    @Test
    void equalTextsAreMatchedFromTheEnd() {
        List<String> synced = List.of("assistant done", "user ok", "assistant done");
        assertEquals(List.of(2), places(synced, "assistant done"));
        assertEquals(List.of(-1, 1, 2), places(synced, "user summary", "user ok", "assistant done"));
        assertEquals(List.of(0, 1, 2), places(synced, "assistant done", "user ok", "assistant done"));
    }

    @Test
    void theRoleIsPartOfAMessage() {
        List<String> synced = List.of("assistant done", "user done");
        assertEquals(List.of(0), places(synced, "assistant done"));
        assertEquals(List.of(-1, 1), places(synced, "system done", "user done"));
    }

    @Test
    void textsKeepTheirOrder() {
        assertEquals(List.of(-1, 0), places(List.of("user b", "user a"), "user a", "user b"));
    }

    @Test
    void callsWithoutAnOriginalKeepTheirNamesAndIds() {
        OriginalMessages<String> originals = new OriginalMessages<>();
        List<Call> calls = List.of(new Call("a b", "first", "{}"), new Call("a b", "second", "{}"));
        originals.add(chat("assistant x"), calls, "calls");
        ObjectNode changed = originals.json().get(0).deepCopy();
        String second = changed.path("tool_calls").path(1).path("id").asText();
        assertNotEquals(changed.path("tool_calls").path(0).path("id").asText(), second);
        changed.withArray("tool_calls").remove(0);
        ObjectNode result = Json.object().put("role", "tool").put("tool_call_id", second);
        var shown = originals.of(List.of(changed, result));
        assertEquals(List.of(calls.get(1)), shown.get(0).calls());
        assertEquals("second", shown.get(1).toolName());
        assertEquals("a b", shown.get(1).chat().path("tool_call_id").asText());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a b", "\u00e9", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"})
    void otherIdsHaveAliases(String id) {
        CallIds ids = new CallIds();
        String alias = ids.ofCall(id);
        assertEquals(new CallIds().ofCall(id), alias);
        assertEquals(alias, ids.ofResult(id));
        assertEquals(id, ids.original(alias));
        assertEquals(37, alias.length());
    }

    @Test
    void resultsOfARepeatedIdBelongToItsOpenCalls() {
        CallIds ids = new CallIds();
        List<String> aliases = List.of(ids.ofCall("c"), ids.ofCall("c"));
        assertEquals("c", aliases.get(0));
        assertEquals("c", ids.original(aliases.get(1)));
        assertEquals(aliases, List.of(ids.ofResult("c"), ids.ofResult("c")));
        assertEquals(aliases.get(1), ids.ofResult("c"));
    }
}
