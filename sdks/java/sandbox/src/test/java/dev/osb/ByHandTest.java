package dev.osb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What needs a server that answers as no real one can be made to. */
@Timeout(60)
class ByHandTest {
    private static final RetryPolicy QUICK = new RetryPolicy(3, Duration.ofMillis(1), Duration.ofMillis(5));

    /** Gets the request and how many came before. */
    private interface Answering {
        void answer(HttpExchange exchange, int before) throws IOException;
    }

    private final AtomicInteger requests = new AtomicInteger();
    private HttpServer server;

    private Client client(Answering answering) throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> answering.answer(exchange, requests.getAndIncrement()));
        server.start();
        return new Client(ConnectionConfig.builder().domain("127.0.0.1:" + server.getAddress().getPort()).retry(QUICK).build());
    }

    @AfterEach
    void stop() {
        if (server != null) server.stop(0);
    }

    private static void say(HttpExchange exchange, int status, String body) throws IOException {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    private record Form(int status, String body, String reason) {}

    @Test
    void everyFormOfAnErrorHasAMessage() throws IOException {
        List<Form> forms = List.of(
            new Form(400, "{\"code\":\"A\",\"message\":\"no room\",\"detail\":[{\"loc\":[\"body\"],\"msg\":\"x\"}]}", "no room"),
            new Form(422, "{\"detail\":[{\"loc\":[\"body\",\"timeout\"],\"msg\":\"too short\"},{\"loc\":[\"body\",1],\"msg\":\"no\"}]}", "body.timeout: too short; body.1: no"),
            new Form(404, "{\"detail\":\"Not Found\"}", "Not Found"),
            new Form(500, "Broken\nx", "Broken"),
            new Form(500, "<html>busy</html>", "the server answered Internal Server Error"));
        Client client = client((exchange, before) -> {
            exchange.getResponseHeaders().set("x-request-id", "r" + before);
            say(exchange, forms.get(before).status, forms.get(before).body);
        });
        for (int at = 0; at < forms.size(); at++) {
            ApiException error = assertThrows(ApiException.class, client::health);
            assertEquals(forms.get(at).reason, error.reason());
            assertEquals(List.of(forms.get(at).status, "r" + at), List.of(error.status(), error.requestId()));
            assertFalse(error.remedy().isEmpty());
        }
    }

    @Test
    void onlyWhatIsSafeIsSentAgain() throws IOException {
        Client client = client((exchange, before) -> {
            exchange.getResponseHeaders().set("retry-after", "0");
            if (exchange.getRequestMethod().equals("GET") && before >= 2) say(exchange, 200, "{\"status\":\"healthy\"}");
            else say(exchange, 503, "{\"code\":\"BUSY\",\"message\":\"not now\"}");
        });
        assertEquals("healthy", client.health().status());
        assertEquals(3, requests.get(), "reading is repeated");
        ApiException busy = assertThrows(ApiException.class, () -> client.create("host"));
        assertEquals(List.of("BUSY", Duration.ZERO), List.of(busy.code(), busy.retryAfter()));
        assertEquals(4, requests.get(), "making is not");
        assertThrows(ApiException.class, () -> client.create("host", new CreateOptions().idempotencyKey("k")));
        assertEquals(8, requests.get(), "except by a key that makes it safe");
        assertThrows(InvalidArgumentException.class, () -> client.sandbox("..").info());
    }

    @Test
    void aServerThatIsAwayIsSaidToBe() throws IOException {
        String domain;
        // An address where nobody listens, of a part of loopback that nobody else uses.
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName("127.88.77.65"))) {
            domain = "127.88.77.65:" + socket.getLocalPort();
        }
        Client nowhere = new Client(ConnectionConfig.builder().domain(domain).retry(RetryPolicy.NONE).build());
        ConnectionException error = assertThrows(ConnectionException.class, nowhere::health);
        assertTrue(error.isUnsent() && error.isRetryable());
    }

    @Test
    void aStreamWithoutNumbersSaysThatItBroke() throws IOException {
        // As the published daemon sends them: bare objects, lines without their ends, no numbers.
        List<String> events = List.of("{\"type\":\"init\",\"text\":\"c1\",\"timestamp\":1}", "{\"type\":\"stdout\",\"text\":\"l1\",\"timestamp\":2}",
            "{\"type\":\"stdout\",\"text\":\"l2\",\"timestamp\":3}", "{\"type\":\"execution_complete\",\"execution_time\":4,\"timestamp\":4}");
        AtomicInteger runs = new AtomicInteger();
        Client client = client((exchange, before) -> {
            if (exchange.getRequestURI().getPath().contains("/endpoints/")) {
                say(exchange, 200, "{\"endpoint\":\"" + exchange.getRequestHeaders().getFirst("Host") + "\"}");
            } else {
                say(exchange, 200, String.join("\n\n", runs.getAndIncrement() == 0 ? events : events.subList(0, 2)) + "\n\n");
            }
        });
        Commands commands = client.sandbox("s1").commands();
        Output output = commands.run("x");
        assertEquals(List.of("l1\nl2\n", 0, Duration.ofMillis(4)), List.of(output.stdout(), output.exitCode(), output.took()));
        Execution execution = commands.start("x");
        assertEquals(new ExecutionEvent.Started("c1"), execution.next());
        assertEquals(new ExecutionEvent.Stdout("l1\n"), execution.next());
        assertThrows(StreamBrokenException.class, execution::hasNext);
        assertFalse(execution.hasNext(), "nothing comes after an error");
    }

    @Test
    void cancellingAFutureEndsItsRequest() throws Exception {
        CountDownLatch hasCome = new CountDownLatch(1);
        CountDownLatch isBroken = new CountDownLatch(1);
        Client client = client((exchange, before) -> {
            exchange.sendResponseHeaders(200, 0);
            hasCome.countDown();
            try {
                // Writes until the other side has hung up.
                byte[] piece = new byte[64 * 1024];
                java.util.Arrays.fill(piece, (byte) ' ');
                for (;;) exchange.getResponseBody().write(piece);
            } catch (IOException error) {
                isBroken.countDown();
            }
        });
        CompletableFuture<?> call = client.healthAsync();
        assertTrue(hasCome.await(30, TimeUnit.SECONDS));
        call.cancel(true);
        assertThrows(CancellationException.class, call::join);
        assertTrue(isBroken.await(30, TimeUnit.SECONDS), "the server is told");
    }

    @Test
    void anInterruptGivesACallUp() throws Exception {
        CountDownLatch hasCome = new CountDownLatch(1);
        CountDownLatch mayEnd = new CountDownLatch(1);
        Client client = client((exchange, before) -> {
            hasCome.countDown();
            try {
                mayEnd.await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        });
        CompletableFuture<Throwable> thrown = new CompletableFuture<>();
        Thread caller = new Thread(() -> {
            Throwable error = assertThrows(CancelledException.class, client::health);
            thrown.complete(Thread.currentThread().isInterrupted() ? error : new AssertionError("the thread is no longer interrupted"));
        });
        caller.start();
        assertTrue(hasCome.await(30, TimeUnit.SECONDS));
        caller.interrupt();
        assertEquals(ErrorKind.CANCELLED, ((OpenSandboxException) thrown.get(30, TimeUnit.SECONDS)).kind());
        mayEnd.countDown();
    }

    @Test
    void aCallbackMayWaitForAnotherCall() throws Exception {
        Client client = client((exchange, before) -> say(exchange, 200, "{\"status\":\"healthy\",\"version\":\"1\"}"));
        // As many at once as would block every thread of the library, if waiting did.
        List<CompletableFuture<String>> all = java.util.stream.Stream.generate(() -> client.healthAsync().thenApply(health -> client.version().version()))
            .limit(50).toList();
        for (CompletableFuture<String> one : all) assertEquals("1", one.get(30, TimeUnit.SECONDS));
    }
}
