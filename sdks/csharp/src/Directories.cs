// Directories of this machine as archives. What comes out of a sandbox is not trusted: nothing is written
// outside of the directory that was named, and no link is followed.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>What came of a download.</summary>
    public sealed class DownloadedDirectory
    {
        internal DownloadedDirectory(int entries, long bytes, IReadOnlyList<string> skipped)
        {
            Entries = entries;
            Bytes = bytes;
            Skipped = skipped;
        }

        /// <summary>Files, directories and links that were made.</summary>
        public int Entries { get; }

        /// <summary>Bytes of their contents.</summary>
        public long Bytes { get; }

        /// <summary>Links that lead out of the directory, and links to other files of it, which are not made; on Windows
        /// every link.</summary>
        public IReadOnlyList<string> Skipped { get; }
    }

    /// <summary>Directories of this machine.</summary>
    internal static class Directories
    {
        /// <summary>What is in a directory, itself excepted.</summary>
        internal static IEnumerable<TarInput> Entries(string root, string below = "")
        {
            var names = Directory.EnumerateFileSystemEntries(Path.Combine(root, below)).Select(path => Path.GetFileName(path)!);
            foreach (var name in names.OrderBy(name => name, StringComparer.Ordinal))
            {
                var inside = below == "" ? name : $"{below}/{name}";
                var path = Path.Combine(root, inside);
                var attributes = File.GetAttributes(path);
                if ((attributes & FileAttributes.ReparsePoint) != 0)
                {
                    if (Posix.ReadLink(path) is string target) yield return new TarInput(inside) { Type = TarType.Symlink, Target = target };
                    continue;
                }
                if ((attributes & FileAttributes.Directory) != 0)
                {
                    yield return new TarInput(inside) { Type = TarType.Directory, Mode = Posix.Mode(path), ModifiedAt = Directory.GetLastWriteTimeUtc(path) };
                    foreach (var entry in Entries(root, inside)) yield return entry;
                }
                // Sockets, pipes and devices mean nothing elsewhere.
                else if (Posix.IsFile(path))
                {
                    var size = new FileInfo(path).Length;
                    yield return new TarInput(inside)
                    {
                        Mode = Posix.Mode(path), ModifiedAt = File.GetLastWriteTimeUtc(path), Size = size, Open = () => File.OpenRead(path),
                    };
                }
            }
        }

        /// <summary>Unpacks an archive into a directory, which is made when it is not there.</summary>
        internal static async Task<DownloadedDirectory> UnpackAsync(Stream archive, string local, CancellationToken token)
        {
            Directory.CreateDirectory(local);
            var entries = 0;
            var bytes = 0L;
            var skipped = new List<string>();
            // Set when all is written: a directory without write permission must not refuse its own files.
            var modes = new Stack<(string Path, int Mode)>();
            await foreach (var entry in Tar.ReadAsync(archive, token).ConfigureAwait(false))
            {
                var steps = StepsOf(entry.Name);
                if (steps.Length == 0) continue;
                var path = Path.Combine(local, Path.Combine(steps));
                MakeParents(local, steps);
                if (entry.Type == TarType.Directory)
                {
                    MakeDirectory(path);
                    modes.Push((path, entry.Mode));
                }
                else if (entry.Type == TarType.File)
                {
                    bytes += await WriteFileAsync(path, entry, token).ConfigureAwait(false);
                }
                else if (entry.Type != TarType.Symlink || !StaysInside(steps, entry.Target ?? "") || !MakeLink(path, entry.Target ?? ""))
                {
                    skipped.Add(entry.Name);
                    continue;
                }
                entries++;
            }
            foreach (var (path, mode) in modes) Posix.SetMode(path, mode);
            return new DownloadedDirectory(entries, bytes, skipped);
        }

        private static string[] StepsOf(string name)
        {
            var steps = name.Split('/').Where(step => step != "" && step != ".").ToArray();
            // On Windows a backslash parts steps as well, and a colon names a drive.
            var leadsOut = steps.Contains("..") || name.StartsWith('/') || name.Contains('\0')
                || (RuntimeInformation.IsOSPlatform(OSPlatform.Windows) && name.IndexOfAny(new[] { '\\', ':' }) >= 0);
            if (leadsOut) throw new UnreadableException("an archive", $"\"{name}\" leads out of the directory", "do not trust this sandbox");
            return steps;
        }

        /// <summary>Whether a link at this place leads to a place in the same directory.</summary>
        private static bool StaysInside(string[] steps, string target)
        {
            if (target == "" || target.StartsWith('/')) return false;
            var way = target.Split('/').Where(step => step != "" && step != ".").ToArray();
            var up = way.TakeWhile(step => step == "..").Count();
            // After another link, ".." leads elsewhere than it reads.
            return up <= steps.Length - 1 && !way.Skip(up).Contains("..");
        }

        private static void MakeParents(string local, string[] steps)
        {
            var path = local;
            foreach (var step in steps.Take(steps.Length - 1))
            {
                path = Path.Combine(path, step);
                MakeDirectory(path);
            }
        }

        /// <summary>Makes a directory; what stands there and is none, as a link to one, is in the way.</summary>
        private static void MakeDirectory(string path)
        {
            if (AttributesOf(path) is FileAttributes there)
            {
                if ((there & FileAttributes.ReparsePoint) == 0 && (there & FileAttributes.Directory) != 0) return;
                throw new UnreadableException("an archive", $"{path} is in the way and no directory", "download to an empty directory");
            }
            Directory.CreateDirectory(path);
        }

        private static FileAttributes? AttributesOf(string path)
        {
            try
            {
                return File.GetAttributes(path);
            }
            catch (Exception error) when (error is FileNotFoundException || error is DirectoryNotFoundException)
            {
                return null;
            }
        }

        private static bool MakeLink(string path, string target)
        {
            File.Delete(path);
            return Posix.MakeLink(target, path);
        }

        private static async Task<long> WriteFileAsync(string path, TarEntry entry, CancellationToken token)
        {
            File.Delete(path);
            // CreateNew follows no link and opens nothing that was there.
            using (var file = new FileStream(path, FileMode.CreateNew, FileAccess.Write))
            {
                // Before its contents, which others may not be meant to see.
                Posix.SetMode(path, entry.Mode & 0x1ff);
                await entry.Contents.CopyToAsync(file, token).ConfigureAwait(false);
            }
            return entry.Size;
        }
    }

    /// <summary>What .NET Core 3.1 does not know of files: their mode, and symbolic links. Elsewhere than on Unix there is
    /// nothing of that; modes are read on Linux only, whose statx(2) is the same on every machine.</summary>
    internal static class Posix
    {
        private const int AtFdcwd = -100;
        private const int AtSymlinkNofollow = 0x100;
        private const uint StatxTypeAndMode = 0x3;

        /// <summary>Where <c>stx_mode</c> stands in <c>struct statx</c>, which has 256 bytes.</summary>
        private const int ModeOffset = 28;

        /// <summary>PATH_MAX of Linux.</summary>
        private const int PathBytesMax = 4096;
        private const int TypeMask = 0xf000;
        private const int TypeFile = 0x8000;

        private static bool IsUnix => !RuntimeInformation.IsOSPlatform(OSPlatform.Windows);

        internal static int? Mode(string path) => Stat(path) is int mode ? mode & 0xfff : (int?)null;

        internal static bool IsFile(string path) => !(Stat(path) is int mode) || (mode & TypeMask) == TypeFile;

        internal static void SetMode(string path, int mode)
        {
            if (IsUnix && chmod(Utf8(path), (uint)mode) != 0) throw new IOException($"{path}: its mode cannot be set");
        }

        internal static string? ReadLink(string path)
        {
            if (!IsUnix) return null;
            var space = new byte[PathBytesMax];
            var length = (int)readlink(Utf8(path), space, (IntPtr)space.Length);
            return length > 0 ? Encoding.UTF8.GetString(space, 0, length) : null;
        }

        /// <summary>Whether there is a link now.</summary>
        internal static bool MakeLink(string target, string path)
        {
            if (!IsUnix) return false;
            if (symlink(Utf8(target), Utf8(path)) != 0) throw new IOException($"{path}: the link cannot be made");
            return true;
        }

        private static int? Stat(string path)
        {
            if (!RuntimeInformation.IsOSPlatform(OSPlatform.Linux)) return null;
            var found = new byte[256];
            try
            {
                if (statx(AtFdcwd, Utf8(path), AtSymlinkNofollow, StatxTypeAndMode, found) != 0) return null;
            }
            catch (EntryPointNotFoundException)
            {
                // A C library from before 2018.
                return null;
            }
            return BitConverter.ToUInt16(found, ModeOffset);
        }

        private static byte[] Utf8(string text) => Encoding.UTF8.GetBytes(text + "\0");

        [DllImport("libc", SetLastError = true)]
        private static extern int statx(int directory, byte[] path, int flags, uint mask, byte[] found);

        [DllImport("libc", SetLastError = true)]
        private static extern int chmod(byte[] path, uint mode);

        [DllImport("libc", SetLastError = true)]
        private static extern int symlink(byte[] target, byte[] path);

        [DllImport("libc", SetLastError = true)]
        private static extern IntPtr readlink(byte[] path, byte[] space, IntPtr length);
    }
}
