package harness;

import java.util.List;

/** An agent with one conversation. */
public interface Agent {
    /** Returns the answer to an input of the user. */
    String ask(String text);

    /** Returns the results of tools that the framework has stored. */
    List<String> stored();
}
