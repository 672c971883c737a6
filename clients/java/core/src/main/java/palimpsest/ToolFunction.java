package palimpsest;

import com.fasterxml.jackson.databind.JsonNode;

/** The function of a tool. */
@FunctionalInterface
public interface ToolFunction {
    /**
     * Runs the tool with the input of the model.
     *
     * @return text, or a list of content parts of the provider. Any other value is written as JSON
     * @throws Exception if the tool fails. The model receives the message as an error result
     */
    Object run(JsonNode input) throws Exception;
}
