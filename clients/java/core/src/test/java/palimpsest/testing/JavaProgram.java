package palimpsest.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Programs in Java that run in a process of their own, such as the code of a page. */
public final class JavaProgram {
    private static final Pattern BLOCK = Pattern.compile("```(java|text)\n(.*?)```", Pattern.DOTALL);

    private final List<MatchResult> blocks;

    /** Reads the blocks of a page. */
    public JavaProgram(Path page) {
        try {
            blocks = BLOCK.matcher(Files.readString(page)).results().toList();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private Stream<String> blocks(String language) {
        return blocks.stream().filter(it -> it.group(1).equals(language)).map(it -> it.group(2));
    }

    /** Returns the number of blocks with code. */
    public long count() {
        return blocks("java").count();
    }

    /** Returns the output that the page shows. */
    public String expected() {
        return blocks("text").collect(Collectors.joining());
    }

    /** Returns the blocks with code as one program: the imports, the methods, and the statements in order. */
    public String source() {
        List<String> lines = blocks("java").flatMap(String::lines).toList();
        String imports =
                lines.stream().filter(it -> it.startsWith("import ")).distinct().collect(Collectors.joining("\n"));
        String code = lines.stream().filter(it -> !it.startsWith("import ")).collect(Collectors.joining("\n"));
        return imports + "\npublic class Page {\npublic static void main(String[] args) throws Exception {\n" + code
                + "\nSystem.exit(0);\n}\n}\n";
    }

    /** Compiles and runs the code of the page. Warnings of the compiler are errors. */
    public String run(Path folder, Map<String, String> environment) {
        try {
            Path file = Files.writeString(folder.resolve("Page.java"), source());
            String lint = "-Xlint:all,-processing,-classfile,-path";
            execute(
                    environment,
                    "javac",
                    lint,
                    "-Werror",
                    "-proc:none",
                    "-d",
                    folder.toString(),
                    "-cp",
                    classPath(),
                    file.toString());
            return execute(environment, "java", "-XX:TieredStopAtLevel=1", "-cp", folder + ":" + classPath(), "Page");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Runs a class of the class path. */
    public static String run(Map<String, String> environment, String name, String... arguments) {
        List<String> command = new ArrayList<>(List.of("java", "-XX:TieredStopAtLevel=1", "-cp", classPath(), name));
        command.addAll(List.of(arguments));
        return execute(environment, command.toArray(String[]::new));
    }

    private static String classPath() {
        return System.getProperty("java.class.path");
    }

    private static String execute(Map<String, String> environment, String... command) {
        try {
            command[0] =
                    Path.of(System.getProperty("java.home"), "bin", command[0]).toString();
            Path errors = Files.createTempFile("palimpsest-", ".log");
            ProcessBuilder builder = new ProcessBuilder(command).redirectError(errors.toFile());
            builder.environment().putAll(environment);
            Process process = builder.start();
            String output = new String(process.getInputStream().readAllBytes());
            if (process.waitFor() != 0) {
                throw new IllegalStateException(output + Files.readString(errors));
            }
            Files.delete(errors);
            return output;
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
