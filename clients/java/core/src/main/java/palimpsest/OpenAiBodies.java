package palimpsest;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.openai.core.JsonValue;
import com.openai.core.ObjectMappers;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.responses.ResponseCreateParams;

/** Parameters of OpenAI's SDK. This class is loaded only if an agent passes them. */
final class OpenAiBodies {
    private OpenAiBodies() {}

    static Body<?> of(Object given) {
        if (given instanceof ChatCompletionCreateParams params) {
            return new Body<>(json(params._body()), Format.OPENAI_CHAT, changed -> chat(params, changed));
        }
        if (given instanceof ResponseCreateParams params) {
            return new Body<>(json(params._body()), Format.OPENAI_RESPONSES, changed -> responses(params, changed));
        }
        throw Body.unknown(given);
    }

    private static ObjectNode json(Object body) {
        return ObjectMappers.jsonMapper().valueToTree(body);
    }

    // A JsonValue is a JsonField of any type, which the Kotlin type `JsonField<Nothing>` does not express in Java.
    @SuppressWarnings("unchecked")
    private static ChatCompletionCreateParams chat(ChatCompletionCreateParams params, ObjectNode changed) {
        ChatCompletionCreateParams.Builder builder = params.toBuilder();
        if (changed.has("messages")) {
            builder.messages(JsonValue.fromJsonNode(changed.get("messages")));
        }
        if (changed.has("tools")) {
            builder.tools(JsonValue.fromJsonNode(changed.get("tools")));
        }
        return builder.build();
    }

    @SuppressWarnings("unchecked")
    private static ResponseCreateParams responses(ResponseCreateParams params, ObjectNode changed) {
        ResponseCreateParams.Builder builder = params.toBuilder();
        if (changed.has("input")) {
            builder.input(JsonValue.fromJsonNode(changed.get("input")));
        }
        if (changed.has("tools")) {
            builder.tools(JsonValue.fromJsonNode(changed.get("tools")));
        }
        return builder.build();
    }
}
