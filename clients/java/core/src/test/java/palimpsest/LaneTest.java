package palimpsest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.anthropic.models.beta.messages.BetaMessage;
import com.anthropic.models.messages.Message;
import com.anthropic.models.messages.StructuredMessage;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.StructuredChatCompletion;
import com.openai.models.responses.Response;
import com.openai.models.responses.StructuredResponse;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import palimpsest.testing.Provider;
import palimpsest.testing.Server;

/** Side requests, whose arrays go to another session than the named one. */
class LaneTest {
    private static final Map<String, Object> READ = Map.of(
            "type",
            "tool_use",
            "id",
            "c2",
            "name",
            "ReadToolResult",
            "input",
            Map.of("tool_use_id", "c1", "tail_lines", 1));

    private Session context;

    @BeforeEach
    void name(TestInfo test) {
        String name = test.getTestMethod().orElseThrow().getName();
        context = Server.shared().connect().session("lanes", name, Format.ANTHROPIC_MESSAGES);
    }

    private static Map<String, Object> user(Object content) {
        return Map.of("role", "user", "content", content);
    }

    private static Map<String, Object> body(List<?> messages) {
        Map<String, Object> tool = Map.of("name", "read_log", "input_schema", Map.of("type", "object"));
        return Map.of("model", "claude-fake", "messages", messages, "tools", List.of(tool));
    }

    private void fill() {
        Map<String, Object> answer = Map.of("role", "assistant", "content", "answer");
        context.sync(body(List.of(user("question"), answer, user("last question"))));
    }

    private static Map<String, Object> sideRequest() {
        Map<String, Object> call = Map.of("type", "tool_use", "id", "c1", "name", "read_log", "input", Map.of());
        Map<String, Object> result = Map.of("type", "tool_result", "tool_use_id", "c1", "content", Provider.LOG);
        return body(List.of(
                user("Write a title."), Map.of("role", "assistant", "content", List.of(call)), user(List.of(result))));
    }

    @Test
    void aLargeViewOfALaneIsStreamed() {
        context.create(Map.of("policy_overrides", Map.of("limits", Map.of("max_reply_bytes", 65_536))));
        fill();
        View<Map<String, Object>> lane = context.sync(body(List.of(user("Write a title. " + "word ".repeat(20_000)))));
        assertNotEquals(context.name(), lane.session());
        assertTrue(lane.reply().path("view_omitted").asBoolean());
        assertTrue(lane.messages().toString().contains("word word"));
    }

    @Test
    void callsReadTheSessionOfTheLastViewWithTools() {
        context.tools();
        fill();
        assertNotEquals(context.name(), context.sync(sideRequest()).session());
        assertEquals("disk full\n", context.runTool(READ).path("content").asText());
    }

    @Test
    void callsReadTheSessionOfTheirView() {
        context.tools();
        fill();
        View<Map<String, Object>> lane = context.sync(sideRequest());
        // The agent goes on before the side request is answered.
        fill();
        context.assignCalls(lane, Map.of("content", List.of(READ)));
        List<ObjectNode> answer = context.answer(Map.of("content", List.of(READ)), Map.of());
        assertTrue(answer.get(1).toString().contains("disk full"), answer.toString());
    }

    private static final Map<String, Object> MESSAGE = Map.of(
            "id",
            "msg_1",
            "type",
            "message",
            "role",
            "assistant",
            "model",
            "claude-fake",
            "content",
            List.of(READ),
            "usage",
            Map.of("input_tokens", 1, "output_tokens", 1));

    private static Map<String, Object> completion() {
        Map<String, Object> function = Map.of("name", READ.get("name"), "arguments", arguments());
        Map<String, Object> call = Map.of("id", "c2", "type", "function", "function", function);
        Map<String, Object> message = Map.of("role", "assistant", "content", "", "tool_calls", List.of(call));
        return Map.of("id", "a", "model", "gpt-5", "choices", List.of(Map.of("index", 0, "message", message)));
    }

    private static Map<String, Object> response() {
        Map<String, Object> call =
                Map.of("type", "function_call", "call_id", "c2", "name", READ.get("name"), "arguments", arguments());
        return Map.of("id", "a", "model", "gpt-5", "output", List.of(call));
    }

    private static String arguments() {
        return Json.tree(READ.get("input")).toString();
    }

    /** The complete responses of the SDKs, also those with structured output. */
    static Stream<Object> responses() {
        Message message = Json.convert(Json.tree(MESSAGE), Message.class);
        BetaMessage beta = Json.convert(Json.tree(MESSAGE), BetaMessage.class);
        ChatCompletion completion = Json.convert(Json.tree(completion()), ChatCompletion.class);
        Response response = Json.convert(Json.tree(response()), Response.class);
        return Stream.of(
                message,
                new StructuredMessage<>(Map.class, message),
                beta,
                new com.anthropic.models.beta.messages.StructuredMessage<>(Map.class, beta),
                completion,
                new StructuredChatCompletion<>(Map.class, completion),
                response,
                new StructuredResponse<>(Map.class, response));
    }

    @ParameterizedTest
    @MethodSource("responses")
    void sendRecordsTheCallsOfAResponse(Object response) {
        String name = response.getClass().getName();
        context = Server.shared().connect().session("lanes", name, Format.ANTHROPIC_MESSAGES);
        fill();
        assertSame(response, context.send(sideRequest(), it -> response));
        fill();
        assertTrue(context.answer(response, Map.of()).toString().contains("disk full"));
    }

    @Test
    void anErrorOfTheServiceKeepsTheResultsOfFunctions() {
        context.tools();
        Map<String, Object> call = Map.of("type", "tool_use", "id", "c1", "name", "read_log", "input", Map.of());
        Map<String, Object> response = Map.of("content", List.of(call, READ));
        // No sync has created the session, so the call of its tool fails.
        ObjectNode results =
                context.answer(response, Map.of("read_log", input -> "the log")).get(1);
        assertEquals("the log", results.at("/content/0/content").asText());
        assertTrue(results.at("/content/1/is_error").asBoolean());
        assertTrue(results.at("/content/1/content").asText().contains("does not exist"));
    }
}
