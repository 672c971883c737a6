package palimpsest.springai;

import com.fasterxml.jackson.databind.JsonNode;
import org.springframework.ai.chat.model.ToolContext;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.definition.ToolDefinition;
import palimpsest.Session;

/** A tool of the service, with which the model reads stored results and the transcript of a session. */
final class ServiceTool implements ToolCallback {
    private final Session session;
    private final ToolDefinition definition;

    ServiceTool(Session session, JsonNode tool) {
        this.session = session;
        JsonNode function = tool.path("function");
        definition = ToolDefinition.builder()
                .name(function.path("name").asText())
                .description(function.path("description").asText())
                .inputSchema(function.path("parameters").toString())
                .build();
    }

    @Override
    public ToolDefinition getToolDefinition() {
        return definition;
    }

    @Override
    public String call(String input) {
        // Spring AI does not pass the id of the call on, and writes it into the result itself.
        return session.runTool(null, definition.name(), input);
    }

    @Override
    public String call(String input, ToolContext context) {
        return call(input);
    }
}
