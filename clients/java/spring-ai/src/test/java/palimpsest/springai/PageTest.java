package palimpsest.springai;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static palimpsest.testing.Provider.ANSWER;

import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import palimpsest.testing.JavaProgram;
import palimpsest.testing.Provider;
import palimpsest.testing.Server;

/** Runs the code of the page about Spring AI. */
class PageTest {
    @TempDir
    private Path folder;

    @Test
    void theCodeOfThePageRuns() {
        Provider provider = Provider.shared();
        String call = "{'calls': [{'name': 'read_log'}]}";
        String answer = "{'text': '" + ANSWER + "'}";
        provider.script("gpt-5-mini", call, answer, call, answer, call, answer, "{'text': 'Yes.'}");
        Server server = Server.start(folder.resolve("data"));
        Map<String, String> environment = Map.of(
                "PALIMPSEST_URL", server.url(), "OPENAI_BASE_URL", provider.url() + "/v1", "OPENAI_API_KEY", "key");
        JavaProgram page = new JavaProgram(Path.of("../../../docs/frameworks/spring-ai.md"));
        assertEquals(page.expected(), page.run(folder, environment));
        assertEquals(4, page.count());
        server.kill();
    }
}
