// Event streams as JSON texts. Reads bare JSON lines, `data:` lines, and plain server-sent events, in whatever
// pieces they arrive; holds at most one event and what came with it.

using System;
using System.IO;
using System.Text;

namespace OpenSandbox
{
    /// <summary>Finds the events of one stream. Bytes are read into <see cref="Space"/>, and then every event that is
    /// whole is taken by <see cref="TryTake"/>.</summary>
    internal sealed class EventDecoder
    {
        /// <summary>Longer than any event we send; the published daemon sends whole lines, however long.</summary>
        private const int EventBytesMax = 16 * 1024 * 1024;

        /// <summary>What one read may bring. Twice as much is still below 85,000 bytes, from where on .NET keeps arrays apart and
        /// collects them with everything else.</summary>
        private const int ReadBytes = 16 * 1024;

        /// <summary>As much of a line as goes into an error.</summary>
        private const int ExcerptBytes = 80;

        private readonly string _what;
        private byte[] _bytes = new byte[2 * ReadBytes];
        private int _start;
        private int _looked;
        private int _end;
        private MemoryStream? _data;
        private bool _hasData;

        internal EventDecoder(string what)
        {
            _what = what;
        }

        /// <summary>Where the next bytes go. What was taken before is no longer good.</summary>
        internal Memory<byte> Space()
        {
            if (_start == _end) _start = _looked = _end = 0;
            if (_end - _start > EventBytesMax) throw TooLong();
            if (_bytes.Length - _end < ReadBytes)
            {
                var length = _end - _start;
                var into = length + ReadBytes > _bytes.Length ? new byte[2 * _bytes.Length] : _bytes;
                Buffer.BlockCopy(_bytes, _start, into, 0, length);
                _bytes = into;
                _looked -= _start;
                _start = 0;
                _end = length;
            }
            return _bytes.AsMemory(_end, ReadBytes);
        }

        /// <summary>Says how many bytes came.</summary>
        internal void Came(int count) => _end += count;

        /// <summary>Ends the stream: an event that lacks its empty line or even its line end counts, as clients of the
        /// published daemon take such an event too.</summary>
        internal void Finish()
        {
            var space = Space().Span;
            space[0] = space[1] = (byte)'\n';
            Came(2);
        }

        /// <summary>The next event that is whole, as JSON.</summary>
        internal bool TryTake(out ReadOnlyMemory<byte> json)
        {
            while (true)
            {
                var found = _bytes.AsSpan(_looked, _end - _looked).IndexOf((byte)'\n');
                if (found < 0)
                {
                    _looked = _end;
                    json = default;
                    return false;
                }
                var line = _bytes.AsMemory(_start, _looked + found - _start);
                _start = _looked = _looked + found + 1;
                if (TryLine(line, out json)) return true;
            }
        }

        private bool TryLine(ReadOnlyMemory<byte> line, out ReadOnlyMemory<byte> json)
        {
            json = line;
            var bytes = line.Span;
            // Most lines are an event or the empty one after it.
            if (bytes.Length > 0 && bytes[0] == (byte)'{') return true;
            if (bytes.Length > 0 && bytes[^1] == (byte)'\r') bytes = bytes.Slice(0, bytes.Length - 1);
            if (bytes.Length == 0) return TryData(out json);
            var bare = bytes.TrimStart((byte)' ');
            if (bare.Length > 0 && (bare[0] == (byte)'{' || bare[0] == (byte)'[')) return true;
            var colon = bytes.IndexOf((byte)':');
            if (colon < 0 || !IsName(bytes.Slice(0, colon))) throw NoEvent(bytes);
            if (IsData(bytes.Slice(0, colon)))
            {
                var from = colon + 1 < bytes.Length && bytes[colon + 1] == (byte)' ' ? colon + 2 : colon + 1;
                Keep(bytes.Slice(from));
            }
            return false;
        }

        private static bool IsData(ReadOnlySpan<byte> name) =>
            name.Length == 4 && name[0] == 'd' && name[1] == 'a' && name[2] == 't' && name[3] == 'a';

        private static bool IsName(ReadOnlySpan<byte> name)
        {
            foreach (var value in name)
                if (!char.IsLetterOrDigit((char)value) && value != '_' && value != '-') return false;
            return true;
        }

        private void Keep(ReadOnlySpan<byte> data)
        {
            _data ??= new MemoryStream();
            if (!_hasData) _data.SetLength(0);
            else _data.WriteByte((byte)'\n');
            _hasData = true;
            _data.Write(data);
            if (_data.Length > EventBytesMax) throw TooLong();
        }

        private bool TryData(out ReadOnlyMemory<byte> json)
        {
            json = default;
            if (!_hasData) return false;
            _hasData = false;
            json = _data!.GetBuffer().AsMemory(0, (int)_data.Length);
            return true;
        }

        private UnreadableException NoEvent(ReadOnlySpan<byte> line)
        {
            var excerpt = Encoding.UTF8.GetString(line.Slice(0, Math.Min(line.Length, ExcerptBytes)));
            return new UnreadableException(_what, $"a line is neither JSON nor a field of server-sent events: \"{excerpt}\"");
        }

        private UnreadableException TooLong() =>
            new UnreadableException(_what, $"an event is longer than {EventBytesMax} bytes");
    }
}
