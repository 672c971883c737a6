// Plays steps and keeps the state between them.
package palimpsest.clients;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import io.grpc.Metadata;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** One scenario against one world. */
final class Player implements AutoCloseable {
    private final World world;
    private final Shower shower;
    private final Values values = new Values();
    /** The messages of each array, as bytes. Messages are never parsed. */
    private final Map<String, List<byte[]>> arrays = new HashMap<>();
    private final Map<String, Call> held = new HashMap<>();

    Player(Scenario scenario, World world) {
        this.world = world;
        shower = new Shower(scenario.show());
        scenario.texts().forEach((name, text) -> values.put(name, new JsonPrimitive(text)));
    }

    /** Plays one step and returns its line. */
    JsonObject play(Step step) {
        Call.Outcome made = perform(step);
        boolean isOk = made.refused() == null;
        JsonObject line = new JsonObject();
        JsonElement whole = made.streaming() || !isOk ? made.answers() : made.answers().get(0);
        if (!isOk && !step.clientStatus()) {
            String message = made.refused().getStatus().getDescription();
            line.addProperty("message", message == null ? "" : message);
            JsonArray details = Contract.details(made.refused());
            if (!details.isEmpty()) {
                line.add("details", shower.begin(details));
            }
        }
        if (made.streaming() && !made.answers().isEmpty()) {
            line.add("answers", shower.begin(whole));
        } else if (!made.streaming() && isOk) {
            line.add("answer", shower.begin(whole));
        }
        JsonObject shown = shownHeaders(step, made);
        if (shown.size() > 0) {
            line.add("headers", shown);
        }
        JsonArray checks = isOk ? follow(step, made.answers(), whole, line) : new JsonArray();
        JsonObject finished = shower.finish(line);
        finished.addProperty("step", step.name());
        finished.addProperty("status", isOk ? "OK" : made.refused().getStatus().getCode().name());
        if (!checks.isEmpty()) {
            finished.add("checks", checks);
        }
        return finished;
    }

    /** Makes the step's call, or resumes a held one. */
    private Call.Outcome perform(Step step) {
        String name = step.resume() + step.release();
        if (!name.isEmpty()) {
            Call call = held.get(name);
            if (call == null) {
                throw new IllegalArgumentException("no call is held as " + name);
            }
            if (!step.resume().isEmpty()) {
                return call.read(step.read());
            }
            held.remove(name).cancel();
            return new Call.Outcome(true, new JsonArray(), null, null, null);
        }
        Call call = new Call(step, world, Canonical.write(values.fill(step.request())));
        Call.Outcome made = call.read(step.read());
        if (step.hold().isEmpty()) {
            call.cancel();
        } else {
            held.put(step.hold(), call);
        }
        return made;
    }

    /** Processes the answers of a successful call: array, captures and checks. */
    private JsonArray follow(Step step, JsonArray answers, JsonElement whole, JsonObject line) {
        if (!step.array().isEmpty()) {
            answers.forEach(answer -> extend(step.array(), answer.getAsJsonObject()));
            line.addProperty("array", new String(arrayText(step.array()), UTF_8));
        }
        step.capture().forEach((name, path) -> values.put(name, Values.lookUp(whole, path)));
        JsonArray results = new JsonArray();
        for (JsonElement check : step.checks()) {
            results.add(check(values.fill(check).getAsJsonObject(), answers, whole));
        }
        return results;
    }

    /** Keeps the prefix of the array that the answer states, and appends the answer's messages. */
    private void extend(String name, JsonObject answer) {
        List<byte[]> array = arrays.computeIfAbsent(name, it -> new ArrayList<>());
        int keep = 0;
        for (String key : List.of("keepMessages", "firstMessageIndex")) {
            keep = answer.has(key) ? answer.get(key).getAsInt() : keep;
        }
        if (keep > array.size()) {
            throw new IllegalStateException(
                    "the answer keeps " + keep + " messages, and the array " + name + " has " + array.size());
        }
        array.subList(keep, array.size()).clear();
        if (answer.has("messagesJson")) {
            answer.getAsJsonArray("messagesJson")
                    .forEach(message -> array.add(Base64.getDecoder().decode(message.getAsString())));
        }
    }

    private byte[] arrayText(String name) {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        String before = "[";
        for (byte[] message : arrays.getOrDefault(name, List.of())) {
            text.writeBytes(before.getBytes(UTF_8));
            text.writeBytes(message);
            before = ",";
        }
        text.writeBytes((before.equals("[") ? "[]" : "]").getBytes(UTF_8));
        return text.toByteArray();
    }

    /** Evaluates a check of the client. */
    private boolean check(JsonObject check, JsonArray answers, JsonElement whole) {
        JsonElement equals = check.get("equals");
        if (check.has("value")) {
            JsonElement value = Values.lookUp(whole, check.get("value").getAsString());
            return Canonical.write(value).equals(Canonical.write(equals));
        }
        if (check.has("array")) {
            return sameDigest(arrayText(check.get("array").getAsString()), arrayText(equals.getAsString()));
        }
        String field = check.get("bytes").getAsString();
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (JsonElement answer : answers) {
            JsonElement part = answer.getAsJsonObject().get(field);
            all.writeBytes(part == null ? new byte[0] : Base64.getDecoder().decode(part.getAsString()));
        }
        byte[] text = equals.getAsString().getBytes(UTF_8);
        int from = check.has("from") ? check.get("from").getAsInt() : 0;
        int to = check.has("to") ? check.get("to").getAsInt() : text.length;
        return sameDigest(all.toByteArray(), Arrays.copyOfRange(text, from, to));
    }

    private static boolean sameDigest(byte[] one, byte[] other) {
        return Arrays.equals(Json.sha256(one), Json.sha256(other));
    }

    /** Returns the headers that a step names: from the headers of the call, otherwise from its trailers. */
    private static JsonObject shownHeaders(Step step, Call.Outcome made) {
        JsonObject shown = new JsonObject();
        for (String name : step.headersShown()) {
            for (Metadata from : Arrays.asList(made.headers(), made.trailers())) {
                String value = from == null ? null : from.get(Call.header(name));
                if (value != null) {
                    shown.addProperty(name, value);
                    break;
                }
            }
        }
        return shown;
    }

    @Override
    public void close() {
        held.values().forEach(Call::cancel);
    }
}
