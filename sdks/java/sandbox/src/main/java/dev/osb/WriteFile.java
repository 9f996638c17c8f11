package dev.osb;

/**
 * A file to write.
 *
 * @param path where
 * @param contents what
 * @param permission its mode, owner and group
 */
public record WriteFile(String path, Contents contents, Permission permission) {
    /** A file as the daemon makes them. */
    public WriteFile(String path, Contents contents) {
        this(path, contents, Permission.DEFAULT);
    }
}
