package palimpsest;

import com.anthropic.core.JsonValue;
import com.anthropic.core.ObjectMappers;
import com.anthropic.models.messages.MessageCreateParams;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** Parameters of Anthropic's SDK. This class is loaded only if an agent passes them. */
final class AnthropicBodies {
    private AnthropicBodies() {}

    static Body<?> of(Object given) {
        if (given instanceof MessageCreateParams params) {
            ObjectNode json = ObjectMappers.jsonMapper().valueToTree(params._body());
            return new Body<>(json, Format.ANTHROPIC_MESSAGES, changed -> messages(params, changed));
        }
        throw Body.unknown(given);
    }

    // A JsonValue is a JsonField of any type, which the Kotlin type `JsonField<Nothing>` does not express in Java.
    @SuppressWarnings("unchecked")
    private static MessageCreateParams messages(MessageCreateParams params, ObjectNode changed) {
        MessageCreateParams.Builder builder = params.toBuilder();
        if (changed.has("messages")) {
            builder.messages(JsonValue.fromJsonNode(changed.get("messages")));
        }
        if (changed.has("tools")) {
            builder.tools(JsonValue.fromJsonNode(changed.get("tools")));
        }
        if (changed.has("system")) {
            builder.system(JsonValue.fromJsonNode(changed.get("system")));
        }
        return builder.build();
    }
}
