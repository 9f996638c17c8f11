package dev.osb;

import dev.osb.wire.Json;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A real server on the embedded runtime, in a directory and on a port of its own. Needs root, and osb and execd: OSB_BIN, or
 * what {@code cargo build} left, the newest of it.
 */
final class Server implements AutoCloseable {
    static final String API_KEY = "sdk-test-key";
    /** What it takes at most to start, also on a busy machine. */
    private static final long START_SECONDS = 60;

    private final Path place;
    private final Process process;
    private final String address;

    Server() throws Exception {
        Path osb = program();
        place = Files.createTempDirectory("osb-java-");
        List<String> command = new ArrayList<>(List.of(osb.toString(), "server", "--port", "0"));
        for (String setting : List.of("log.format=json", "server.api_key=" + API_KEY, "embedded.data_dir=" + place,
            "embedded.ready_sandboxes=4", "runtime.execd_path=" + osb.resolveSibling("execd"))) {
            command.addAll(List.of("--set", setting));
        }
        ProcessBuilder builder = new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD);
        builder.environment().remove("SANDBOX_CONFIG_PATH");
        builder.environment().put("HOME", place.toString());
        process = builder.start();
        address = ready().get(START_SECONDS, TimeUnit.SECONDS);
    }

    private static Path program() throws IOException {
        String given = System.getenv("OSB_BIN");
        if (given != null) return Path.of(given);
        Path repository = Path.of("").toAbsolutePath();
        while (!Files.exists(repository.resolve("Cargo.lock"))) repository = repository.getParent();
        String target = System.getenv("CARGO_TARGET_DIR");
        Path built = target == null ? repository.resolve("target") : Path.of(target);
        Path newest = null;
        for (Path path : List.of(built.resolve("release/osb"), built.resolve("debug/osb"))) {
            if (!Files.exists(path)) continue;
            if (newest == null || Files.getLastModifiedTime(path).compareTo(Files.getLastModifiedTime(newest)) > 0) newest = path;
        }
        if (newest == null) throw new IllegalStateException("no osb is built; run: cargo build -p osb -p execd");
        return newest;
    }

    private CompletableFuture<String> ready() {
        CompletableFuture<String> ready = new CompletableFuture<>();
        List<String> log = new ArrayList<>();
        // Reads on, so that the server never waits for its log to be taken.
        Thread reader = new Thread(() -> {
            try (BufferedReader lines = process.errorReader()) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    if (log.size() < 200) log.add(line);
                    if (line.startsWith("{") && Json.parse(line) instanceof Map<?, ?> entry && "ready".equals(entry.get("message"))) {
                        ready.complete((String) entry.get("address"));
                    }
                }
            } catch (IOException error) {
                log.add(error.toString());
            }
            ready.completeExceptionally(new IllegalStateException("the server ended:\n" + String.join("\n", log)));
        });
        reader.setDaemon(true);
        reader.start();
        return ready;
    }

    String address() {
        return address;
    }

    Client client() {
        return new Client(ConnectionConfig.builder().domain(address).apiKey(API_KEY).build());
    }

    /** Sandboxes outlive their server, also those that a test left alive. */
    @Override
    public void close() throws IOException {
        Client client = client();
        client.list(new SandboxFilter().pageSize(200)).forEach(info -> client.sandbox(info.id()).kill());
        process.destroy();
        process.onExit().join();
        try (Stream<Path> walk = Files.walk(place)) {
            for (Path path : walk.sorted(Collections.reverseOrder()).toList()) Files.deleteIfExists(path);
        }
    }
}
