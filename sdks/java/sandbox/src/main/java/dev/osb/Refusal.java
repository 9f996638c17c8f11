package dev.osb;

import dev.osb.wire.Json;
import dev.osb.wire.JsonException;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Reads an error in the forms of our servers, of the published ones and of proxies between. */
final class Refusal {
    /** As much of an error's body is read as any real one has. */
    private static final int ERROR_BYTES_MAX = 64 * 1024;

    /** Half an error is still an error; the deadline of the request is long over. */
    private static final Duration ERROR_TIME = Duration.ofSeconds(5);

    /** Statuses that come from gateways without a word of their own. */
    private static final Map<Integer, String> REASONS = Map.ofEntries(
        Map.entry(301, "Moved Permanently"), Map.entry(302, "Found"), Map.entry(307, "Temporary Redirect"),
        Map.entry(308, "Permanent Redirect"), Map.entry(400, "Bad Request"), Map.entry(401, "Unauthorized"),
        Map.entry(403, "Forbidden"), Map.entry(404, "Not Found"), Map.entry(408, "Request Timeout"),
        Map.entry(413, "Content Too Large"), Map.entry(429, "Too Many Requests"), Map.entry(500, "Internal Server Error"),
        Map.entry(502, "Bad Gateway"), Map.entry(503, "Service Unavailable"), Map.entry(504, "Gateway Timeout"));

    private Refusal() {}

    /** The error; never fails. */
    static CompletableFuture<ApiException> read(String what, HttpResponse.ResponseInfo head, Body body) {
        Runnable stop = Task.after(ERROR_TIME, () -> body.cancel(new TimedOutException(what, ERROR_TIME)));
        return Target.whole(body, what, ERROR_BYTES_MAX).handle((bytes, error) -> {
            stop.run();
            // The status alone says enough.
            String text = error == null ? new String(bytes, StandardCharsets.UTF_8) : "";
            String requestId = Target.header(head.headers(), "X-Request-ID");
            Double seconds = Text.number(Target.header(head.headers(), "Retry-After"));
            Duration retryAfter = seconds == null || seconds < 0 ? null : Duration.ofMillis(Math.round(seconds * 1000));
            return of(what, head.statusCode(), text, requestId, retryAfter);
        });
    }

    static ApiException of(String what, int status, String text, String requestId, Duration retryAfter) {
        Map<?, ?> body = object(text);
        List<String> details = new ArrayList<>();
        if (body.get("detail") instanceof List<?> problems) problems.forEach(problem -> details.add(detail(problem)));
        String message = field(body, "message");
        if (message == null) message = field(body, "detail");
        if (message == null && !details.isEmpty()) message = String.join("; ", details);
        String line = text.lines().findFirst().orElse("").strip();
        // A page of HTML says less than the status.
        if (message == null && body.isEmpty() && !line.isEmpty() && !line.startsWith("<") && !line.startsWith("{")) message = line;
        if (message == null) message = "the server answered " + REASONS.getOrDefault(status, "status " + status);
        String code = field(body, "code");
        String id = requestId == null ? field(body, "request_id") : requestId;
        return new ApiException(what, status, code == null ? "" : code, message, id, retryAfter, details);
    }

    private static Map<?, ?> object(String text) {
        try {
            return Json.parse(text) instanceof Map<?, ?> map ? map : Map.of();
        } catch (JsonException error) {
            return Map.of();
        }
    }

    private static String field(Map<?, ?> body, String name) {
        return body.get(name) instanceof String text ? text : null;
    }

    private static String detail(Object problem) {
        if (!(problem instanceof Map<?, ?> map)) return String.valueOf(problem);
        List<String> place = new ArrayList<>();
        if (map.get("loc") instanceof List<?> steps) steps.forEach(step -> place.add(String.valueOf(step)));
        return String.join(".", place) + ": " + (map.get("msg") instanceof String text ? text : "");
    }
}
