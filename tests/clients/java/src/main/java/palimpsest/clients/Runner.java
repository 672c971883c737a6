// Plays a scenario against real servers and writes one line per step, as tests/clients/README.md describes. `Call`
// contains the parts that are specific to the language.
package palimpsest.clients;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;

/** The program: {@code runner SCENARIO WORLD OUTPUT}. */
public final class Runner {
    private Runner() {}

    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            System.err.println("usage: runner SCENARIO WORLD OUTPUT");
            System.exit(64);
        }
        Scenario scenario = Scenario.read(readFile(args[0]));
        try (World world = World.read(readFile(args[1]));
                Player player = new Player(scenario, world);
                Writer output = Files.newBufferedWriter(Path.of(args[2]))) {
            for (Step step : scenario.steps()) {
                output.write(Canonical.write(played(player, step)));
                output.write('\n');
            }
        }
    }

    private static JsonObject played(Player player, Step step) {
        try {
            return player.play(step);
        } catch (Exception wrong) {
            throw new IllegalStateException("step " + step.name() + ": " + wrong.getMessage(), wrong);
        }
    }

    private static JsonObject readFile(String path) throws IOException {
        return JsonParser.parseString(Files.readString(Path.of(path))).getAsJsonObject();
    }
}
