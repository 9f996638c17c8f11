// The blocks of tar archives: headers with their pax records, written and read.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>An archive that is made as it is read: the head of an entry, its contents, what fills its last block.</summary>
    internal sealed class TarWriter : ReadOnlyStream
    {
        /// <summary>Names and links longer than a header holds, and sizes above 8 GiB, go into a pax record.</summary>
        private const int NameBytesMax = 100;
        private const long SizeMax = (1L << 33) - 1;

        private readonly IEnumerator<TarInput> _inputs;
        private Stream _piece = Stream.Null;
        private TarInput? _input;
        private long _left;
        private bool _isOver;

        internal TarWriter(IEnumerable<TarInput> inputs)
        {
            _inputs = inputs.GetEnumerator();
        }

        public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
        {
            while (true)
            {
                var count = await _piece.ReadAsync(buffer, cancellationToken).ConfigureAwait(false);
                if (_input != null && (_left -= count) < 0) throw Changed(_input);
                if (count > 0 || buffer.Length == 0) return count;
                if (!NextPiece()) return 0;
            }
        }

        protected override void Dispose(bool disposing)
        {
            if (disposing)
            {
                _piece.Dispose();
                _inputs.Dispose();
            }
            base.Dispose(disposing);
        }

        private static IOException Changed(TarInput input) =>
            new IOException($"{input.Name} has another size than the {input.Size} bytes it was said to have");

        private bool NextPiece()
        {
            if (_isOver) return false;
            _piece.Dispose();
            if (_input != null)
            {
                if (_left != 0) throw Changed(_input);
                _piece = new MemoryStream(new byte[Tar.Padding(_input.Size)]);
                _input = null;
            }
            else if (_left > 0)
            {
                _input = _inputs.Current;
                _piece = _input.Open!();
            }
            else if (_inputs.MoveNext())
            {
                var next = _inputs.Current;
                _left = next.Open == null ? 0 : next.Size;
                _piece = new MemoryStream(Header(next));
            }
            else
            {
                _isOver = true;
                _piece = new MemoryStream(new byte[2 * Tar.Block]);
            }
            return true;
        }

        private static byte[] Header(TarInput input)
        {
            var name = input.Type == TarType.Directory ? $"{input.Name}/" : input.Name;
            var size = input.Open == null ? 0 : input.Size;
            var records = "";
            if (Encoding.UTF8.GetByteCount(name) > NameBytesMax) records += Record("path", name);
            if (Encoding.UTF8.GetByteCount(input.Target) > NameBytesMax) records += Record("linkpath", input.Target);
            if (size > SizeMax) records += Record("size", size.ToString(CultureInfo.InvariantCulture));
            var flag = input.Type == TarType.Directory ? '5' : input.Type == TarType.Symlink ? '2' : '0';
            var mode = input.Mode ?? (input.Type == TarType.Directory ? 0x1ed : 0x1a4);
            var modified = Math.Max(0, input.ModifiedAt.ToUnixTimeSeconds());
            var own = BlockOf(name, mode, size > SizeMax ? 0 : size, modified, flag, input.Target);
            if (records == "") return own;
            var text = Encoding.UTF8.GetBytes(records);
            var whole = new byte[Tar.Block + text.Length + Tar.Padding(text.Length) + Tar.Block];
            BlockOf("PaxHeader", 0x1a4, text.Length, 0, 'x', "").CopyTo(whole, 0);
            text.CopyTo(whole, Tar.Block);
            own.CopyTo(whole, whole.Length - Tar.Block);
            return whole;
        }

        /// <summary><c>length key=value</c>, where the length counts its own digits.</summary>
        private static string Record(string key, string value)
        {
            var rest = Encoding.UTF8.GetByteCount($" {key}={value}\n");
            var length = rest + Digits(rest);
            if (Digits(length) > Digits(rest)) length = rest + Digits(length);
            return $"{length} {key}={value}\n";
        }

        private static int Digits(int number) => number.ToString(CultureInfo.InvariantCulture).Length;

        private static byte[] BlockOf(string name, int mode, long size, long modified, char flag, string target)
        {
            var block = new byte[Tar.Block];
            void Put(int at, string text, int most)
            {
                var bytes = Encoding.UTF8.GetBytes(text);
                Array.Copy(bytes, 0, block, at, Math.Min(bytes.Length, most));
            }

            string Octal(long value, int width) => Convert.ToString(value, 8).PadLeft(width - 1, '0') + "\0";

            Put(0, name, NameBytesMax);
            Put(100, Octal(mode & 0xfff, 8), 8);
            Put(108, Octal(0, 8), 8);
            Put(116, Octal(0, 8), 8);
            Put(124, Octal(size, 12), 12);
            Put(136, Octal(modified, 12), 12);
            Put(148, "        ", 8);
            Put(156, flag.ToString(), 1);
            Put(157, target, NameBytesMax);
            Put(257, "ustar\0", 6);
            Put(263, "00", 2);
            long sum = 0;
            foreach (var value in block) sum += value;
            Put(148, $"{Convert.ToString(sum, 8).PadLeft(6, '0')}\0 ", 8);
            return block;
        }
    }

    /// <summary>A header that was read.</summary>
    internal sealed class TarHeader
    {
        private readonly byte[] _head;
        private readonly char _flag;

        internal TarHeader(byte[] head)
        {
            _head = head;
            long sum = 0;
            for (var at = 0; at < head.Length; at++) sum += at >= 148 && at < 156 ? (byte)' ' : head[at];
            if (sum != Octal(148, 8)) throw Tar.Wrong("a header's checksum is wrong");
            var prefix = Text(257, 6) == "ustar" ? Text(345, 155) : "";
            Name = prefix == "" ? Text(0, 100) : $"{prefix}/{Text(0, 100)}";
            Target = Text(157, 100);
            Mode = (int)(Octal(100, 8) & 0xfff);
            Size = SizeOf();
            _flag = (char)head[156];
        }

        internal string Name { get; private set; }

        internal string Target { get; private set; }

        internal int Mode { get; }

        internal long Size { get; private set; }

        /// <summary>Whether it says something of the entry after it.</summary>
        internal bool IsExtension => "xgLK".IndexOf(_flag) >= 0;

        internal TarType? Type
        {
            get
            {
                switch (_flag)
                {
                    case '0':
                    case '\0':
                    case '7':
                        return TarType.File;
                    case '1':
                        return TarType.Link;
                    case '2':
                        return TarType.Symlink;
                    case '5':
                        return TarType.Directory;
                    default:
                        return null;
                }
            }
        }

        /// <summary>Whether contents follow: those of a file, and those of what is passed over.</summary>
        internal bool HasContents => Type == TarType.File || Type == null;

        /// <summary>Adds what an extension says. A record for all entries names none of what is read here but by mistake.</summary>
        internal void Extend(Dictionary<string, string> extra, ReadOnlySpan<byte> bytes)
        {
            if (_flag == 'L' || _flag == 'K')
            {
                extra[_flag == 'L' ? "path" : "linkpath"] = Encoding.UTF8.GetString(bytes).Split('\0')[0];
                return;
            }
            while (_flag == 'x' && bytes.Length > 0)
            {
                var blank = bytes.IndexOf((byte)' ');
                var digits = blank > 0 ? Encoding.ASCII.GetString(bytes.Slice(0, blank)) : "";
                if (!int.TryParse(digits, out var length) || length <= blank + 1 || length > bytes.Length) return;
                var record = Encoding.UTF8.GetString(bytes.Slice(blank + 1, length - blank - 2));
                var equals = record.IndexOf('=');
                if (equals > 0) extra[record.Substring(0, equals)] = record.Substring(equals + 1);
                bytes = bytes.Slice(length);
            }
        }

        /// <summary>Takes over what the extensions before it said.</summary>
        internal void Take(Dictionary<string, string> extra)
        {
            if (extra.TryGetValue("path", out var path)) Name = path;
            if (extra.TryGetValue("linkpath", out var target)) Target = target;
            if (!extra.TryGetValue("size", out var text)) return;
            if (!long.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out var size)) throw Tar.Wrong("a size is no number");
            Size = size;
        }

        private string Text(int at, int length)
        {
            var field = _head.AsSpan(at, length);
            var end = field.IndexOf((byte)0);
            return Encoding.UTF8.GetString(end < 0 ? field : field.Slice(0, end));
        }

        private long Octal(int at, int length)
        {
            var value = 0L;
            foreach (var digit in Text(at, length).Trim())
            {
                if (digit < '0' || digit > '7') throw Tar.Wrong("a header has a number that is none");
                value = (value << 3) + digit - '0';
            }
            return value;
        }

        /// <summary>GNU writes sizes above 8 GiB in base 256, marked by the first bit.</summary>
        private long SizeOf()
        {
            if ((_head[124] & 0x80) == 0) return Octal(124, 12);
            var size = 0L;
            for (var at = 128; at < 136; at++) size = (size << 8) + _head[at];
            return size >= 0 ? size : throw Tar.Wrong("a size is negative");
        }
    }
}
