package dev.osb;

import dev.osb.wire.FilePermission;

/**
 * Owner, group and mode to set; what is null stays as it is.
 *
 * @param mode permission bits: {@code 0644}
 * @param owner by name or number
 * @param group by name or number
 */
public record Permission(Integer mode, String owner, String group) {
    /** As the daemon makes files that nothing was said about. */
    public static final Permission DEFAULT = new Permission(null, null, null);

    /** A mode alone: {@code 0644}. */
    public static Permission mode(int mode) {
        return new Permission(mode, null, null);
    }

    /** Permission bits as the protocol writes them: octal digits as a decimal number, 755 for {@code 0755}. */
    static int written(int bits) {
        return Integer.parseInt(Integer.toOctalString(bits & 07777));
    }

    /** The permission bits that the protocol writes so. */
    static int bits(int written) {
        return Integer.parseInt(String.valueOf(written), 8);
    }

    FilePermission wire() {
        FilePermission permission = new FilePermission().withOwner(owner).withGroup(group);
        return mode == null ? permission : permission.withMode((long) written(mode));
    }
}
