// The addresses of the servers, and the keys.
package palimpsest.clients;

import com.google.gson.JsonObject;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.TlsChannelCredentials;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;

/** The servers' addresses and the keys, by name. Channels are created on first use. */
record World(Map<String, String> servers, File caFile, Map<String, String> keys, Map<String, ManagedChannel> channels)
        implements AutoCloseable {

    /** Maximum size of an answer. The default of gRPC is 4 MiB. */
    private static final int MOST_RECEIVED = 32 << 20;

    static World read(JsonObject file) {
        return new World(
                Scenario.strings(file, "servers"),
                new File(file.get("ca_file").getAsString()),
                Scenario.strings(file, "keys"),
                new HashMap<>());
    }

    /** Returns the channel to a server. TLS verifies the certificate with the world's CA and the name `localhost`. */
    ManagedChannel channel(String server) {
        return channels.computeIfAbsent(server, name -> connect(known(servers, "server", name)));
    }

    /** Returns a key by its name. */
    String key(String name) {
        return known(keys, "key", name);
    }

    private ManagedChannel connect(String address) {
        try {
            return Grpc.newChannelBuilder(address, TlsChannelCredentials.newBuilder().trustManager(caFile).build())
                    .overrideAuthority("localhost")
                    .maxInboundMessageSize(MOST_RECEIVED)
                    .build();
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    private static String known(Map<String, String> names, String what, String name) {
        String found = names.get(name);
        if (found == null) {
            throw new IllegalArgumentException("the world has no " + what + " " + name);
        }
        return found;
    }

    @Override
    public void close() {
        channels.values().forEach(ManagedChannel::shutdownNow);
    }
}
