package dev.osb;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Which sandboxes. */
public final class SandboxFilter {
    List<String> states = List.of();
    final Map<String, String> metadata = new LinkedHashMap<>();
    Integer page;
    Integer pageSize;

    /** All of them. */
    public SandboxFilter() {}

    /** Only sandboxes in one of these {@link dev.osb.wire.SandboxState states}; none is all. */
    public SandboxFilter states(String... states) {
        this.states = List.of(states);
        return this;
    }

    /** Only sandboxes with this label. */
    public SandboxFilter metadata(String name, String value) {
        metadata.put(name, value);
        return this;
    }

    /** Only sandboxes with all of these labels. */
    public SandboxFilter metadata(Map<String, String> labels) {
        metadata.putAll(labels);
        return this;
    }

    /** Which page, from 1. */
    public SandboxFilter page(int page) {
        this.page = page;
        return this;
    }

    /** Items per page, at most 200. */
    public SandboxFilter pageSize(int pageSize) {
        this.pageSize = pageSize;
        return this;
    }

    Call call(Integer number) {
        StringBuilder query = new StringBuilder();
        states.forEach(state -> query.append(Text.query("state", state)).append('&'));
        query.append(Text.query("metadata", labels(metadata), "page", number, "pageSize", pageSize));
        Call call = Call.get("/sandboxes");
        call.query = query.toString();
        return call;
    }

    /** A query inside the query: its names and values are encoded once more. */
    static String labels(Map<String, String> metadata) {
        if (metadata.isEmpty()) return null;
        return Text.query(metadata.entrySet().stream().flatMap(entry -> java.util.stream.Stream.of(entry.getKey(), entry.getValue())).toArray());
    }
}
