// Archives: POSIX tar (IEEE Std 1003.1-2017, pax) written and read as streams. Files, directories and links;
// devices and sparse files are passed over when read.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>What an entry of an archive is.</summary>
    public enum TarType
    {
        /// <summary>A file.</summary>
        File,

        /// <summary>A directory.</summary>
        Directory,

        /// <summary>A symbolic link.</summary>
        Symlink,

        /// <summary>Another name of a file of the archive.</summary>
        Link,
    }

    /// <summary>What goes into an archive.</summary>
    public sealed class TarInput
    {
        /// <summary>What goes into an archive.</summary>
        /// <param name="name">Relative path, with <c>/</c> between its parts.</param>
        public TarInput(string name)
        {
            Name = name;
        }

        /// <summary>Relative path.</summary>
        public string Name { get; }

        /// <summary>A file, a directory or a symbolic link.</summary>
        public TarType Type { get; set; }

        /// <summary>Permission bits; nothing is what is usual.</summary>
        public int? Mode { get; set; }

        /// <summary>When it was last written.</summary>
        public DateTimeOffset ModifiedAt { get; set; } = DateTimeOffset.UnixEpoch;

        /// <summary>Where a link leads.</summary>
        public string Target { get; set; } = "";

        /// <summary>How many bytes a file has.</summary>
        public long Size { get; set; }

        /// <summary>Opens a file's contents, which are exactly as many bytes; called when its turn has come.</summary>
        public Func<Stream>? Open { get; set; }

        /// <summary>A file with this text.</summary>
        /// <param name="name">Relative path.</param>
        /// <param name="text">Its contents, as UTF-8.</param>
        public static TarInput Text(string name, string text)
        {
            var bytes = Encoding.UTF8.GetBytes(text);
            return new TarInput(name) { Size = bytes.Length, Open = () => new MemoryStream(bytes) };
        }
    }

    /// <summary>An entry that was read, with its contents, which must be read before the next entry is asked for.</summary>
    public sealed class TarEntry
    {
        internal TarEntry(string name, TarType type, int mode, long size, string? target, Stream contents)
        {
            Name = name;
            Type = type;
            Mode = mode;
            Size = size;
            Target = target;
            Contents = contents;
        }

        /// <summary>Relative path, without a slash at the end.</summary>
        public string Name { get; }

        /// <summary>What it is.</summary>
        public TarType Type { get; }

        /// <summary>Permission bits.</summary>
        public int Mode { get; }

        /// <summary>Size of the contents.</summary>
        public long Size { get; }

        /// <summary>Where a link leads.</summary>
        public string? Target { get; }

        /// <summary>The contents of a file.</summary>
        public Stream Contents { get; }
    }

    /// <summary>Archives, for <see cref="Files.UploadArchiveAsync"/> and <see cref="Files.DownloadArchiveAsync"/>.</summary>
    public static class Tar
    {
        internal const int Block = 512;

        /// <summary>A pax record of a name is at most this long; more is a fault or an attack.</summary>
        private const int PaxBytesMax = 1024 * 1024;

        /// <summary>An archive of these, made as it is read.</summary>
        /// <param name="inputs">What goes into it.</param>
        public static Stream Pack(IEnumerable<TarInput> inputs) => new TarWriter(inputs);

        /// <summary>Reads an archive, entry by entry.</summary>
        /// <param name="archive">The archive.</param>
        /// <param name="cancellationToken">Ends reading early.</param>
        public static async IAsyncEnumerable<TarEntry> ReadAsync(
            Stream archive, [EnumeratorCancellation] CancellationToken cancellationToken = default)
        {
            var extra = new Dictionary<string, string>();
            while (true)
            {
                var head = await TakeAsync(archive, Block, cancellationToken).ConfigureAwait(false);
                if (head == null || head.All(value => value == 0)) yield break;
                var header = new TarHeader(head);
                if (header.IsExtension)
                {
                    if (header.Size > PaxBytesMax) throw Wrong($"a name is longer than {PaxBytesMax} bytes");
                    var padded = (int)(header.Size + Padding(header.Size));
                    var bytes = padded == 0 ? head : await TakeAsync(archive, padded, cancellationToken).ConfigureAwait(false) ?? throw Torn();
                    header.Extend(extra, bytes.AsSpan(0, (int)header.Size));
                    continue;
                }
                header.Take(extra);
                extra.Clear();
                var contents = new Part(archive, header.HasContents ? header.Size : 0);
                if (header.Type is TarType type)
                {
                    var target = type == TarType.Symlink || type == TarType.Link ? header.Target : null;
                    yield return new TarEntry(header.Name.TrimEnd('/'), type, header.Mode, contents.Length, target, contents);
                }
                // What was not read is passed over.
                await contents.CopyToAsync(Stream.Null, cancellationToken).ConfigureAwait(false);
                if (Padding(contents.Length) is int rest && rest > 0) await TakeAsync(archive, rest, cancellationToken).ConfigureAwait(false);
            }
        }

        internal static int Padding(long size) => (int)((Block - size % Block) % Block);

        internal static UnreadableException Wrong(string message) => new UnreadableException("an archive", message, "read it again");

        private static UnreadableException Torn() => Wrong("it ends in the middle of a block");

        /// <summary>Exactly so many bytes; nothing when the archive has ended before the first.</summary>
        private static async Task<byte[]?> TakeAsync(Stream archive, int length, CancellationToken token)
        {
            var whole = new byte[length];
            for (var at = 0; at < length;)
            {
                var count = await archive.ReadAsync(whole.AsMemory(at), token).ConfigureAwait(false);
                if (count == 0) return at == 0 ? (byte[]?)null : throw Torn();
                at += count;
            }
            return whole;
        }

        /// <summary>The contents of one entry.</summary>
        private sealed class Part : ReadOnlyStream
        {
            private readonly Stream _archive;
            private long _left;

            internal Part(Stream archive, long length)
            {
                _archive = archive;
                Length = _left = length;
            }

            public override long Length { get; }

            public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
            {
                if (_left == 0 || buffer.Length == 0) return 0;
                var most = (int)Math.Min(_left, buffer.Length);
                var count = await _archive.ReadAsync(buffer.Slice(0, most), cancellationToken).ConfigureAwait(false);
                if (count == 0) throw Wrong("it ends in the middle of a file");
                _left -= count;
                return count;
            }
        }
    }
}
