package dev.osb;

/** Which changes of the audit record. */
public final class AuditFilter {
    String resource;
    String actor;
    Long before;
    Integer limit;

    /** The newest. */
    public AuditFilter() {}

    /** Only about this sandbox or snapshot. */
    public AuditFilter resource(String id) {
        resource = id;
        return this;
    }

    /** Only by this actor. */
    public AuditFilter actor(String name) {
        actor = name;
        return this;
    }

    /** Only those older than this one. */
    public AuditFilter before(long id) {
        before = id;
        return this;
    }

    /** At most this many. */
    public AuditFilter limit(int count) {
        limit = count;
        return this;
    }
}
