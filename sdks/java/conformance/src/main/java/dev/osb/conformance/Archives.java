package dev.osb.conformance;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** Archives and made-up bytes, by the system's own tar, so that the SDK's is not tested by itself. */
public final class Archives {
    private Archives() {}

    /** A root filesystem or a directory as tar. */
    public static byte[] packed(Map<String, String> files) throws IOException {
        Path place = Files.createTempDirectory("osb-packed-");
        try {
            for (Map.Entry<String, String> file : files.entrySet()) {
                Path path = place.resolve(file.getKey().replaceAll("^/+", ""));
                Files.createDirectories(path.getParent());
                Files.writeString(path, file.getValue());
            }
            Process tar = new ProcessBuilder("tar", "-C", place.toString(), "-c", ".").redirectError(ProcessBuilder.Redirect.INHERIT).start();
            return tar.getInputStream().readAllBytes();
        } finally {
            remove(place);
        }
    }

    private static void remove(Path place) throws IOException {
        try (var walk = Files.walk(place)) {
            for (Path path : walk.sorted(Collections.reverseOrder()).toList()) Files.delete(path);
        }
    }

    /** How many bytes an archive has, and the names in it, of files alone or of everything. */
    public static Map<String, Object> entries(InputStream archive, boolean isOfFiles) throws IOException {
        byte[] bytes = archive.readAllBytes();
        Path file = Files.createTempFile("osb-archive-", ".tar");
        try {
            Files.write(file, bytes);
            Process tar = new ProcessBuilder("tar", "-t", "-f", file.toString()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            List<String> names = new ArrayList<>();
            for (String line : new String(tar.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8).split("\n")) {
                String name = line.replaceFirst("^\\./", "");
                if (!name.isEmpty() && !(isOfFiles && name.endsWith("/"))) names.add(name);
            }
            Collections.sort(names);
            return Shapes.map("bytes", bytes.length, "entries", names);
        } finally {
            Files.delete(file);
        }
    }

    /** Bytes that anyone can make again: each is its place modulo 251. */
    public static InputStream madeUp(long length) {
        byte[] piece = new byte[251 * 256];
        for (int at = 0; at < piece.length; at++) piece[at] = (byte) (at % 251);
        return new InputStream() {
            private long given;
            private ByteArrayInputStream open = new ByteArrayInputStream(new byte[0]);

            @Override
            public int read() {
                byte[] one = new byte[1];
                return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
            }

            @Override
            public int read(byte[] into, int offset, int most) {
                if (open.available() == 0) {
                    if (given == length) return -1;
                    int size = (int) Math.min(piece.length, length - given);
                    given += size;
                    open = new ByteArrayInputStream(piece, 0, size);
                }
                return open.read(into, offset, most);
            }
        };
    }

    /** How many bytes come, and their hash. */
    public static Map<String, Object> counted(InputStream stream) throws IOException {
        try (DigestInputStream hashed = new DigestInputStream(stream, MessageDigest.getInstance("SHA-256"))) {
            byte[] piece = new byte[64 * 1024];
            long bytes = 0;
            for (int length = hashed.read(piece); length >= 0; length = hashed.read(piece)) bytes += length;
            return Shapes.map("bytes", bytes, "sha256", HexFormat.of().formatHex(hashed.getMessageDigest().digest()));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
