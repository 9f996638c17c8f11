package dev.osb;

import dev.osb.wire.FileMetadata;
import dev.osb.wire.Json;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/** The multipart form (RFC 7578) that carries files: a {@code metadata} and a {@code file} part for each. */
final class Form {
    /** Forms up to this size are put together in one array. */
    private static final int ARRAY_BYTES_MAX = 1024 * 1024;

    private Form() {}

    static Contents of(List<WriteFile> files) {
        String boundary = "osb-" + UUID.randomUUID();
        List<Contents> parts = new ArrayList<>();
        for (WriteFile file : files) {
            parts.add(Contents.of(heads(boundary, file)));
            parts.add(file.contents());
            parts.add(Contents.of("\r\n"));
        }
        parts.add(Contents.of("--" + boundary + "--\r\n"));
        long length = 0;
        for (Contents part : parts) length = part.length() < 0 || length < 0 ? -1 : length + part.length();
        boolean isSmall = length >= 0 && length <= ARRAY_BYTES_MAX && parts.stream().allMatch(Contents::isInMemory);
        Contents whole = isSmall ? joined(parts) : Contents.of(() -> new Joined(parts), length);
        return whole.as("multipart/form-data; boundary=" + boundary);
    }

    private static String heads(String boundary, WriteFile file) {
        Permission permission = file.permission();
        Long mode = permission.mode() == null ? null : (long) Permission.written(permission.mode());
        FileMetadata metadata = new FileMetadata(permission.group(), mode, permission.owner(), file.path());
        return head(boundary, "metadata", "application/json") + Json.write(metadata) + "\r\n"
            + head(boundary, "file", "application/octet-stream");
    }

    private static String head(String boundary, String name, String type) {
        // The published daemon wants every part to have a file name; which does not matter.
        return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"" + name
            + "\"\r\nContent-Type: " + type + "\r\n\r\n";
    }

    private static Contents joined(List<Contents> parts) {
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        parts.forEach(part -> whole.writeBytes(part.bytes()));
        return Contents.of(whole.toByteArray());
    }

    /** Sends a body; an error of its source comes before the error that it caused. */
    static <T> CompletableFuture<T> explained(Contents body, CompletableFuture<T> sending) {
        return Task.start(task -> task.link(() -> sending).exceptionallyCompose(thrown ->
            CompletableFuture.failedFuture(body.failure() == null ? Task.unwrapped(thrown) : body.failure())));
    }

    /** Parts one after the other, each opened when it is its turn. */
    private static final class Joined extends InputStream {
        private final ArrayDeque<Contents> waiting;
        private InputStream open = new ByteArrayInputStream(new byte[0]);

        Joined(List<Contents> parts) {
            waiting = new ArrayDeque<>(parts);
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int offset, int most) throws IOException {
            for (;;) {
                int length = open.read(into, offset, most);
                if (length >= 0) return length;
                open.close();
                if (waiting.isEmpty()) return -1;
                open = waiting.poll().open();
            }
        }

        @Override
        public void close() throws IOException {
            open.close();
        }
    }
}
