package harness;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.Map;

/**
 * The description of an agent, which is the first line from the harness.
 *
 * @param tools the tools by their names, with the description of each argument
 */
public record Description(
        String variant,
        String model,
        String url,
        String key,
        @JsonProperty("max_output") int maxOutput,
        int window,
        String system,
        Map<String, Map<String, String>> tools) {}
