package harness;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import langchain4j.LangChain4jAgent;
import springai.SpringAiAgent;

/** Plays one conversation with the agent of a framework, whose name is the argument. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        Harness harness = new Harness(
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)),
                new PrintStream(System.out, true, StandardCharsets.UTF_8));
        // The standard output has only the lines of the harness.
        System.setOut(System.err);
        // Logs are off, because there is no provider for them. SLF4J would warn of that.
        System.setProperty("slf4j.internal.verbosity", "ERROR");
        Description description = harness.receive(Description.class);
        Agent agent = switch (arguments[0]) {
            case "spring_ai" -> new SpringAiAgent(harness, description);
            case "langchain4j" -> new LangChain4jAgent(harness, description);
            default -> throw new IllegalArgumentException("unknown framework: " + arguments[0]);
        };
        JsonNode request = harness.receive(JsonNode.class);
        while (request != null) {
            if (request.has("stored")) {
                harness.send("stored", agent.stored());
            } else {
                answer(harness, agent, request.get("ask").textValue());
            }
            request = harness.receive(JsonNode.class);
        }
        // The threads of HTTP clients would delay the end.
        System.exit(0);
    }

    private static void answer(Harness harness, Agent agent, String text) {
        String answer;
        try {
            answer = agent.ask(text);
        } catch (RuntimeException error) {
            harness.send("error", Objects.requireNonNullElse(error.getMessage(), error.toString()));
            return;
        }
        harness.send("answer", answer);
    }
}
