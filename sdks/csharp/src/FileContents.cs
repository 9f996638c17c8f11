// What is written to files: bytes in memory, or streams that are never whole in memory, and the multipart form
// (RFC 7578) that carries them.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Runtime.ExceptionServices;
using System.Text;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>What a file is to contain: text, bytes or a stream, which all convert to it by themselves. A stream is read
    /// once, as it is sent, and stays the caller's.</summary>
    public sealed class FileContents
    {
        private FileContents(byte[]? bytes, Stream? stream)
        {
            Bytes = bytes;
            Stream = stream;
        }

        internal byte[]? Bytes { get; }

        internal Stream? Stream { get; }

        /// <summary>Text, as UTF-8.</summary>
        /// <param name="text">The text.</param>
        public static implicit operator FileContents(string text) => new FileContents(Encoding.UTF8.GetBytes(text), null);

        /// <summary>Bytes.</summary>
        /// <param name="bytes">The bytes.</param>
        public static implicit operator FileContents(byte[] bytes) => new FileContents(bytes, null);

        /// <summary>A stream, from where it stands to its end.</summary>
        /// <param name="stream">The stream.</param>
        public static implicit operator FileContents(Stream stream) => new FileContents(null, stream);
    }

    /// <summary>Owner, group and mode; what is null stays as it is.</summary>
    public class Permission
    {
        /// <summary>Permission bits as a number: <c>Convert.ToInt32("644", 8)</c>.</summary>
        public int? Mode { get; set; }

        /// <summary>By name or number.</summary>
        public string? Owner { get; set; }

        /// <summary>By name or number.</summary>
        public string? Group { get; set; }

        internal FilePermission Wire() => new FilePermission { Mode = Written(Mode), Owner = Owner, Group = Group };

        /// <summary>Permission bits as the protocol writes them: octal digits as a decimal number.</summary>
        internal static long? Written(int? mode) => mode is int bits ? long.Parse(Convert.ToString(bits & 0xfff, 8)) : (long?)null;
    }

    /// <summary>A file to write.</summary>
    public sealed class WriteFile : Permission
    {
        /// <summary>A file to write.</summary>
        /// <param name="path">Where.</param>
        /// <param name="contents">What.</param>
        public WriteFile(string path, FileContents contents)
        {
            Path = path;
            Contents = contents;
        }

        /// <summary>Where.</summary>
        public string Path { get; }

        /// <summary>What.</summary>
        public FileContents Contents { get; }
    }

    /// <summary>Bytes and streams, one after the other, as the body of a request.</summary>
    internal sealed class Body : HttpContent
    {
        private const int CopyBytes = 64 * 1024;

        private readonly IReadOnlyList<FileContents> _parts;
        private readonly Sent _sent;

        private Body(IReadOnlyList<FileContents> parts, string contentType, Sent sent)
        {
            _parts = parts;
            _sent = sent;
            Headers.ContentType = MediaTypeHeaderValue.Parse(contentType);
        }

        /// <summary>A metadata and a file part for each file.</summary>
        internal static Sent Form(IEnumerable<WriteFile> files)
        {
            var boundary = $"osb-{Guid.NewGuid():N}";
            var parts = new List<FileContents>();
            foreach (var file in files)
            {
                var metadata = new FileMetadata
                {
                    Path = file.Path, Mode = Permission.Written(file.Mode), Owner = file.Owner, Group = file.Group,
                };
                parts.Add(Head(boundary, "metadata", "application/json"));
                parts.Add(Json.Bytes(metadata));
                parts.Add("\r\n" + Head(boundary, "file", "application/octet-stream"));
                parts.Add(file.Contents);
                parts.Add("\r\n");
            }
            parts.Add($"--{boundary}--\r\n");
            return new Sent(parts, $"multipart/form-data; boundary={boundary}");
        }

        // The published daemon wants every part to have a file name; which does not matter.
        private static string Head(string boundary, string name, string type) =>
            $"--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\nContent-Type: {type}\r\n\r\n";

        protected override async Task SerializeToStreamAsync(Stream stream, TransportContext? context)
        {
            foreach (var part in _parts)
            {
                if (part.Bytes != null) await stream.WriteAsync(part.Bytes, 0, part.Bytes.Length).ConfigureAwait(false);
                else await CopyAsync(part.Stream!, stream).ConfigureAwait(false);
            }
        }

        protected override bool TryComputeLength(out long length)
        {
            length = _parts.Sum(part => part.Bytes?.LongLength ?? 0);
            return _parts.All(part => part.Bytes != null);
        }

        /// <summary>Copies a source, and remembers what it threw: that explains better than the connection why sending
        /// failed.</summary>
        private async Task CopyAsync(Stream source, Stream into)
        {
            var space = new byte[CopyBytes];
            while (true)
            {
                int count;
                try
                {
                    count = await source.ReadAsync(space, 0, space.Length).ConfigureAwait(false);
                }
                catch (Exception error)
                {
                    _sent.SourceError = ExceptionDispatchInfo.Capture(error);
                    throw;
                }
                if (count == 0) return;
                await into.WriteAsync(space, 0, count).ConfigureAwait(false);
            }
        }

        /// <summary>A body that is to be sent, and what came of it.</summary>
        internal sealed class Sent
        {
            private readonly IReadOnlyList<FileContents> _parts;
            private readonly string _contentType;

            internal Sent(IReadOnlyList<FileContents> parts, string contentType)
            {
                _parts = parts;
                _contentType = contentType;
            }

            internal ExceptionDispatchInfo? SourceError { get; set; }

            /// <summary>The call that sends it. One with a stream takes as long as its source takes to give its bytes.</summary>
            internal Call Call(string query, TimeSpan? limit = null)
            {
                var isStream = _parts.Any(part => part.Stream != null);
                return new Call
                {
                    Query = query,
                    Content = () => new Body(_parts, _contentType, this),
                    IsOnce = isStream,
                    Limit = isStream ? System.Threading.Timeout.InfiniteTimeSpan : limit,
                };
            }

            /// <summary>Sends; an error of the source comes before the error that it caused.</summary>
            internal async Task<T> ExplainedAsync<T>(Func<Task<T>> send)
            {
                try
                {
                    return await send().ConfigureAwait(false);
                }
                catch (Exception)
                {
                    SourceError?.Throw();
                    throw;
                }
            }
        }
    }
}
