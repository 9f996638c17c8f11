package dev.osb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.osb.wire.CreateSandboxRequest;
import dev.osb.wire.ReplaceFileContentItem;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The SDK at a real server, for what the shared scenarios do not see: how it feels in this language. */
@Timeout(120)
class LiveTest {
    private static Server server;
    private static Client client;

    @BeforeAll
    static void start() throws Exception {
        server = new Server();
        client = server.client();
    }

    @AfterAll
    static void stop() throws Exception {
        server.close();
    }

    private static void assertGone(String id) {
        ApiException error = assertThrows(ApiException.class, () -> client.get(id));
        assertTrue(error.isNotFound() && error.requestId() != null);
    }

    @Test
    void aBlockEndsItsSandboxUnlessItIsKept() {
        String ended;
        try (Sandbox sandbox = client.create("host", new CreateOptions().name("scoped").env("A", "b"))) {
            ended = sandbox.id();
            assertEquals("scoped", sandbox.info().metadata().get("name"));
            assertEquals("b\n", sandbox.commands().run("echo $A").stdout());
        }
        assertGone(ended);
        Sandbox kept = client.create("host");
        try (kept; Sandbox other = client.connect(kept.id())) {
            assertEquals(kept.id(), other.keep().id());
            kept.keep();
        }
        assertEquals("Running", kept.info().status().state());
        kept.kill();
        kept.kill();
        assertGone(kept.id());
    }

    @Test
    void anInterruptedThreadEndsItsSandboxAllTheSame() {
        Sandbox sandbox = client.create("host");
        Thread.currentThread().interrupt();
        sandbox.close();
        assertTrue(Thread.interrupted());
        assertGone(sandbox.id());
    }

    @Test
    void aKeyMakesACreateSafeToRepeat() {
        CreateOptions options = new CreateOptions().idempotencyKey(java.util.UUID.randomUUID().toString());
        try (Sandbox first = client.create("host", options)) {
            assertEquals(first.id(), client.create("host", options).id());
        }
    }

    @Test
    void commandsHaveOutputCodesInputAndTimeouts() {
        try (Sandbox sandbox = client.create("host")) {
            Commands commands = sandbox.commands();
            List<String> said = new ArrayList<>();
            Output output = commands.run("echo out; echo err >&2; exit 3", new CommandOptions().onStdout(said::add).onStderr(said::add));
            assertEquals(List.of("out\n", "err\n", 3, false), List.of(output.stdout(), output.stderr(), output.exitCode(), output.isSuccess()));
            assertEquals(2, said.size());
            assertEquals(new Ending.Signal("killed"), commands.run("kill -9 $$").ending());
            assertEquals("a b", commands.run(List.of("printf", "%s", "a b"), new CommandOptions().cwd("/tmp")).stdout());
            assertEquals("fed", commands.run("cat", new CommandOptions().stdin("fed")).stdout());
            assertFalse(commands.run("sleep 600", new CommandOptions().timeout(Duration.ofMillis(200))).isSuccess());
            String id = commands.background("echo begun; read line; echo got $line", new CommandOptions().stdinOpen(true));
            assertTrue(commands.status(id).running());
            assertEquals(6, commands.writeStdin(id, "input\n"));
            assertEquals(0, commands.waitFor(id).exitCode());
            assertEquals("begun\ngot input\n", commands.logs(id, null).text());
            assertTrue(commands.list().stream().anyMatch(known -> known.id().equals(id)));
            // Where a reader stopped, another goes on.
            Execution part = commands.follow(id, 0);
            while (!(part.next() instanceof ExecutionEvent.Stdout)) continue;
            part.close();
            assertFalse(part.hasNext());
            assertEquals("got input\n", commands.follow(id, part.lastSeq()).output().stdout());
            commands.setEnv(Map.of("KEPT", "it's"));
            assertEquals("it's\n", commands.run("echo $KEPT").stdout());
            assertThrows(InvalidArgumentException.class, () -> commands.setEnv(Map.of("a-b", "")));
            assertThrows(FailedException.class, () -> commands.background(List.of("/no/such/program"), new CommandOptions()));
        }
    }

    @Test
    void leavingAStreamEarlyLetsTheCommandGoOn() {
        try (Sandbox sandbox = client.create("host")) {
            String id;
            try (Execution execution = sandbox.commands().start("echo one; read x; echo two > /tmp/two", new CommandOptions().stdinOpen(true))) {
                for (ExecutionEvent event : execution) if (event instanceof ExecutionEvent.Stdout) break;
                id = execution.id();
            }
            sandbox.commands().writeStdin(id, "go\n");
            assertEquals(0, sandbox.commands().waitFor(id).exitCode());
            assertEquals("two\n", sandbox.commands().run("cat /tmp/two").stdout());
        }
    }

    @Test
    void aWrongKeyIsSaidToBeWrong() {
        Client stranger = new Client(ConnectionConfig.builder().domain(server.address()).apiKey("wrong").build());
        assertTrue(assertThrows(ApiException.class, () -> stranger.create("host")).isUnauthorized());
    }

    @Test
    void aTunnelIsAByteStreamInBothDirections() throws IOException {
        try (Sandbox sandbox = client.create("host")) {
            Execution listening = sandbox.commands().start("python3 -uc \"import socket; s=socket.create_server(('127.0.0.1',7000)); print('up'); c,_=s.accept(); "
                + "c.sendall(b''.join(iter(lambda: c.recv(100), b''))[::-1]); c.close()\"");
            while (!(listening.next() instanceof ExecutionEvent.Stdout)) continue;
            try (Tunnel tunnel = sandbox.tunnel(7000)) {
                tunnel.output().write("abcd".getBytes(StandardCharsets.US_ASCII));
                tunnel.finishOutput();
                assertEquals("dcba", new String(tunnel.input().readAllBytes(), StandardCharsets.US_ASCII));
            }
            List<ExecutionEvent> rest = new ArrayList<>();
            listening.forEachAsync(rest::add).join();
            assertEquals(ExecutionEvent.Completed.class, rest.get(rest.size() - 1).getClass());
        }
    }

    @Test
    void filesAreTextBytesAndStreams() {
        try (Sandbox sandbox = client.create("host")) {
            Files files = sandbox.files();
            files.write("/tmp/d/text", Contents.of("grüße"), Permission.mode(0640));
            assertEquals("grüße", files.readText("/tmp/d/text"));
            assertEquals(0640, files.info(List.of("/tmp/d/text")).get("/tmp/d/text").mode());
            byte[] big = new byte[4 * 1024 * 1024];
            for (int at = 0; at < big.length; at++) big[at] = (byte) (at >> 16);
            files.write("/tmp/d/big", Contents.of(new ByteArrayInputStream(big)), Permission.DEFAULT);
            try (ByteStream stream = files.download("/tmp/d/big")) {
                assertEquals(big.length, stream.length());
                assertTrue(java.util.Arrays.equals(big, stream.readAllBytes()));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            assertEquals(List.of((byte) 0, (byte) 1), List.of(files.readRange("/tmp/d/big", 65535, 65537)[0], files.readRange("/tmp/d/big", 65535, 65537)[1]));
            assertEquals(List.of("/tmp/d/text"), files.search("/tmp/d", "te*").stream().map(FileInfo::path).toList());
            assertEquals(Map.of("/tmp/d/text", 1L), files.replaceAll(Map.of("/tmp/d/text", new ReplaceFileContentItem("G", "g"))));
            files.renameAll(Map.of("/tmp/d/text", "/tmp/d/moved"));
            assertEquals("Grüße", files.readText("/tmp/d/moved"));
            files.write("/tmp/d/binary", new byte[] {(byte) 0xff});
            files.write("/tmp/d/plain", "text");
            assertThrows(UnreadableException.class, () -> files.readText("/tmp/d/binary"));
            InputStream failing = new InputStream() {
                private int given;

                @Override
                public int read() throws IOException {
                    if (given++ < 10) return 0;
                    throw new IOException("the source broke");
                }
            };
            Exception error = assertThrows(Exception.class, () -> files.write("/tmp/d/none", Contents.of(failing), Permission.DEFAULT));
            assertTrue(String.valueOf(error).contains("the source broke"), String.valueOf(error));
            assertFalse(files.exists("/tmp/d/none"));
            assertEquals(4, files.list("/tmp/d").size());
        }
    }

    @Test
    void directoriesGoThereAndBack(@TempDir Path place) throws IOException {
        try (Sandbox sandbox = client.create("host")) {
            String name = "x".repeat(120);
            Path from = java.nio.file.Files.createDirectories(place.resolve("from/sub"));
            java.nio.file.Files.writeString(from.resolve(name), "long name");
            java.nio.file.Files.writeString(place.resolve("from/empty"), "");
            java.nio.file.Files.createSymbolicLink(place.resolve("from/link"), Path.of("sub", name));
            assertEquals(4, sandbox.files().uploadDirectory(place.resolve("from"), "/tmp/there").entries());
            sandbox.files().write("/tmp/there/more", "more");
            DownloadedDirectory back = sandbox.files().downloadDirectory("/tmp/there", place.resolve("to"));
            assertEquals(13, back.bytes());
            assertEquals("long name", java.nio.file.Files.readString(place.resolve("to/link")));
            assertEquals("more", java.nio.file.Files.readString(place.resolve("to/more")));
        }
    }

    @Test
    void codeHasResultsAsTypes() {
        try (Sandbox sandbox = client.create("host")) {
            Code code = sandbox.code();
            code.run("x = 20");
            assertEquals("21", code.run("x + 1").text());
            Output html = code.run("class T:\n def _repr_html_(self): return '<table><tr><th>a</th></tr><tr><td>1 &lt; 2</td></tr></table>'\nT()");
            assertEquals(List.of(List.of("a"), List.of("1 < 2")), html.results().get(0).table());
            Output figure = code.run("class F:\n def _repr_png_(self): return b'\\x89PNG'\nF()");
            assertEquals("PNG", new String(figure.results().get(0).figure().bytes(), 1, 3, StandardCharsets.US_ASCII));
            assertEquals("ZeroDivisionError", code.run("1 / 0").failure().name());
            assertNotNull(code.createContext("python").id());
        }
    }

    @Test
    void aSessionRemembersAndATerminalIsComeBackTo() {
        try (Sandbox sandbox = client.create("host")) {
            try (Session session = sandbox.sessions().create("/tmp")) {
                session.run("name=value");
                assertEquals("/tmp value\n", session.run("echo $PWD $name").stdout());
                assertEquals(session.id(), sandbox.sessions().get(session.id()).id());
            }
            Terminal terminal = sandbox.terminals().create();
            TerminalConnection first = terminal.connect();
            TerminalSize size = new TerminalSize(101, 31);
            first.resize(size.columns(), size.rows());
            first.write("stty size; echo begun$((40+2))\n");
            assertTrue(until(first, "begun42").contains("31 101"));
            assertEquals(409, assertThrows(ApiException.class, terminal::connect).status());
            TerminalConnection second = sandbox.terminals().get(terminal.id()).connect(new TerminalOptions().takeOver(true).since(0));
            until(second, "begun42");
            TerminalEvent last = null;
            for (TerminalEvent event : first) last = event;
            assertEquals(4001, ((TerminalEvent.Closed) last).code());
            second.write("exit 7\n");
            int code = -1;
            for (TerminalEvent event : second) if (event instanceof TerminalEvent.Exit exit) code = exit.code();
            assertEquals(7, code);
            assertThrows(TerminalException.class, () -> second.write("x"));
            terminal.close();
            assertTrue(assertThrows(ApiException.class, terminal::connect).isNotFound());
        }
    }

    private static String until(TerminalConnection connection, String wanted) {
        StringBuilder seen = new StringBuilder();
        while (seen.indexOf(wanted) < 0) {
            TerminalEvent event = connection.next();
            if (event instanceof TerminalEvent.Output output) seen.append(new String(output.bytes(), StandardCharsets.UTF_8));
            if (event instanceof TerminalEvent.Replay replay) seen.append(new String(replay.bytes(), StandardCharsets.UTF_8));
        }
        return seen.toString();
    }

    @Test
    void pauseSnapshotsEventsAndLists() {
        CreateOptions options = new CreateOptions().metadata("case", "all").volume(Volumes.named("kept", "java-kept", "/kept"));
        try (Sandbox sandbox = client.create("host", options)) {
            var events = client.events(sandbox.id(), 0L);
            sandbox.pause();
            assertThrows(FailedException.class, () -> client.connect(sandbox.id()));
            sandbox.resume();
            assertTrue(sandbox.isHealthy());
            for (var event : events) if (event.status() != null && event.status().state().equals("Paused")) break;
            events.close();
            sandbox.files().write("/root/kept", "kept");
            String snapshot = sandbox.snapshot("copy").id();
            try (Sandbox restored = client.create(SandboxSource.snapshot(snapshot), new CreateOptions())) {
                assertEquals("kept", restored.files().readText("/root/kept"));
            }
            assertEquals(1, client.listSnapshots(new SnapshotFilter().sandboxId(sandbox.id()).pageSize(1)).stream().count());
            client.deleteSnapshot(snapshot);
            String second = client.createSnapshot(sandbox.id(), null).id();
            assertEquals("Ready", client.waitForSnapshot(second, Duration.ofMinutes(1)).status().state());
            client.deleteSnapshot(second);
            ApiException refused = assertThrows(ApiException.class, () -> client.createRequest(new CreateSandboxRequest(), Duration.ofSeconds(30), null));
            assertFalse(refused.details().isEmpty());
            assertTrue(sandbox.renew(Duration.ofMinutes(15)).isAfter(Instant.now()));
            var filter = new SandboxFilter().metadata("case", "all").states("Running").pageSize(1);
            assertEquals(List.of(sandbox.id()), client.list(filter).stream().map(info -> info.id()).toList());
            Duration limit = Duration.ofMillis(200);
            assertEquals(limit, assertThrows(TimedOutException.class, () -> sandbox.waitForState("Paused", limit)).after());
            assertTrue(sandbox.metrics().cpuCount() > 0);
            assertNotNull(sandbox.diagnosticLogs("all").content());
            assertNotNull(sandbox.diagnosticEvents("all").content());
            assertThrows(ApiException.class, () -> sandbox.previewUrl(80, Instant.now().plusSeconds(60)));
        }
    }

    @Test
    void manyAtOnceNeedNoThreadEach() {
        int count = 40;
        List<CompletableFuture<Sandbox>> making = Stream.generate(() -> client.createAsync(SandboxSource.image("host"), new CreateOptions())).limit(count).toList();
        List<Sandbox> all = making.stream().map(CompletableFuture::join).toList();
        List<Execution> running = all.stream()
            .map(sandbox -> sandbox.commands().startAsync("read x; echo $x", new CommandOptions().stdinOpen(true)))
            .toList().stream().map(CompletableFuture::join).toList();
        List<CompletableFuture<Output>> outputs = new ArrayList<>();
        for (Execution execution : running) {
            assertEquals(ExecutionEvent.Started.class, execution.next().getClass());
            outputs.add(execution.outputAsync());
        }
        long threads = Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().startsWith("osb-") || thread.getName().startsWith("HttpClient")).count();
        assertTrue(threads < count / 2, threads + " threads for " + count + " commands");
        for (int at = 0; at < count; at++) all.get(at).commands().writeStdin(running.get(at).id(), "hi\n");
        for (CompletableFuture<Output> output : outputs) assertEquals("hi\n", output.join().stdout());
        CompletableFuture.allOf(all.stream().map(Sandbox::killAsync).toArray(CompletableFuture[]::new)).join();
    }

    @Test
    void aPoolHasSandboxesReady() {
        Pool pool = new Pool(client, "host", new PoolOptions(2).policy(PoolOptions.Policy.FAIL).warmupConcurrency(1));
        pool.waitUntilWarm(Duration.ofMinutes(1));
        try (Sandbox sandbox = pool.acquire(Duration.ofMinutes(10))) {
            assertTrue(sandbox.commands().run("true").isSuccess());
        }
        pool.resize(0);
        assertThrows(PoolEmptyException.class, () -> pool.acquire(Duration.ofMinutes(10)));
        pool.close();
        assertThrows(PoolClosedException.class, () -> pool.acquire(Duration.ofMinutes(10)));
    }
}
