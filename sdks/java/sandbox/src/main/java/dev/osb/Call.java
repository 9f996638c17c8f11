package dev.osb;

import dev.osb.wire.Json;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/** What a request carries. */
final class Call {
    final String method;
    final String path;
    final Map<String, String> headers = new HashMap<>();
    String query;
    Contents body;
    private Duration timeout;
    private boolean hasTimeout;
    private boolean isRepeatable;

    private Call(String method, String path) {
        this.method = method;
        this.path = path;
    }

    static Call get(String path) {
        return new Call("GET", path);
    }

    static Call post(String path) {
        return new Call("POST", path);
    }

    static Call put(String path) {
        return new Call("PUT", path);
    }

    static Call patch(String path) {
        return new Call("PATCH", path);
    }

    static Call delete(String path) {
        return new Call("DELETE", path);
    }

    static Call of(String method, String path) {
        return new Call(method, path);
    }

    /** Names and values, in turn. */
    Call query(Object... pairs) {
        query = Text.query(pairs);
        return this;
    }

    Call json(Object value) {
        return body(Contents.of(Json.write(value).getBytes(StandardCharsets.UTF_8)).as("application/json"));
    }

    Call body(Contents body) {
        this.body = body;
        return this;
    }

    Call header(String name, String value) {
        headers.put(name, value);
        return this;
    }

    /** The head of the answer, and then its whole body, may each take this long; null is forever. */
    Call timeout(Duration timeout) {
        this.timeout = timeout;
        hasTimeout = true;
        return this;
    }

    /** The caller vouches that sending it again is safe. */
    Call repeatable() {
        isRepeatable = true;
        return this;
    }

    Duration limit(ConnectionConfig config) {
        return hasTimeout ? timeout : config.requestTimeout();
    }

    boolean isSafe() {
        return isRepeatable || !method.equals("POST") && !method.equals("PATCH");
    }

    /** For messages. */
    String what() {
        return method + " " + path;
    }
}
