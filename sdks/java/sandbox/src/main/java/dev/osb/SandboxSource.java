package dev.osb;

import dev.osb.wire.ImageAuth;

/** What a sandbox starts from. */
public sealed interface SandboxSource {
    /** An image by its reference. */
    static SandboxSource image(String reference) {
        return new Image(reference, null);
    }

    /** An image of a private registry. */
    static SandboxSource image(String reference, String username, String password) {
        return new Image(reference, new ImageAuth(password, username));
    }

    /** A snapshot by its id. */
    static SandboxSource snapshot(String id) {
        return new Snapshot(id);
    }

    /** A template by its id. */
    static SandboxSource template(String id) {
        return new Template(id);
    }

    /**
     * An image.
     *
     * @param reference its reference
     * @param auth credentials for its registry; null for a public one
     */
    record Image(String reference, ImageAuth auth) implements SandboxSource {}

    /**
     * A snapshot.
     *
     * @param id its id
     */
    record Snapshot(String id) implements SandboxSource {}

    /**
     * A template.
     *
     * @param id its id
     */
    record Template(String id) implements SandboxSource {}
}
