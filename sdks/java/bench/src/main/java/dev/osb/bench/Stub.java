package dev.osb.bench;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

/**
 * A server that answers at once, in a process of its own: what a client takes at it is the client's own time, and a little of
 * this one's. Prints its address. Speaks as much as the benchmark asks for.
 */
public final class Stub {
    private static final int LINES = 1_000_000;
    private static final String SANDBOX = "{\"id\":\"00000000-0000-4000-8000-000000000001\",\"status\":{\"state\":\"Running\"},"
        + "\"createdAt\":\"2026-01-01T00:00:00Z\",\"expiresAt\":\"2027-01-01T00:00:00Z\",\"entrypoint\":[\"x\"]}";
    private static final String BEGUN = "{\"type\":\"init\",\"text\":\"c1\",\"timestamp\":1,\"seq\":1}\n\n";
    private static final byte[] FEW = (BEGUN + "{\"type\":\"stdout\",\"text\":\"hi\\n\",\"timestamp\":1,\"seq\":2}\n\n"
        + "{\"type\":\"execution_complete\",\"execution_time\":1,\"timestamp\":1,\"seq\":3}\n\n").getBytes(StandardCharsets.UTF_8);

    private Stub() {}

    public static void main(String[] arguments) throws IOException {
        byte[] many = many();
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> answer(exchange, many));
        server.start();
        System.out.println("127.0.0.1:" + server.getAddress().getPort());
    }

    private static byte[] many() {
        StringBuilder text = new StringBuilder(BEGUN);
        for (int line = 1; line <= LINES; line++) {
            text.append("{\"type\":\"stdout\",\"text\":\"").append(line).append("\\n\",\"timestamp\":1789000000000,\"seq\":").append(line + 1).append("}\n\n");
        }
        text.append("{\"type\":\"execution_complete\",\"execution_time\":1,\"timestamp\":1,\"seq\":").append(LINES + 2).append("}\n\n");
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static void answer(HttpExchange exchange, byte[] many) throws IOException {
        String path = exchange.getRequestURI().getPath();
        String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        if (exchange.getRequestMethod().equals("DELETE")) {
            exchange.sendResponseHeaders(204, -1);
        } else if (path.startsWith("/command")) {
            send(exchange, 200, "text/event-stream", body.contains("many") ? many : FEW);
        } else if (path.contains("/endpoints/")) {
            send(exchange, 200, "application/json", ("{\"endpoint\":\"" + exchange.getRequestHeaders().getFirst("Host") + "\"}").getBytes(StandardCharsets.UTF_8));
        } else if (path.startsWith("/v1/sandboxes")) {
            send(exchange, exchange.getRequestMethod().equals("POST") ? 202 : 200, "application/json", SANDBOX.getBytes(StandardCharsets.UTF_8));
        } else {
            send(exchange, 200, "application/json", new byte[] {'{', '}'});
        }
        exchange.close();
    }

    private static void send(HttpExchange exchange, int status, String type, byte[] bytes) throws IOException {
        exchange.getResponseHeaders().set("Content-Type", type);
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
    }
}
