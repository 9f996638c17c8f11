/** Sandboxes for AI agents. */
module dev.osb {
    requires transitive java.net.http;

    exports dev.osb;
    exports dev.osb.wire;
}
