package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.ArchiveResponse;
import dev.osb.wire.RenameFileItem;
import dev.osb.wire.ReplaceFileContentItem;
import dev.osb.wire.ReplaceFileContentResult;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Files and directories of a sandbox. */
public final class Files {
    private static final String TAR = "application/x-tar";

    private final Sandbox sandbox;
    /** As whom: {@code /v1/filesystem/{uid}/{gid}}, or nothing for the daemon's own user. */
    private final String prefix;

    Files(Sandbox sandbox, String prefix) {
        this.sandbox = sandbox;
        this.prefix = prefix;
    }

    /** The files as this user and group see them. */
    public Files asUser(int uid, int gid) {
        if (uid < 0 || gid < 0) throw new InvalidArgumentException(Math.min(uid, gid) + " is not the number of a user or group");
        return new Files(sandbox, "/v1/filesystem/" + uid + "/" + gid);
    }

    /** Reads a file. */
    public byte[] read(String path) {
        return await(readAsync(path));
    }

    /** {@link #read} without blocking. */
    public CompletableFuture<byte[]> readAsync(String path) {
        return all(downloadAsync(path));
    }

    private static CompletableFuture<byte[]> all(CompletableFuture<ByteStream> begun) {
        return Task.start(task -> task.link(() -> begun).thenCompose(stream -> task.link(stream::readAllAsync)));
    }

    /** Reads a file that is UTF-8 text. */
    public String readText(String path) {
        return await(readTextAsync(path));
    }

    /** {@link #readText} without blocking. */
    public CompletableFuture<String> readTextAsync(String path) {
        return Task.map(readAsync(path), bytes -> {
            try {
                return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
            } catch (CharacterCodingException error) {
                throw new UnreadableException(path, "it is not UTF-8 text", "read it as bytes", error);
            }
        });
    }

    /** Reads the bytes from {@code start} up to, and not with, {@code end}; fewer where the file ends before. */
    public byte[] readRange(String path, long start, long end) {
        return await(readRangeAsync(path, start, end));
    }

    /** {@link #readRange} without blocking. */
    public CompletableFuture<byte[]> readRangeAsync(String path, long start, long end) {
        if (start < 0) throw new InvalidArgumentException(start + " is not the offset of a byte");
        if (end <= start) return CompletableFuture.completedFuture(new byte[0]);
        return all(downloadRangeAsync(path, "bytes=" + start + "-" + (end - 1)));
    }

    /** Reads a part of a file as it arrives, named as in a {@code Range} header: {@code bytes=0-99}, {@code bytes=-5}. */
    public ByteStream downloadRange(String path, String range) {
        return await(downloadRangeAsync(path, range));
    }

    /** {@link #downloadRange} without blocking. */
    public CompletableFuture<ByteStream> downloadRangeAsync(String path, String range) {
        if (!range.matches("[\\x20-\\x7e]+")) throw new InvalidArgumentException(Text.quoted(range) + " is not a range");
        return stream(Call.get(prefix + "/files/download").query("path", path).header("Range", range));
    }

    private CompletableFuture<ByteStream> stream(Call call) {
        return sandbox.exec(exec -> Task.map(exec.send(call), answer -> new ByteStream(answer, call.what())));
    }

    /** Reads {@code count} lines of a file from line {@code first} on, which counts from 1. */
    public String readLines(String path, long first, long count) {
        return await(readLinesAsync(path, first, count));
    }

    /** {@link #readLines} without blocking. */
    public CompletableFuture<String> readLinesAsync(String path, long first, long count) {
        Call call = Call.get(prefix + "/files/download").query("path", path, "offset", first, "limit", count);
        return sandbox.exec(exec -> exec.text(call));
    }

    /** Reads a file as it arrives. */
    public ByteStream download(String path) {
        return await(downloadAsync(path));
    }

    /** {@link #download} without blocking. */
    public CompletableFuture<ByteStream> downloadAsync(String path) {
        return stream(Call.get(prefix + "/files/download").query("path", path));
    }

    /** Writes a file of this text, whole or not at all; directories on the way are made. */
    public void write(String path, String text) {
        write(path, Contents.of(text), Permission.DEFAULT);
    }

    /** Writes a file of these bytes, whole or not at all; directories on the way are made. */
    public void write(String path, byte[] bytes) {
        write(path, Contents.of(bytes), Permission.DEFAULT);
    }

    /** Writes a file, whole or not at all; directories on the way are made. */
    public void write(String path, Contents contents, Permission permission) {
        await(writeAsync(path, contents, permission));
    }

    /** {@link #write(String, Contents, Permission)} without blocking. */
    public CompletableFuture<Void> writeAsync(String path, Contents contents, Permission permission) {
        return writeAllAsync(List.of(new WriteFile(path, contents, permission)));
    }

    /** Writes files in one request. */
    public void writeAll(List<WriteFile> files) {
        await(writeAllAsync(files));
    }

    /** {@link #writeAll} without blocking. */
    public CompletableFuture<Void> writeAllAsync(List<WriteFile> files) {
        if (files.isEmpty()) return CompletableFuture.completedFuture(null);
        Contents body = Form.of(files);
        Call call = Call.post(prefix + "/files/upload").body(body);
        // A stream takes as long as its source takes to give its bytes.
        if (!body.isInMemory()) call.timeout(null);
        return Form.explained(body, sandbox.exec(exec -> exec.done(call)));
    }

    /** What is known of files, by the paths as given. */
    public Map<String, FileInfo> info(List<String> paths) {
        return await(infoAsync(paths));
    }

    /** {@link #info} without blocking. */
    public CompletableFuture<Map<String, FileInfo>> infoAsync(List<String> paths) {
        return sandbox.exec(exec -> exec.json(each(Call.get(prefix + "/files/info"), paths), Lists.byName(FileInfo::fromJson)));
    }

    /** Whether a path exists. */
    public boolean exists(String path) {
        return await(existsAsync(path));
    }

    /** {@link #exists} without blocking. */
    public CompletableFuture<Boolean> existsAsync(String path) {
        return Task.start(task -> task.link(() -> infoAsync(List.of(path))).handle((found, thrown) -> {
            if (thrown == null) return CompletableFuture.completedFuture(!found.isEmpty());
            Throwable error = Task.unwrapped(thrown);
            boolean isMissing = error instanceof OpenSandboxException ours && ours.isNotFound();
            return isMissing ? CompletableFuture.completedFuture(false) : CompletableFuture.<Boolean>failedFuture(error);
        }).thenCompose(result -> result));
    }

    /** Lists a directory. */
    public List<FileInfo> list(String path) {
        return list(path, 1);
    }

    /** Lists a directory, this many levels deep. */
    public List<FileInfo> list(String path, int depth) {
        return await(listAsync(path, depth));
    }

    /** {@link #list(String, int)} without blocking. */
    public CompletableFuture<List<FileInfo>> listAsync(String path, int depth) {
        Call call = Call.get(prefix + "/directories/list").query("path", path, "depth", depth);
        return sandbox.exec(exec -> exec.json(call, Lists.of(FileInfo::fromJson)));
    }

    /** Finds files below a directory by a glob. */
    public List<FileInfo> search(String path, String pattern) {
        return await(searchAsync(path, pattern));
    }

    /** {@link #search} without blocking. */
    public CompletableFuture<List<FileInfo>> searchAsync(String path, String pattern) {
        Call call = Call.get(prefix + "/files/search").query("path", path, "pattern", pattern);
        return sandbox.exec(exec -> exec.json(call, Lists.of(FileInfo::fromJson)));
    }

    /** Moves a file or directory. */
    public void rename(String from, String to) {
        renameAll(Map.of(from, to));
    }

    /** Moves files and directories, each to where it is to be. */
    public void renameAll(Map<String, String> moves) {
        await(renameAllAsync(moves));
    }

    /** {@link #renameAll} without blocking. */
    public CompletableFuture<Void> renameAllAsync(Map<String, String> moves) {
        List<RenameFileItem> items = new ArrayList<>();
        moves.forEach((from, to) -> items.add(new RenameFileItem(to, from)));
        return sandbox.exec(exec -> exec.done(Call.post(prefix + "/files/mv").json(items)));
    }

    /** Removes files; one that is not there is no error. */
    public void delete(List<String> paths) {
        await(deleteAsync(paths));
    }

    /** {@link #delete} without blocking. */
    public CompletableFuture<Void> deleteAsync(List<String> paths) {
        return sandbox.exec(exec -> exec.done(each(Call.delete(prefix + "/files"), paths)));
    }

    /** Makes directories with their parents. */
    public void createDirectories(List<String> paths) {
        Map<String, Permission> all = new LinkedHashMap<>();
        paths.forEach(path -> all.put(path, Permission.DEFAULT));
        createDirectories(all);
    }

    /** Makes directories with their parents, with the mode and owner of each. */
    public void createDirectories(Map<String, Permission> directories) {
        await(createDirectoriesAsync(directories));
    }

    /** {@link #createDirectories(Map)} without blocking. */
    public CompletableFuture<Void> createDirectoriesAsync(Map<String, Permission> directories) {
        return sandbox.exec(exec -> exec.done(Call.post(prefix + "/directories").json(permissions(directories))));
    }

    /** Removes directories with everything in them. */
    public void deleteDirectories(List<String> paths) {
        await(deleteDirectoriesAsync(paths));
    }

    /** {@link #deleteDirectories} without blocking. */
    public CompletableFuture<Void> deleteDirectoriesAsync(List<String> paths) {
        return sandbox.exec(exec -> exec.done(each(Call.delete(prefix + "/directories"), paths)));
    }

    /** Sets mode, owner and group of files, by their paths. */
    public void setPermissions(Map<String, Permission> files) {
        await(setPermissionsAsync(files));
    }

    /** {@link #setPermissions} without blocking. */
    public CompletableFuture<Void> setPermissionsAsync(Map<String, Permission> files) {
        return sandbox.exec(exec -> exec.done(Call.post(prefix + "/files/permissions").json(permissions(files))));
    }

    /** Replaces every occurrence of a text in a file and answers how many there were; null where the daemon does not say. */
    public Long replace(String path, String old, String replacement) {
        return replaceAll(Map.of(path, new ReplaceFileContentItem(replacement, old))).get(path);
    }

    /** Replaces text in files, by their paths, and answers how often each was found, where the daemon says so. */
    public Map<String, Long> replaceAll(Map<String, ReplaceFileContentItem> replacements) {
        return await(replaceAllAsync(replacements));
    }

    /** {@link #replaceAll} without blocking. */
    public CompletableFuture<Map<String, Long>> replaceAllAsync(Map<String, ReplaceFileContentItem> replacements) {
        Call call = Call.post(prefix + "/files/replace").query("verbose", true).json(replacements);
        return sandbox.exec(exec -> Task.map(exec.text(call), text -> {
            // Older daemons answer nothing.
            byte[] json = (text.isBlank() ? "{}" : text).getBytes(StandardCharsets.UTF_8);
            return Target.parsed(call.what(), json, Lists.byName(value -> ReplaceFileContentResult.fromJson(value).replacedCount()));
        }));
    }

    /** Extension: a directory with everything below it, as a tar stream. */
    public ByteStream downloadArchive(String directory) {
        return await(downloadArchiveAsync(directory));
    }

    /** {@link #downloadArchive} without blocking. */
    public CompletableFuture<ByteStream> downloadArchiveAsync(String directory) {
        return stream(Call.get(prefix + "/directories/archive").query("path", directory));
    }

    /** Extension: unpacks a tar stream into a directory, which is made when it is not there. */
    public ArchiveResponse uploadArchive(String directory, Contents archive) {
        return await(uploadArchiveAsync(directory, archive));
    }

    /** {@link #uploadArchive} without blocking. */
    public CompletableFuture<ArchiveResponse> uploadArchiveAsync(String directory, Contents archive) {
        Contents body = archive.as(TAR);
        Call call = Call.put(prefix + "/directories/archive").query("path", directory).body(body).timeout(null);
        return Form.explained(body, sandbox.exec(exec -> exec.json(call, ArchiveResponse::fromJson)));
    }

    /** Extension: sends a directory of this machine. */
    public ArchiveResponse uploadDirectory(Path local, String directory) {
        return await(uploadDirectoryAsync(local, directory));
    }

    /** {@link #uploadDirectory} without blocking. */
    public CompletableFuture<ArchiveResponse> uploadDirectoryAsync(Path local, String directory) {
        return uploadArchiveAsync(directory, Directories.packed(local));
    }

    /** Extension: brings a directory to this machine. */
    public DownloadedDirectory downloadDirectory(String directory, Path local) throws IOException {
        try (ByteStream archive = downloadArchive(directory)) {
            return Directories.unpack(archive, local);
        }
    }

    private static Call each(Call call, List<String> paths) {
        Object[] pairs = new Object[2 * paths.size()];
        for (int at = 0; at < paths.size(); at++) {
            pairs[2 * at] = "path";
            pairs[2 * at + 1] = paths.get(at);
        }
        return call.query(pairs);
    }

    private static Map<String, Object> permissions(Map<String, Permission> files) {
        Map<String, Object> written = new LinkedHashMap<>();
        files.forEach((path, permission) -> written.put(path, permission.wire()));
        return written;
    }
}
