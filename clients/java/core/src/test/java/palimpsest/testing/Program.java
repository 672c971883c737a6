package palimpsest.testing;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** A program that ends with the tests. Its output goes to a file, because nobody reads a pipe. */
public class Program {
    private final Path output;
    private final Process process;

    Program(String... command) {
        try {
            output = Files.createTempFile("palimpsest-", ".log");
            output.toFile().deleteOnExit();
            ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
            Map<String, String> environment = builder.environment();
            // The server rejects variables with its prefix that are no settings.
            environment.keySet().removeIf(it -> it.startsWith("PALIMPSEST_"));
            environment.put("PALIMPSEST_ADMIN_LISTEN", "127.0.0.1:0");
            process = builder.redirectOutput(output.toFile()).start();
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits for the first line with a text. */
    String line(String part) {
        try {
            while (process.isAlive()) {
                for (String line : Files.readString(output).split("(?<=\n)")) {
                    if (line.contains(part) && line.endsWith("\n")) {
                        return line.strip();
                    }
                }
                Thread.sleep(20);
            }
            throw new IllegalStateException("no line with " + part + ": " + Files.readString(output));
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Sends a signal, such as {@code STOP}. */
    public void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid()))
                    .start()
                    .waitFor();
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Ends the program after the work in flight. */
    public void stop() {
        process.destroy();
        try {
            process.waitFor();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Ends the program at once. */
    public void kill() {
        process.destroyForcibly();
    }
}
