package dev.osb;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.http.HttpRequest;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** What is sent or written: bytes in memory, a file of this machine, or a stream, which is never whole in memory. */
public final class Contents {
    /** Opens what is sent. */
    @FunctionalInterface
    interface Source {
        InputStream open() throws IOException;
    }

    private static final long UNKNOWN = -1;

    private final byte[] bytes;
    private final Source source;
    private final long length;
    private final boolean isRepeatable;
    private final String contentType;
    /** What reading the source threw, which explains better than the connection why sending failed. */
    private volatile Exception failure;

    private Contents(byte[] bytes, Source source, long length, boolean isRepeatable, String contentType) {
        this.bytes = bytes;
        this.source = source;
        this.length = length;
        this.isRepeatable = isRepeatable;
        this.contentType = contentType;
    }

    /** Text, as UTF-8. */
    public static Contents of(String text) {
        return of(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Bytes. */
    public static Contents of(byte[] bytes) {
        return new Contents(bytes, () -> new ByteArrayInputStream(bytes), bytes.length, true, "application/octet-stream");
    }

    /** A file of this machine. */
    public static Contents of(Path file) {
        long size;
        try {
            size = Files.size(file);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Contents(null, () -> Files.newInputStream(file), size, true, "application/octet-stream");
    }

    /** A stream, which is read once, to its end, and closed. */
    public static Contents of(InputStream stream) {
        return of(() -> stream, UNKNOWN);
    }

    static Contents of(Source source, long length) {
        return new Contents(null, source, length, false, "application/octet-stream");
    }

    Contents as(String type) {
        return new Contents(bytes, source, length, isRepeatable, type);
    }

    byte[] bytes() {
        return bytes;
    }

    long length() {
        return length;
    }

    String contentType() {
        return contentType;
    }

    boolean isRepeatable() {
        return isRepeatable;
    }

    /** Whether all of it is in memory. */
    boolean isInMemory() {
        return bytes != null;
    }

    InputStream open() throws IOException {
        return source.open();
    }

    /** What reading the source threw; null if it threw nothing. */
    Exception failure() {
        return failure;
    }

    HttpRequest.BodyPublisher publisher() {
        if (bytes != null) return HttpRequest.BodyPublishers.ofByteArray(bytes);
        Upload upload = new Upload(source, error -> failure = error);
        return length > 0 ? HttpRequest.BodyPublishers.fromPublisher(upload, length) : HttpRequest.BodyPublishers.fromPublisher(upload);
    }
}
