package dev.osb;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * A plain byte stream to a port of a sandbox, by an HTTP upgrade, for which {@code java.net.http} has no means. Reading
 * and writing block, as with any socket.
 */
public final class Tunnel implements AutoCloseable {
    /** A head of an answer has a few hundred bytes. */
    private static final int HEAD_BYTES_MAX = 64 * 1024;

    private final Socket socket;
    private final InputStream input;
    private final OutputStream output;

    private Tunnel(Socket socket, InputStream input) throws IOException {
        this.socket = socket;
        this.input = input;
        this.output = socket.getOutputStream();
    }

    /** What comes from the port. */
    public InputStream input() {
        return input;
    }

    /** What goes to the port. */
    public OutputStream output() {
        return output;
    }

    /** Says that nothing more is written; what comes can still be read. */
    public void finishOutput() throws IOException {
        socket.shutdownOutput();
    }

    /** Ends it in both directions. */
    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException error) {
            // It is of no more use either way.
        }
    }

    /** Asks for the upgrade. */
    static CompletableFuture<Tunnel> open(Target target) {
        return Task.start(task -> {
            Duration limit = target.config.requestTimeout();
            task.deadline(limit, () -> new TimedOutException("opening a tunnel", limit));
            CompletableFuture<Tunnel> opened = new CompletableFuture<>();
            Socket socket = new Socket();
            // What is given up, or took too long, ends whatever the thread waits for.
            task.onEnd(() -> {
                if (task.isCompletedExceptionally()) close(socket);
            });
            Blocking.THREADS.execute(() -> {
                try {
                    opened.complete(upgraded(target, socket));
                } catch (IOException error) {
                    close(socket);
                    opened.completeExceptionally(new ConnectionException(target.base, false, error));
                } catch (RuntimeException error) {
                    close(socket);
                    opened.completeExceptionally(error);
                }
            });
            return opened;
        });
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException error) {
            // It is of no more use either way.
        }
    }

    private static Tunnel upgraded(Target target, Socket plain) throws IOException {
        URI place = URI.create(target.base);
        boolean isSecret = place.getScheme().equals("https");
        int port = place.getPort() >= 0 ? place.getPort() : isSecret ? 443 : 80;
        int limit = (int) Math.min(Integer.MAX_VALUE, Durations.milliseconds(target.config.requestTimeout()));
        plain.connect(new InetSocketAddress(place.getHost(), port), limit);
        plain.setTcpNoDelay(true);
        Socket socket = isSecret ? secret(target, plain, place.getHost(), port) : plain;
        Map<String, String> headers = new LinkedHashMap<>();
        headers.put("Host", place.getRawAuthority());
        headers.put("User-Agent", target.config.userAgent());
        headers.putAll(target.config.headers());
        headers.putAll(target.headers);
        headers.put("Connection", "upgrade");
        headers.put("Upgrade", "tcp");
        StringBuilder request = new StringBuilder("GET " + (place.getRawPath() == null ? "" : place.getRawPath()) + "/ HTTP/1.1\r\n");
        headers.forEach((name, value) -> request.append(name).append(": ").append(value).append("\r\n"));
        socket.getOutputStream().write(request.append("\r\n").toString().getBytes(StandardCharsets.ISO_8859_1));
        InputStream input = new BufferedInputStream(socket.getInputStream());
        String head = head(input);
        if (head.startsWith("HTTP/1.1 101")) return new Tunnel(socket, input);
        throw refusal(target, head, input);
    }

    private static Socket secret(Target target, Socket plain, String host, int port) throws IOException {
        SSLContext context = target.config.httpClient().sslContext();
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(plain, host, port, true);
        SSLParameters parameters = socket.getSSLParameters();
        // Without this a certificate of anyone would do.
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        return socket;
    }

    private static String head(InputStream input) throws IOException {
        StringBuilder head = new StringBuilder();
        while (!head.toString().endsWith("\r\n\r\n")) {
            int b = input.read();
            if (b < 0 || head.length() > HEAD_BYTES_MAX) throw new IOException("the answer broke off in its head");
            head.append((char) b);
        }
        return head.toString();
    }

    private static OpenSandboxException refusal(Target target, String head, InputStream input) throws IOException {
        String[] words = head.lines().findFirst().orElse("").split(" ", 3);
        if (words.length < 2 || !words[0].startsWith("HTTP/") || !words[1].matches("\\d{3}")) {
            return new UnreadableException("GET " + target.base, "it is not HTTP", null);
        }
        Map<String, String> headers = new LinkedHashMap<>();
        head.lines().skip(1).filter(line -> line.contains(":")).forEach(line -> {
            int colon = line.indexOf(':');
            headers.put(line.substring(0, colon).toLowerCase(Locale.ROOT), line.substring(colon + 1).strip());
        });
        Double length = Text.number(headers.get("content-length"));
        byte[] body = length == null ? new byte[0] : input.readNBytes((int) Math.min(HEAD_BYTES_MAX, Math.max(0, length)));
        return Refusal.of("GET /", Integer.parseInt(words[1]), new String(body, StandardCharsets.UTF_8), headers.get("x-request-id"), null);
    }
}
