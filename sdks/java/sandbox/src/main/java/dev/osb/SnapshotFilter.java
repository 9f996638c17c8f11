package dev.osb;

import java.util.List;

/** Which snapshots. */
public final class SnapshotFilter {
    String sandboxId;
    String name;
    List<String> states = List.of();
    Integer page;
    Integer pageSize;

    /** All of them. */
    public SnapshotFilter() {}

    /** Only snapshots of this sandbox. */
    public SnapshotFilter sandboxId(String id) {
        sandboxId = id;
        return this;
    }

    /** Only snapshots with this name. */
    public SnapshotFilter name(String name) {
        this.name = name;
        return this;
    }

    /** Only snapshots in one of these {@link dev.osb.wire.SnapshotState states}; none is all. */
    public SnapshotFilter states(String... states) {
        this.states = List.of(states);
        return this;
    }

    /** Which page, from 1. */
    public SnapshotFilter page(int page) {
        this.page = page;
        return this;
    }

    /** Items per page, at most 200. */
    public SnapshotFilter pageSize(int pageSize) {
        this.pageSize = pageSize;
        return this;
    }

    Call call(Integer number) {
        StringBuilder query = new StringBuilder();
        states.forEach(state -> query.append(Text.query("state", state)).append('&'));
        query.append(Text.query("sandboxId", sandboxId, "name", name, "page", number, "pageSize", pageSize));
        Call call = Call.get("/snapshots");
        call.query = query.toString();
        return call;
    }
}
