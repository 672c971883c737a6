package palimpsest.springai;

import java.util.List;
import java.util.Map;
import org.springframework.ai.chat.client.advisor.api.Advisor;
import org.springframework.ai.chat.memory.ChatMemory;
import palimpsest.Format;
import palimpsest.Palimpsest;
import palimpsest.Session;

/**
 * The advisors that give the conversations of a {@code ChatClient} to sessions.
 *
 * <p>The session of a call has the id of its conversation, the parameter {@link ChatMemory#CONVERSATION_ID}.
 */
public final class PalimpsestAdvisors {
    private PalimpsestAdvisors() {}

    /** Returns the advisors for a server with the address {@code PALIMPSEST_URL}. */
    public static List<Advisor> of(String project) {
        return of(new Palimpsest(), project);
    }

    /** Returns the advisors for a connection and a project. */
    public static List<Advisor> of(Palimpsest client, String project) {
        return List.of(new ToolsAdvisor(client, project), new ViewAdvisor(client, project));
    }

    static Session session(Palimpsest client, String project, Map<String, ?> context) {
        Object id = context.get(ChatMemory.CONVERSATION_ID);
        if (id == null) {
            throw new IllegalArgumentException("The call has no conversation. Pass its id:"
                    + " .advisors(it -> it.param(ChatMemory.CONVERSATION_ID, \"task-42\"))");
        }
        return client.session(project, id.toString(), Format.OPENAI_CHAT);
    }
}
