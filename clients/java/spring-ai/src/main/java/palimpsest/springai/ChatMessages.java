package palimpsest.springai;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.messages.AssistantMessage.ToolCall;
import org.springframework.ai.chat.messages.Message;
import org.springframework.ai.chat.messages.SystemMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage.ToolResponse;
import org.springframework.ai.chat.messages.UserMessage;
import org.springframework.ai.content.Media;
import org.springframework.ai.content.MediaContent;
import palimpsest.OriginalMessages;
import palimpsest.OriginalMessages.Call;
import palimpsest.OriginalMessages.Shown;

/**
 * The messages of a prompt in OpenAI's Chat format, and back. Messages that the view shows unchanged stay the objects
 * of the prompt, with media, metadata, thinking and signatures.
 */
final class ChatMessages {
    private static final JsonMapper JSON = new JsonMapper();

    /** A message with several results is the original of each. */
    private final OriginalMessages<Message> originals = new OriginalMessages<>();

    private final Map<JsonNode, Media> mediaByPart = new HashMap<>();

    ChatMessages(List<Message> messages) {
        messages.forEach(this::add);
    }

    static JsonNode parsed(String json) {
        try {
            return JSON.readTree(json);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private void add(Message message) {
        ObjectNode json =
                JSON.createObjectNode().put("role", message.getMessageType().getValue());
        if (message instanceof ToolResponseMessage results) {
            for (ToolResponse it : results.getResponses()) {
                ObjectNode result = json.deepCopy().put("tool_call_id", it.id());
                originals.add(result.put("content", it.responseData()), message);
            }
            return;
        }
        String text = message.getText() == null ? "" : message.getText();
        List<Media> media = message instanceof MediaContent content ? content.getMedia() : List.of();
        if (message instanceof UserMessage && !media.isEmpty()) {
            ArrayNode parts = json.putArray("content");
            parts.addObject().put("type", "text").put("text", text);
            for (Media it : media) {
                ObjectNode part = part(it);
                mediaByPart.put(part, it);
                parts.add(part);
            }
        } else {
            json.put("content", text);
        }
        originals.add(json, calls(message), message);
    }

    private static List<Call> calls(Message message) {
        return message instanceof AssistantMessage response
                ? response.getToolCalls().stream()
                        .map(it -> new Call(it.id(), it.name(), it.arguments()))
                        .toList()
                : List.of();
    }

    private static ObjectNode part(Media media) {
        String type = media.getMimeType().toString();
        String url = media.getData() instanceof byte[] bytes
                ? "data:" + type + ";base64," + Base64.getEncoder().encodeToString(bytes)
                : media.getData().toString();
        ObjectNode part = JSON.createObjectNode();
        if (type.startsWith("image/")) {
            part.put("type", "image_url").putObject("image_url").put("url", url);
        } else {
            part.put("type", "file")
                    .putObject("file")
                    .put("filename", media.getName())
                    .put("file_data", url);
        }
        return part;
    }

    /** Returns the array to sync. */
    List<ObjectNode> json() {
        return originals.json();
    }

    /** Returns the messages of a view. */
    List<Message> of(List<ObjectNode> view) {
        List<Message> messages = new ArrayList<>();
        List<ToolResponse> results = new ArrayList<>();
        for (Shown<Message> shown : originals.of(view)) {
            if (shown.chat().path("role").asText().equals("tool")) {
                String id = shown.chat().path("tool_call_id").asText();
                results.add(new ToolResponse(id, shown.toolName(), shown.text()));
                continue;
            }
            // Results of parallel calls are one message.
            flush(results, messages);
            messages.add(shown.original().orElseGet(() -> created(shown)));
        }
        flush(results, messages);
        return messages;
    }

    private static void flush(List<ToolResponse> results, List<Message> messages) {
        if (!results.isEmpty()) {
            messages.add(ToolResponseMessage.builder()
                    .responses(List.copyOf(results))
                    .build());
            results.clear();
        }
    }

    /** Returns a message that the service has written or changed, such as a summary, or a message with an id. */
    private Message created(Shown<Message> shown) {
        String text = shown.text();
        return switch (shown.chat().path("role").asText()) {
            case "system", "developer" -> new SystemMessage(text);
            case "assistant" ->
                AssistantMessage.builder()
                        .content(text)
                        .toolCalls(shown.calls().stream()
                                .map(it -> new ToolCall(it.id(), "function", it.name(), it.arguments()))
                                .toList())
                        .build();
            default ->
                UserMessage.builder().text(text).media(media(shown.chat())).build();
        };
    }

    private List<Media> media(JsonNode shown) {
        Stream<JsonNode> parts = StreamSupport.stream(shown.path("content").spliterator(), false);
        return parts.filter(mediaByPart::containsKey).map(mediaByPart::get).toList();
    }
}
