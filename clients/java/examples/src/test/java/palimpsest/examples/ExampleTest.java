package palimpsest.examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static palimpsest.testing.Provider.ANSWER;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import palimpsest.testing.JavaProgram;
import palimpsest.testing.Provider;
import palimpsest.testing.Server;

/** Runs the examples and the code of the README as processes, against real servers. */
class ExampleTest {
    private static final Provider PROVIDER = Provider.shared();
    private static final String CALL = "{'calls': [{'name': 'read_log'}]}";
    private static final String READ_BACK =
            "{'calls': [{'name': 'SearchTranscript', 'input': {'pattern': 'disk full'}}]}";
    private static final String TEXT = "{'text': '" + ANSWER + "'}";

    @TempDir
    private Path folder;

    private static Map<String, String> environment(Server server) {
        Map<String, String> environment = new HashMap<>();
        environment.put("PALIMPSEST_URL", server.url());
        environment.put("PALIMPSEST_ADDRESS", server.address());
        environment.put("ANTHROPIC_BASE_URL", PROVIDER.url());
        environment.put("OPENAI_BASE_URL", PROVIDER.url() + "/v1");
        environment.put("ANTHROPIC_API_KEY", "key");
        environment.put("OPENAI_API_KEY", "key");
        return environment;
    }

    private static String run(String example, String model) {
        Map<String, String> environment = environment(Server.shared());
        environment.put("MODEL", model);
        environment.put("PALIMPSEST_SESSION", model);
        return JavaProgram.run(environment, example, "Why did the build fail?");
    }

    @ParameterizedTest
    @ValueSource(strings = {"AgentOpenAi", "AgentAnthropic"})
    void examplesRun(String example) {
        String model = "fake-" + example;
        // The provider rejects the third request as too long.
        PROVIDER.script(model, CALL, READ_BACK, "{'fault': {'html': 413}}", TEXT);
        assertEquals(ANSWER + "\n", run(example, model));
        assertEquals(List.of(200, 200, 413, 200), PROVIDER.statuses(model));
        List<String> sent = PROVIDER.sent(model);
        assertTrue(sent.get(1).contains("palimpsest://"));
        assertFalse(sent.get(1).contains("disk full"));
        assertTrue(sent.get(2).contains("disk full"));
        assertTrue(sent.get(3).length() < sent.get(2).length());
    }

    @Test
    void theHelperTakesFiveLines() throws Exception {
        String source = Files.readString(Path.of("src/main/java/AgentAnthropic.java"));
        assertEquals(5, source.lines().filter(it -> it.endsWith("// glue")).count());
    }

    /** A library of the client would replace one of the versions that an SDK needs. */
    @Test
    void theClientBringsNoLibraries() throws Exception {
        List<String> dependencies = Pattern.compile("<dependency>(.*?)</dependency>", Pattern.DOTALL)
                .matcher(Files.readString(Path.of("../core/pom.xml")))
                .results()
                .map(MatchResult::group)
                .filter(it -> !it.contains("<artifactId>junit-jupiter</artifactId>"))
                .toList();
        assertEquals(4, dependencies.size());
        assertTrue(dependencies.stream().allMatch(it -> it.contains(">provided<") || it.contains("<optional>")));
    }

    @Test
    void theCodeOfTheReadmeRuns() {
        PROVIDER.script("claude-sonnet-4-5", CALL, READ_BACK, TEXT, "{'text': 'The first one.'}");
        PROVIDER.script("gpt-5-mini", TEXT);
        Server server = Server.start(folder.resolve("data"));
        JavaProgram readme = new JavaProgram(Path.of("../README.md"));
        assertEquals(readme.expected(), readme.run(folder, environment(server)));
        assertEquals(7, readme.count());
        server.kill();
    }
}
