package palimpsest.testing;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import palimpsest.Palimpsest;

/** A server of Palimpsest. */
public final class Server extends Program {
    /** The path of the server. */
    public static final String BINARY = System.getenv("PALIMPSEST_BINARY");

    private static Server shared;

    private final String address;

    private Server(String listen, Path data, String... arguments) {
        super(Stream.concat(
                        Stream.of(BINARY, "serve", "--listen", listen, "--data-dir", data.toString()),
                        Stream.concat(Stream.of("--log-format", "json"), Stream.of(arguments)))
                .toArray(String[]::new));
        try {
            address =
                    new JsonMapper().readTree(line("\"serving\"")).path("grpc").asText();
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Starts a server with a folder of data. */
    public static Server start(Path data, String... arguments) {
        return new Server("127.0.0.1:0", data, arguments);
    }

    /** Starts a server with the data and the address of one that has ended. */
    public static Server restart(Server ended, Path data) {
        return new Server(ended.address, data);
    }

    /** Returns the server that the tests of a process share. */
    public static synchronized Server shared() {
        if (shared == null) {
            try {
                shared = start(Files.createTempDirectory("palimpsest-data-"));
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        return shared;
    }

    /** Returns the host and the port. */
    public String address() {
        return address;
    }

    /** Returns the base URL. */
    public String url() {
        return "http://" + address;
    }

    /** Returns a connection. */
    public Palimpsest connect() {
        return Palimpsest.builder().url(url()).build();
    }
}
