package dev.osb;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermission;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;

/**
 * Directories of this machine as archives. What comes out of a sandbox is not trusted: nothing is written outside of the
 * directory that was named, and no link is followed.
 */
final class Directories {
    private static final PosixFilePermission[] BITS = {
        PosixFilePermission.OTHERS_EXECUTE, PosixFilePermission.OTHERS_WRITE, PosixFilePermission.OTHERS_READ,
        PosixFilePermission.GROUP_EXECUTE, PosixFilePermission.GROUP_WRITE, PosixFilePermission.GROUP_READ,
        PosixFilePermission.OWNER_EXECUTE, PosixFilePermission.OWNER_WRITE, PosixFilePermission.OWNER_READ,
    };

    private Directories() {}

    /** A directory of this machine as a tar stream. */
    static Contents packed(Path directory) {
        return Contents.of(() -> {
            if (!Files.isDirectory(directory)) throw new NotDirectoryException(directory.toString());
            return new Packing(directory);
        }, -1);
    }

    /** Gives out the archive piece by piece: a header, a file's contents, what pads them, and so on. */
    private static final class Packing extends InputStream {
        private final Path root;
        private final Stream<Path> walk;
        private final Iterator<Path> paths;
        private InputStream open = InputStream.nullInputStream();
        private long left;
        private int pad;
        private boolean isAtEnd;

        Packing(Path root) throws IOException {
            this.root = root;
            walk = Files.walk(root);
            paths = walk.filter(path -> !path.equals(root)).iterator();
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int offset, int most) throws IOException {
            for (;;) {
                if (left > 0) {
                    // A file that grows meanwhile is sent as long as it was.
                    int length = open.read(into, offset, (int) Math.min(most, left));
                    if (length < 0) throw new IOException("a file became shorter while it was sent");
                    left -= length;
                    return length;
                }
                open.close();
                if (pad > 0) {
                    give(new byte[pad]);
                    pad = 0;
                } else if (paths.hasNext()) {
                    entry(paths.next());
                } else if (!isAtEnd) {
                    isAtEnd = true;
                    give(new byte[2 * Tar.BLOCK]);
                } else {
                    return -1;
                }
            }
        }

        private void give(byte[] bytes) {
            open = new ByteArrayInputStream(bytes);
            left = bytes.length;
        }

        private void entry(Path path) throws IOException {
            Map<String, Object> stats = Files.readAttributes(path, "unix:mode,size,lastModifiedTime", LinkOption.NOFOLLOW_LINKS);
            String name = root.relativize(path).toString();
            int mode = (int) stats.get("mode") & 07777;
            long modified = Files.getLastModifiedTime(path, LinkOption.NOFOLLOW_LINKS).toMillis() / 1000;
            if (Files.isSymbolicLink(path)) {
                give(Tar.header(new Tar.Entry(name, Tar.Type.SYMLINK, mode, modified, 0, Files.readSymbolicLink(path).toString())));
            } else if (Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) {
                give(Tar.header(new Tar.Entry(name, Tar.Type.DIRECTORY, mode, modified, 0, null)));
            } else if (Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
                long size = (long) stats.get("size");
                byte[] header = Tar.header(new Tar.Entry(name, Tar.Type.FILE, mode, modified, size, null));
                open = new java.io.SequenceInputStream(new ByteArrayInputStream(header), Files.newInputStream(path));
                left = header.length + size;
                pad = Tar.padding(size);
            }
            // Sockets, pipes and devices mean nothing elsewhere.
        }

        @Override
        public void close() throws IOException {
            open.close();
            walk.close();
        }
    }

    /** Unpacks a tar stream into a directory of this machine, which is made when it is not there. */
    static DownloadedDirectory unpack(InputStream archive, Path local) throws IOException {
        Files.createDirectories(local);
        Tar.Reader reader = new Tar.Reader(archive);
        long entries = 0;
        long bytes = 0;
        List<String> skipped = new ArrayList<>();
        // Set when all is written: a directory without write permission must not refuse its own files.
        List<Map.Entry<Path, Integer>> modes = new ArrayList<>();
        for (Tar.Entry entry = reader.next(); entry != null; entry = reader.next()) {
            List<String> steps = steps(entry.name());
            if (steps.isEmpty()) continue;
            Path path = local;
            for (String step : steps.subList(0, steps.size() - 1)) {
                path = path.resolve(step);
                makeDirectory(path);
            }
            path = path.resolve(steps.get(steps.size() - 1));
            if (entry.type() == Tar.Type.DIRECTORY) {
                makeDirectory(path);
                modes.add(Map.entry(path, entry.mode()));
            } else if (entry.type() == Tar.Type.FILE) {
                bytes += writeFile(path, entry.mode(), reader);
            } else if (entry.type() == Tar.Type.SYMLINK && staysInside(steps, entry.target())) {
                Files.deleteIfExists(path);
                Files.createSymbolicLink(path, Path.of(entry.target()));
            } else {
                skipped.add(entry.name());
                continue;
            }
            entries++;
        }
        Collections.reverse(modes);
        for (Map.Entry<Path, Integer> mode : modes) setMode(mode.getKey(), mode.getValue());
        return new DownloadedDirectory(entries, bytes, skipped);
    }

    private static List<String> steps(String name) {
        List<String> steps = new ArrayList<>();
        for (String step : name.split("/")) if (!step.isEmpty() && !step.equals(".")) steps.add(step);
        if (steps.contains("..") || name.startsWith("/") || name.indexOf('\0') >= 0) {
            throw new UnreadableException("an archive", Text.quoted(name) + " leads out of the directory", "do not trust this sandbox", null);
        }
        return steps;
    }

    /** Whether a link at this place leads to a place in the same directory. */
    private static boolean staysInside(List<String> steps, String target) {
        if (target.isEmpty() || target.startsWith("/")) return false;
        int up = 0;
        boolean isInside = false;
        for (String step : target.split("/")) {
            if (step.isEmpty() || step.equals(".")) continue;
            if (!step.equals("..")) isInside = true;
            // After another link, ".." leads elsewhere than it reads.
            else if (isInside || ++up > steps.size() - 1) return false;
        }
        return true;
    }

    /** Makes a directory; what stands there and is none, as a link to one, is in the way. */
    private static void makeDirectory(Path path) throws IOException {
        try {
            Files.createDirectory(path);
        } catch (FileAlreadyExistsException error) {
            if (Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) return;
            throw new UnreadableException("an archive", path + " is in the way and no directory", "download to an empty directory", error);
        }
    }

    private static long writeFile(Path path, int mode, Tar.Reader reader) throws IOException {
        Files.deleteIfExists(path);
        long bytes = 0;
        // CREATE_NEW follows no link and opens nothing that was there.
        try (OutputStream file = Files.newOutputStream(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            byte[] piece = new byte[64 * 1024];
            for (int length = reader.read(piece); length >= 0; length = reader.read(piece)) {
                file.write(piece, 0, length);
                bytes += length;
            }
        }
        setMode(path, mode);
        return bytes;
    }

    private static void setMode(Path path, int mode) throws IOException {
        Set<PosixFilePermission> permissions = EnumSet.noneOf(PosixFilePermission.class);
        for (int bit = 0; bit < BITS.length; bit++) if ((mode >> bit & 1) != 0) permissions.add(BITS[bit]);
        Files.setPosixFilePermissions(path, permissions);
    }
}
