package dev.osb.kotlin

import dev.osb.Contents
import dev.osb.DownloadedDirectory
import dev.osb.FileInfo
import dev.osb.Permission
import dev.osb.WriteFile
import dev.osb.wire.ArchiveResponse
import dev.osb.wire.ReplaceFileContentItem
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.future.await
import kotlinx.coroutines.runInterruptible
import java.nio.file.Path

/** Files and directories of a sandbox. */
public class Files internal constructor(private val java: dev.osb.Files) {
    /** The files as this user and group see them. */
    public fun asUser(uid: Int, gid: Int): Files = Files(java.asUser(uid, gid))

    /** Reads a file. */
    public suspend fun read(path: String): ByteArray = java.readAsync(path).await()

    /** Reads a file that is UTF-8 text. */
    public suspend fun readText(path: String): String = java.readTextAsync(path).await()

    /** Reads the bytes from [start] up to, and not with, [end]; fewer where the file ends before. */
    public suspend fun readRange(path: String, start: Long, end: Long): ByteArray = java.readRangeAsync(path, start, end).await()

    /** Reads a part of a file as it arrives, named as in a `Range` header: `bytes=0-99`, `bytes=-5`. */
    public suspend fun downloadRange(path: String, range: String): ByteStream = ByteStream(java.downloadRangeAsync(path, range).await())

    /** Reads [count] lines of a file from line [first] on, which counts from 1. */
    public suspend fun readLines(path: String, first: Long, count: Long): String = java.readLinesAsync(path, first, count).await()

    /** Reads a file as it arrives. */
    public suspend fun download(path: String): ByteStream = ByteStream(java.downloadAsync(path).await())

    /** Writes a file of this text, whole or not at all; directories on the way are made. */
    public suspend fun write(path: String, text: String, permission: Permission = Permission.DEFAULT): Unit =
        write(path, Contents.of(text), permission)

    /** Writes a file of these bytes, whole or not at all; directories on the way are made. */
    public suspend fun write(path: String, bytes: ByteArray, permission: Permission = Permission.DEFAULT): Unit =
        write(path, Contents.of(bytes), permission)

    /** Writes a file, whole or not at all; directories on the way are made. */
    public suspend fun write(path: String, contents: Contents, permission: Permission = Permission.DEFAULT) {
        java.writeAsync(path, contents, permission).await()
    }

    /** Writes files in one request. */
    public suspend fun writeAll(files: List<WriteFile>) {
        java.writeAllAsync(files).await()
    }

    /** What is known of files, by the paths as given. */
    public suspend fun info(paths: List<String>): Map<String, FileInfo> = java.infoAsync(paths).await()

    /** Whether a path exists. */
    public suspend fun exists(path: String): Boolean = java.existsAsync(path).await()

    /** Lists a directory, this many levels deep. */
    public suspend fun list(path: String, depth: Int = 1): List<FileInfo> = java.listAsync(path, depth).await()

    /** Finds files below a directory by a glob. */
    public suspend fun search(path: String, pattern: String): List<FileInfo> = java.searchAsync(path, pattern).await()

    /** Moves a file or directory. */
    public suspend fun rename(from: String, to: String): Unit = renameAll(mapOf(from to to))

    /** Moves files and directories, each to where it is to be. */
    public suspend fun renameAll(moves: Map<String, String>) {
        java.renameAllAsync(moves).await()
    }

    /** Removes files; one that is not there is no error. */
    public suspend fun delete(paths: List<String>) {
        java.deleteAsync(paths).await()
    }

    /** Makes directories with their parents. */
    public suspend fun createDirectories(paths: List<String>): Unit = createDirectories(paths.associateWith { Permission.DEFAULT })

    /** Makes directories with their parents, with the mode and owner of each. */
    public suspend fun createDirectories(directories: Map<String, Permission>) {
        java.createDirectoriesAsync(directories).await()
    }

    /** Removes directories with everything in them. */
    public suspend fun deleteDirectories(paths: List<String>) {
        java.deleteDirectoriesAsync(paths).await()
    }

    /** Sets mode, owner and group of files, by their paths. */
    public suspend fun setPermissions(files: Map<String, Permission>) {
        java.setPermissionsAsync(files).await()
    }

    /** Replaces every occurrence of a text in a file and answers how many there were; null where the daemon does not say. */
    public suspend fun replace(path: String, old: String, replacement: String): Long? =
        replaceAll(mapOf(path to ReplaceFileContentItem(replacement, old)))[path]

    /** Replaces text in files, by their paths, and answers how often each was found, where the daemon says so. */
    public suspend fun replaceAll(replacements: Map<String, ReplaceFileContentItem>): Map<String, Long> =
        java.replaceAllAsync(replacements).await()

    /** Extension: a directory with everything below it, as a tar stream. */
    public suspend fun downloadArchive(directory: String): ByteStream = ByteStream(java.downloadArchiveAsync(directory).await())

    /** Extension: unpacks a tar stream into a directory, which is made when it is not there. */
    public suspend fun uploadArchive(directory: String, archive: Contents): ArchiveResponse = java.uploadArchiveAsync(directory, archive).await()

    /** Extension: sends a directory of this machine. */
    public suspend fun uploadDirectory(local: Path, directory: String): ArchiveResponse = java.uploadDirectoryAsync(local, directory).await()

    /** Extension: brings a directory to this machine. Writing files blocks, on a thread of the I/O dispatcher. */
    public suspend fun downloadDirectory(directory: String, local: Path): DownloadedDirectory =
        runInterruptible(Dispatchers.IO) { java.downloadDirectory(directory, local) }
}
