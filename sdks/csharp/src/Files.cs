// Files and directories of a sandbox.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>What is known of a file without following a link.</summary>
    public sealed class FileEntry
    {
        internal FileEntry(Wire.FileInfo wire)
        {
            Path = wire.Path;
            RawPath = wire.RawPath;
            Type = wire.Type;
            Size = wire.Size;
            ModifiedAt = wire.ModifiedAt;
            CreatedAt = wire.CreatedAt;
            Owner = wire.Owner;
            Group = wire.Group;
            Mode = Convert.ToInt32(wire.Mode.ToString(System.Globalization.CultureInfo.InvariantCulture), 8);
        }

        /// <summary>Absolute path.</summary>
        public string Path { get; }

        /// <summary>The path again, percent-encoded, when its bytes are not UTF-8.</summary>
        public string? RawPath { get; }

        /// <summary>What it is, where the daemon says so: one of <see cref="FileKind"/>.</summary>
        public string? Type { get; }

        /// <summary>Size in bytes.</summary>
        public long Size { get; }

        /// <summary>When it was last written.</summary>
        public DateTimeOffset ModifiedAt { get; }

        /// <summary>When it was made.</summary>
        public DateTimeOffset CreatedAt { get; }

        /// <summary>Its owner's name, or number where it has no name.</summary>
        public string Owner { get; }

        /// <summary>Its group's name, or number where it has no name.</summary>
        public string Group { get; }

        /// <summary>Its permission bits.</summary>
        public int Mode { get; }
    }

    /// <summary>The files of a sandbox.</summary>
    public sealed class Files
    {
        /// <summary>What a directory is sent as.</summary>
        private const string TarType = "application/x-tar";

        private readonly Sandbox _sandbox;

        /// <summary>As whom: <c>/v1/filesystem/{uid}/{gid}</c>, or nothing for the daemon's own user.</summary>
        private readonly string _prefix;

        internal Files(Sandbox sandbox, string prefix = "")
        {
            _sandbox = sandbox;
            _prefix = prefix;
        }

        /// <summary>The files as this user and group see them.</summary>
        /// <param name="uid">The user's number.</param>
        /// <param name="gid">The group's number.</param>
        public Files AsUser(int uid, int gid)
        {
            if (uid < 0 || gid < 0) throw new InvalidArgumentException($"{Math.Min(uid, gid)} is not the number of a user or group");
            return new Files(_sandbox, $"/v1/filesystem/{uid}/{gid}");
        }

        /// <summary>Reads a file.</summary>
        /// <param name="path">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<byte[]> ReadAsync(string path, CancellationToken cancellationToken = default) =>
            await BytesAsync(await DownloadAsync(path, cancellationToken).ConfigureAwait(false), cancellationToken).ConfigureAwait(false);

        /// <summary>Reads a file that is UTF-8 text.</summary>
        /// <param name="path">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<string> ReadTextAsync(string path, CancellationToken cancellationToken = default)
        {
            var bytes = await ReadAsync(path, cancellationToken).ConfigureAwait(false);
            try
            {
                return new UTF8Encoding(false, true).GetString(bytes);
            }
            catch (DecoderFallbackException error)
            {
                throw new UnreadableException(path, "it is not UTF-8 text", "read it as bytes", error);
            }
        }

        /// <summary>Reads the bytes from one offset up to, and not with, another; fewer where the file ends before.</summary>
        /// <param name="path">Which file.</param>
        /// <param name="start">The first byte.</param>
        /// <param name="end">The byte after the last.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<byte[]> ReadRangeAsync(string path, long start, long end, CancellationToken cancellationToken = default)
        {
            if (start < 0) throw new InvalidArgumentException($"{start} is not the offset of a byte");
            if (end <= start) return Array.Empty<byte>();
            var part = await ReadRangeHeaderAsync(path, $"bytes={start}-{end - 1}", cancellationToken).ConfigureAwait(false);
            return await BytesAsync(part, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Reads a part of a file, named as in a <c>Range</c> header: <c>bytes=0-99</c>, <c>bytes=-5</c>.</summary>
        /// <param name="path">Which file.</param>
        /// <param name="range">Which part.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<Stream> ReadRangeHeaderAsync(string path, string range, CancellationToken cancellationToken = default)
        {
            if (range == "" || range.Any(character => character < ' ' || character > '~'))
                throw new InvalidArgumentException($"\"{range}\" is not a range");
            var headers = new Dictionary<string, string> { ["Range"] = range };
            return await OpenAsync("/files/download", Encoded.Query(("path", path)), headers, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Reads lines of a file.</summary>
        /// <param name="path">Which file.</param>
        /// <param name="first">The first line; they count from 1.</param>
        /// <param name="count">How many.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<string> ReadLinesAsync(string path, long first, long count, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Encoded.Query(("path", path), ("offset", first), ("limit", count)) };
            return await exec.TextAsync("GET", $"{_prefix}/files/download", call, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Reads a file as it arrives. Disposing the stream gives the rest up.</summary>
        /// <param name="path">Which.</param>
        /// <param name="cancellationToken">Ends reading early, also later.</param>
        public Task<Stream> DownloadAsync(string path, CancellationToken cancellationToken = default) =>
            OpenAsync("/files/download", Encoded.Query(("path", path)), null, cancellationToken);

        /// <summary>Writes a file, whole or not at all; directories on the way are made.</summary>
        /// <param name="path">Where.</param>
        /// <param name="contents">Text, bytes or a stream.</param>
        /// <param name="permission">Its mode, owner and group.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task WriteAsync(string path, FileContents contents, Permission? permission = null, CancellationToken cancellationToken = default)
        {
            var file = new WriteFile(path, contents) { Mode = permission?.Mode, Owner = permission?.Owner, Group = permission?.Group };
            return WriteAllAsync(new[] { file }, cancellationToken);
        }

        /// <summary>Writes files in one request.</summary>
        /// <param name="files">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task WriteAllAsync(IReadOnlyCollection<WriteFile> files, CancellationToken cancellationToken = default)
        {
            if (files.Count == 0) return;
            var sent = Body.Form(files);
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            await sent.ExplainedAsync(() => exec.BytesAsync("POST", $"{_prefix}/files/upload", sent.Call(""), cancellationToken)).ConfigureAwait(false);
        }

        /// <summary>What is known of files, by the paths as given.</summary>
        /// <param name="paths">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<IReadOnlyDictionary<string, FileEntry>> InfoAsync(
            IReadOnlyCollection<string> paths, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Each(paths) };
            var found = await exec.JsonAsync<Dictionary<string, Wire.FileInfo>>("GET", $"{_prefix}/files/info", call, cancellationToken).ConfigureAwait(false);
            return found.ToDictionary(pair => pair.Key, pair => new FileEntry(pair.Value));
        }

        /// <summary>Whether a path exists.</summary>
        /// <param name="path">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<bool> ExistsAsync(string path, CancellationToken cancellationToken = default)
        {
            try
            {
                return (await InfoAsync(new[] { path }, cancellationToken).ConfigureAwait(false)).Count > 0;
            }
            catch (OpenSandboxException error) when (error.IsNotFound)
            {
                return false;
            }
        }

        /// <summary>Lists a directory.</summary>
        /// <param name="path">Which.</param>
        /// <param name="depth">How many levels deep.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<IReadOnlyList<FileEntry>> ListAsync(string path, int depth = 1, CancellationToken cancellationToken = default) =>
            EntriesAsync("/directories/list", Encoded.Query(("path", path), ("depth", depth)), cancellationToken);

        /// <summary>Finds files below a directory by a glob.</summary>
        /// <param name="path">The directory.</param>
        /// <param name="pattern">The glob.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<IReadOnlyList<FileEntry>> SearchAsync(string path, string pattern, CancellationToken cancellationToken = default) =>
            EntriesAsync("/files/search", Encoded.Query(("path", path), ("pattern", pattern)), cancellationToken);

        /// <summary>Moves a file or directory.</summary>
        /// <param name="from">Which.</param>
        /// <param name="to">Where to.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task RenameAsync(string from, string to, CancellationToken cancellationToken = default) =>
            RenameAllAsync(new[] { (from, to) }, cancellationToken);

        /// <summary>Moves files and directories.</summary>
        /// <param name="moves">Which, and where to.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task RenameAllAsync(IEnumerable<(string From, string To)> moves, CancellationToken cancellationToken = default)
        {
            var json = moves.Select(move => new RenameFileItem { Src = move.From, Dest = move.To }).ToArray();
            return DoneAsync("POST", "/files/mv", new Call { Json = json }, cancellationToken);
        }

        /// <summary>Removes files; one that is not there is no error.</summary>
        /// <param name="paths">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task DeleteAsync(IReadOnlyCollection<string> paths, CancellationToken cancellationToken = default) =>
            DoneAsync("DELETE", "/files", new Call { Query = Each(paths) }, cancellationToken);

        /// <summary>Makes directories with their parents.</summary>
        /// <param name="paths">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task CreateDirectoriesAsync(IEnumerable<string> paths, CancellationToken cancellationToken = default) =>
            CreateDirectoriesAsync(paths.ToDictionary(path => path, _ => new Permission()), cancellationToken);

        /// <summary>Makes directories with their parents, with a mode and owner.</summary>
        /// <param name="directories">Which, by their paths.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task CreateDirectoriesAsync(IReadOnlyDictionary<string, Permission> directories, CancellationToken cancellationToken = default) =>
            DoneAsync("POST", "/directories", new Call { Json = Permissions(directories) }, cancellationToken);

        /// <summary>Removes directories with everything in them.</summary>
        /// <param name="paths">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task DeleteDirectoriesAsync(IReadOnlyCollection<string> paths, CancellationToken cancellationToken = default) =>
            DoneAsync("DELETE", "/directories", new Call { Query = Each(paths) }, cancellationToken);

        /// <summary>Sets mode, owner and group of files.</summary>
        /// <param name="files">By their paths.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task SetPermissionsAsync(IReadOnlyDictionary<string, Permission> files, CancellationToken cancellationToken = default) =>
            DoneAsync("POST", "/files/permissions", new Call { Json = Permissions(files) }, cancellationToken);

        /// <summary>Replaces every occurrence of a text in a file and answers how many there were; nothing where the daemon
        /// does not say.</summary>
        /// <param name="path">Which file.</param>
        /// <param name="old">What is there.</param>
        /// <param name="replacement">What is to be there.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<long?> ReplaceAsync(string path, string old, string replacement, CancellationToken cancellationToken = default)
        {
            var all = new Dictionary<string, (string, string)> { [path] = (old, replacement) };
            var counts = await ReplaceAllAsync(all, cancellationToken).ConfigureAwait(false);
            return counts.TryGetValue(path, out var count) ? count : (long?)null;
        }

        /// <summary>Replaces text in files and answers how often each was found, where the daemon says so.</summary>
        /// <param name="replacements">By their paths.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<IReadOnlyDictionary<string, long>> ReplaceAllAsync(
            IReadOnlyDictionary<string, (string Old, string New)> replacements, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var json = replacements.ToDictionary(
                pair => pair.Key, pair => new ReplaceFileContentItem { Old = pair.Value.Old, New = pair.Value.New });
            var call = new Call { Query = Encoded.Query(("verbose", true)), Json = json };
            var text = await exec.TextAsync("POST", $"{_prefix}/files/replace", call, cancellationToken).ConfigureAwait(false);
            // Older daemons answer nothing.
            var counts = text.Trim() == "" ? null : JsonSerializer.Deserialize<Dictionary<string, ReplaceFileContentResult>>(text, Json.Options);
            return counts?.ToDictionary(pair => pair.Key, pair => pair.Value.ReplacedCount) ?? new Dictionary<string, long>();
        }

        /// <summary>Extension: a directory with everything below it, as a tar stream.</summary>
        /// <param name="directory">Which.</param>
        /// <param name="cancellationToken">Ends reading early, also later.</param>
        public Task<Stream> DownloadArchiveAsync(string directory, CancellationToken cancellationToken = default) =>
            OpenAsync("/directories/archive", Encoded.Query(("path", directory)), null, cancellationToken);

        /// <summary>Extension: unpacks a tar stream into a directory, which is made when it is not there.</summary>
        /// <param name="directory">Which.</param>
        /// <param name="archive">The archive.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<ArchiveResponse> UploadArchiveAsync(
            string directory, FileContents archive, CancellationToken cancellationToken = default)
        {
            var sent = new Body.Sent(new[] { archive }, TarType);
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = sent.Call(Encoded.Query(("path", directory)), Timeout.InfiniteTimeSpan);
            var path = $"{_prefix}/directories/archive";
            return await sent.ExplainedAsync(() => exec.JsonAsync<ArchiveResponse>("PUT", path, call, cancellationToken)).ConfigureAwait(false);
        }

        /// <summary>Extension: sends a directory of this machine. Links are sent as links; on Linux files keep their mode.</summary>
        /// <param name="local">The directory here.</param>
        /// <param name="directory">Where to.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<ArchiveResponse> UploadDirectoryAsync(string local, string directory, CancellationToken cancellationToken = default)
        {
            using var archive = Tar.Pack(Directories.Entries(local));
            return await UploadArchiveAsync(directory, archive, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Extension: brings a directory to this machine. Nothing is written outside of it, and no link is followed.</summary>
        /// <param name="directory">Which.</param>
        /// <param name="local">Where to.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<DownloadedDirectory> DownloadDirectoryAsync(string directory, string local, CancellationToken cancellationToken = default)
        {
            await using var archive = await DownloadArchiveAsync(directory, cancellationToken).ConfigureAwait(false);
            return await Directories.UnpackAsync(archive, local, cancellationToken).ConfigureAwait(false);
        }

        private static async Task<byte[]> BytesAsync(Stream stream, CancellationToken token)
        {
            await using (stream.ConfigureAwait(false))
            {
                var whole = new MemoryStream();
                await stream.CopyToAsync(whole, token).ConfigureAwait(false);
                return whole.ToArray();
            }
        }

        private static string Each(IEnumerable<string> paths) => Encoded.Query(paths.Select(path => ("path", (object?)path)));

        private static Dictionary<string, FilePermission> Permissions(IReadOnlyDictionary<string, Permission> files) =>
            files.ToDictionary(pair => pair.Key, pair => pair.Value.Wire());

        private async Task<Stream> OpenAsync(string path, string query, IReadOnlyDictionary<string, string>? headers, CancellationToken token)
        {
            var exec = await _sandbox.ExecAsync(token).ConfigureAwait(false);
            var call = new Call { Query = query, Headers = headers };
            return new BodyStream(await exec.SendAsync("GET", _prefix + path, call, token).ConfigureAwait(false));
        }

        private async Task<IReadOnlyList<FileEntry>> EntriesAsync(string path, string query, CancellationToken token)
        {
            var exec = await _sandbox.ExecAsync(token).ConfigureAwait(false);
            var found = await exec.JsonAsync<List<Wire.FileInfo>>("GET", _prefix + path, new Call { Query = query }, token).ConfigureAwait(false);
            return found.Select(info => new FileEntry(info)).ToArray();
        }

        private async Task DoneAsync(string method, string path, Call call, CancellationToken token)
        {
            var exec = await _sandbox.ExecAsync(token).ConfigureAwait(false);
            await exec.DoneAsync(method, _prefix + path, call, token).ConfigureAwait(false);
        }
    }
}
