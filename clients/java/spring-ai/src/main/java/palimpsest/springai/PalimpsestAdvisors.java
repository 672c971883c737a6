package palimpsest.springai;

import java.util.List;
import org.springframework.ai.chat.client.advisor.api.Advisor;
import org.springframework.ai.chat.memory.ChatMemory;
import palimpsest.Palimpsest;

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

    /**
     * Returns the advisors for a client with one conversation, and a server with the address {@code PALIMPSEST_URL}.
     *
     * @param session the id of the session of calls without {@link ChatMemory#CONVERSATION_ID}
     */
    public static List<Advisor> of(String project, String session) {
        return of(new Palimpsest(), project, session);
    }

    /** Returns the advisors for a connection and a project. */
    public static List<Advisor> of(Palimpsest client, String project) {
        return of(client, project, null);
    }

    /**
     * Returns the advisors for a connection and a client with one conversation.
     *
     * @param session the id of the session of calls without {@link ChatMemory#CONVERSATION_ID}. Null rejects such calls
     */
    public static List<Advisor> of(Palimpsest client, String project, String session) {
        Sessions sessions = new Sessions(client, project, session);
        return List.of(new ToolsAdvisor(sessions), new ViewAdvisor(sessions));
    }

    /**
     * Returns the advisors without the tools of the service. The model then cannot read removed content.
     *
     * @param session the id of the session of calls without {@link ChatMemory#CONVERSATION_ID}. Null rejects such calls
     */
    public static List<Advisor> withoutReadBack(Palimpsest client, String project, String session) {
        return List.of(new ViewAdvisor(new Sessions(client, project, session)));
    }
}
