package palimpsest.langchain4j;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.data.image.Image;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.data.message.ChatMessage;
import dev.langchain4j.data.message.Content;
import dev.langchain4j.data.message.ImageContent;
import dev.langchain4j.data.message.SystemMessage;
import dev.langchain4j.data.message.TextContent;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.data.message.UserMessage;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import palimpsest.OriginalMessages;
import palimpsest.OriginalMessages.Call;
import palimpsest.OriginalMessages.Shown;

/**
 * The messages of a request in OpenAI's Chat format, and back. Messages that the view shows unchanged stay the objects
 * of the request, with attributes, thinking and signatures.
 */
final class ChatMessages {
    private static final JsonMapper JSON = new JsonMapper();

    private final OriginalMessages<ChatMessage> originals = new OriginalMessages<>();
    private final Map<JsonNode, Content> contentByPart = new HashMap<>();

    ChatMessages(List<ChatMessage> messages) {
        messages.forEach(it -> originals.add(chat(it), calls(it), it));
    }

    private ObjectNode chat(ChatMessage message) {
        ObjectNode json = JSON.createObjectNode();
        if (message instanceof SystemMessage system) {
            return json.put("role", "system").put("content", system.text());
        }
        if (message instanceof AiMessage response) {
            return json.put("role", "assistant").put("content", response.text() == null ? "" : response.text());
        }
        if (message instanceof ToolExecutionResultMessage result) {
            json.put("role", "tool").put("tool_call_id", result.id());
            return json.set("content", parts(result.contents()));
        }
        if (message instanceof UserMessage user) {
            return json.put("role", "user").set("content", parts(user.contents()));
        }
        throw new IllegalArgumentException("A " + message.type() + " message cannot be synced.");
    }

    private static List<Call> calls(ChatMessage message) {
        return message instanceof AiMessage response
                ? response.toolExecutionRequests().stream()
                        .map(it -> new Call(it.id(), it.name(), it.arguments()))
                        .toList()
                : List.of();
    }

    /** Returns text, or a list of parts if there is other content. */
    private JsonNode parts(List<Content> contents) {
        if (contents.size() == 1 && contents.get(0) instanceof TextContent text) {
            return JSON.getNodeFactory().textNode(text.text());
        }
        ArrayNode parts = JSON.createArrayNode();
        for (Content content : contents) {
            ObjectNode part = part(content);
            contentByPart.put(part, content);
            parts.add(part);
        }
        return parts;
    }

    private static ObjectNode part(Content content) {
        ObjectNode part = JSON.createObjectNode();
        if (content instanceof TextContent text) {
            return part.put("type", "text").put("text", text.text());
        }
        if (content instanceof ImageContent it) {
            Image image = it.image();
            String url = image.url() != null
                    ? image.url().toString()
                    : "data:" + image.mimeType() + ";base64," + image.base64Data();
            part.put("type", "image_url").putObject("image_url").put("url", url);
            return part;
        }
        // Other content is counted by its text.
        return part.put("type", "text").put("text", content.toString());
    }

    /** Returns the array to sync. */
    List<ObjectNode> json() {
        return originals.json();
    }

    /** Returns the messages of a view. */
    List<ChatMessage> of(List<ObjectNode> view) {
        return originals.of(view).stream().map(this::message).toList();
    }

    private ChatMessage message(Shown<ChatMessage> shown) {
        ChatMessage original = shown.original().orElse(null);
        if (!(original instanceof ToolExecutionResultMessage result)) {
            return original != null ? original : created(shown);
        }
        if (shown.chat().path("content").equals(parts(result.contents()))) {
            return result;
        }
        return ToolExecutionResultMessage.from(result.id(), result.toolName(), shown.text());
    }

    /** Returns a message that the service has written or changed, such as a summary, or a message with an id. */
    private ChatMessage created(Shown<ChatMessage> shown) {
        String text = shown.text();
        return switch (shown.chat().path("role").asText()) {
            case "system", "developer" -> SystemMessage.from(text);
            case "assistant" ->
                AiMessage.builder()
                        .text(text)
                        .toolExecutionRequests(shown.calls().stream()
                                .map(ChatMessages::request)
                                .toList())
                        .build();
            case "tool" ->
                ToolExecutionResultMessage.from(
                        shown.chat().path("tool_call_id").asText(), shown.toolName(), text);
            default -> UserMessage.from(contents(shown.chat(), text));
        };
    }

    private static ToolExecutionRequest request(Call call) {
        return ToolExecutionRequest.builder()
                .id(call.id())
                .name(call.name())
                .arguments(call.arguments())
                .build();
    }

    private List<Content> contents(JsonNode shown, String text) {
        if (!shown.path("content").isArray()) {
            return List.of(TextContent.from(text));
        }
        List<Content> contents = new ArrayList<>();
        for (JsonNode part : shown.path("content")) {
            Content original = contentByPart.get(part);
            contents.add(
                    original != null
                            ? original
                            : TextContent.from(part.path("text").asText()));
        }
        return contents;
    }
}
