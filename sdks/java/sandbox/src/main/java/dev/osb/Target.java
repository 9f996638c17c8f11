package dev.osb;

import dev.osb.wire.Json;
import dev.osb.wire.JsonException;
import java.net.ConnectException;
import java.net.ProtocolException;
import java.net.URI;
import java.net.UnknownHostException;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.UnresolvedAddressException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;

/**
 * A place that requests go to, with the headers they carry: deadlines, errors, and the one place that decides what is
 * sent again. Knows nothing of sandboxes.
 */
final class Target {
    /** The header that carries the API key. */
    static final String API_KEY_HEADER = "OPEN-SANDBOX-API-KEY";

    /**
     * An answer that is read into memory as a whole is at most this long. Listings of large trees have some tens of
     * MiB; what is longer is a fault or an attack.
     */
    private static final int ANSWER_BYTES_MAX = 256 * 1024 * 1024;

    final ConnectionConfig config;
    /** Without a slash at the end. */
    final String base;
    final Map<String, String> headers;

    Target(ConnectionConfig config, String base, Map<String, String> headers) {
        this.config = config;
        this.base = base;
        this.headers = Map.copyOf(headers);
    }

    /** The head of a good answer, and its body, which is still to be read. */
    record Answer(HttpHeaders headers, Body body) implements AutoCloseable {
        @Override
        public void close() {
            body.cancel(new CancellationException("the call was given up"));
        }
    }

    /** Sends a request and reads the answer as JSON. */
    <T> CompletableFuture<T> json(Call call, Function<Object, T> read) {
        return Task.map(bytes(call), bytes -> parsed(call.what(), bytes, read));
    }

    static <T> T parsed(String what, byte[] bytes, Function<Object, T> read) {
        try {
            return read.apply(Json.parse(bytes));
        } catch (JsonException error) {
            throw new UnreadableException(what, error.getMessage(), error);
        }
    }

    /** Sends a request and reads the answer as text. */
    CompletableFuture<String> text(Call call) {
        return Task.map(bytes(call), bytes -> new String(bytes, StandardCharsets.UTF_8));
    }

    /** Sends a request and lets the answer's body, if any, pass. */
    CompletableFuture<Void> done(Call call) {
        return Task.map(bytes(call), bytes -> null);
    }

    /** Sends a request and reads the answer as bytes. */
    CompletableFuture<byte[]> bytes(Call call) {
        return Task.start(task -> task.link(() -> send(call)).thenCompose(answer -> {
            task.onEnd(answer::close);
            Duration limit = call.limit(config);
            task.deadline(limit, () -> new TimedOutException(call.what(), limit));
            return whole(answer.body, call.what(), ANSWER_BYTES_MAX);
        }));
    }

    /** Reads a body to its end. */
    static CompletableFuture<byte[]> whole(Body body, String what, int most) {
        byte[][] whole = {new byte[1024]};
        int[] length = {0};
        return Task.until(() -> body.read().thenApply(pieces -> {
            if (pieces.isEmpty()) return Arrays.copyOf(whole[0], length[0]);
            for (ByteBuffer piece : pieces) {
                int size = piece.remaining();
                if ((long) length[0] + size > most) {
                    UnreadableException error = new UnreadableException(what, "it is longer than " + most + " bytes", null);
                    body.cancel(error);
                    throw error;
                }
                if (length[0] + size > whole[0].length) {
                    whole[0] = Arrays.copyOf(whole[0], Math.max(length[0] + size, Math.min(most, 2 * whole[0].length)));
                }
                piece.get(whole[0], length[0], size);
                length[0] += size;
            }
            return null;
        }));
    }

    /**
     * Sends a request, again where that is safe, and answers what came with a good status. The deadline is for the
     * answer's head; the body may take longer.
     */
    CompletableFuture<Answer> send(Call call) {
        return Task.start(task -> attempt(task, call, 1, config.retry().firstDelay()));
    }

    private CompletableFuture<Answer> attempt(Task<Answer> task, Call call, int number, Duration delay) {
        return task.link(() -> once(call)).exceptionallyCompose(thrown -> {
            Throwable error = Task.unwrapped(thrown);
            RetryPolicy policy = config.retry();
            if (number > policy.attempts() || task.isDone() || !mayRepeat(call, error)) return CompletableFuture.failedFuture(error);
            Duration asked = error instanceof ApiException refused ? refused.retryAfter() : null;
            Duration wait = shorter(asked == null ? delay : asked, policy.longestDelay());
            // There is no event to wait for: the other side is busy or away.
            return task.pause(wait).thenCompose(nothing -> attempt(task, call, number + 1, spread(policy, delay)));
        });
    }

    /** The next wait, spread out, so that clients that failed together do not return together. */
    private static Duration spread(RetryPolicy policy, Duration delay) {
        long first = policy.firstDelay().toNanos();
        long most = Math.max(first + 1, 3 * delay.toNanos());
        return shorter(Duration.ofNanos(ThreadLocalRandom.current().nextLong(first, most)), policy.longestDelay());
    }

    private static Duration shorter(Duration one, Duration other) {
        return one.compareTo(other) < 0 ? one : other;
    }

    private static boolean mayRepeat(Call call, Throwable error) {
        if (call.body != null && !call.body.isRepeatable()) return false;
        if (error instanceof ConnectionException broken) return broken.isUnsent() || call.isSafe();
        return error instanceof ApiException refused && call.isSafe() && OpenSandboxException.isPassing(refused.status());
    }

    private CompletableFuture<Answer> once(Call call) {
        String url = base + call.path;
        return Task.start(task -> {
            Duration limit = call.limit(config);
            task.deadline(limit, () -> new TimedOutException(call.what(), limit));
            CompletableFuture<Answer> result = new CompletableFuture<>();
            HttpRequest request = request(call, url);
            // The head is taken here, and not from the future of sendAsync, which hops to another thread first.
            HttpResponse.BodyHandler<Void> onHead = head -> {
                Body body = new Body(url);
                boolean isGood = head.statusCode() >= 200 && head.statusCode() < 300;
                if (isGood) result.complete(new Answer(head.headers(), body));
                else Refusal.read(call.what(), head, body).thenAccept(result::completeExceptionally);
                return body;
            };
            CompletableFuture<?> exchange = config.httpClient().sendAsync(request, onHead);
            exchange.whenComplete((response, thrown) -> {
                if (thrown != null) result.completeExceptionally(failure(call, url, Task.unwrapped(thrown)));
            });
            task.onEnd(() -> {
                if (!result.isDone()) exchange.cancel(true);
            });
            return result;
        });
    }

    private static OpenSandboxException failure(Call call, String url, Throwable error) {
        if (error instanceof ProtocolException || isNotHttp(error)) return new UnreadableException(call.what(), error.getMessage(), error);
        return new ConnectionException(url, isUnsent(error), error);
    }

    /** What the JDK says of an answer that does not begin with a status line. */
    private static boolean isNotHttp(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ProtocolException) return true;
            String message = String.valueOf(cause.getMessage());
            if (message.contains("Invalid status line") || message.contains("nvalid chunk")) return true;
        }
        return false;
    }

    /** Whether a request certainly did not leave. */
    private static boolean isUnsent(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ConnectException || cause instanceof UnknownHostException
                || cause instanceof UnresolvedAddressException || cause instanceof HttpConnectTimeoutException) return true;
        }
        return false;
    }

    private HttpRequest request(Call call, String url) {
        HttpRequest.BodyPublisher body = call.body == null ? HttpRequest.BodyPublishers.noBody() : call.body.publisher();
        String query = call.query == null || call.query.isEmpty() ? "" : "?" + call.query;
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + query)).method(call.method, body);
        Map<String, String> all = new LinkedHashMap<>();
        all.put("User-Agent", config.userAgent());
        all.putAll(config.headers());
        all.putAll(headers);
        all.putAll(call.headers);
        if (call.body != null) all.put("Content-Type", call.body.contentType());
        all.forEach(request::setHeader);
        return request.build();
    }

    /** Every value of a header, or null. */
    static String header(HttpHeaders headers, String name) {
        List<String> values = headers.allValues(name);
        return values.isEmpty() ? null : values.get(0);
    }
}
