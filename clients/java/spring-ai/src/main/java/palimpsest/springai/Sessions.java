package palimpsest.springai;

import java.util.Map;
import org.springframework.ai.chat.memory.ChatMemory;
import palimpsest.Format;
import palimpsest.Palimpsest;
import palimpsest.Session;

/** The sessions of the calls of a client. {@code defaultId} is that of a call without a conversation, or null. */
record Sessions(Palimpsest client, String project, String defaultId) {
    /** Returns the session of a call with a context. */
    Session of(Map<String, ?> context) {
        Object id = context.get(ChatMemory.CONVERSATION_ID);
        if (id == null && defaultId == null) {
            throw new IllegalArgumentException("The call has no conversation. Pass its id:"
                    + " .advisors(it -> it.param(ChatMemory.CONVERSATION_ID, \"task-42\"))");
        }
        return client.session(project, id == null ? defaultId : id.toString(), Format.OPENAI_CHAT);
    }
}
