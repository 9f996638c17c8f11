package dev.osb;

import java.time.Instant;

/**
 * What is known of a file without following a link.
 *
 * @param path absolute path
 * @param rawPath the path again, percent-encoded, when its bytes are not UTF-8; else null
 * @param type what it is, one of {@link dev.osb.wire.FileKind}; null where the daemon does not say
 * @param size size in bytes
 * @param modifiedAt when its contents changed
 * @param createdAt when it was made
 * @param owner its owner's name, or number where it has no name
 * @param group its group's name, or number where it has no name
 * @param mode its permission bits: {@code 0644}
 */
public record FileInfo(
    String path, String rawPath, String type, long size, Instant modifiedAt, Instant createdAt, String owner, String group, int mode) {
    static FileInfo fromJson(Object json) {
        dev.osb.wire.FileInfo info = dev.osb.wire.FileInfo.fromJson(json);
        return new FileInfo(info.path(), info.rawPath(), info.type(), info.size(), info.modifiedAt(), info.createdAt(),
            info.owner(), info.group(), Permission.bits(Math.toIntExact(info.mode())));
    }
}
