// The calls of what is inside of a sandbox: commands, code, shells, files, egress.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox.Conformance
{
    using Made = Func<object?, Arguments, CancellationToken, Task<object?>>;

    internal static class InsideCalls
    {
        internal static Dictionary<string, Made> Running() => new Dictionary<string, Made>
        {
            ["commands.run"] = Calls.On<Sandbox>(async (s, w, t) => Shapes.Output(await s.Commands.RunAsync(Command(w), Options(w), null, t))),
            // A stream outlives the call that opens it, and its token; reading it is ended by closing it.
            ["commands.start"] = Calls.On<Sandbox>(async (s, w, t) => Held(await s.Commands.StreamAsync(Command(w), Options(w)))),
            ["commands.background"] = Calls.On<Sandbox>(async (s, w, t) => new { id = await s.Commands.BackgroundAsync(Command(w), Options(w), t) }),
            ["commands.follow"] = Calls.On<Sandbox>(async (s, w, t) => Held(await s.Commands.FollowAsync(w.NeedText("id"), w.Long("after") ?? 0))),
            ["commands.status"] = Calls.On<Sandbox>(async (s, w, t) => Shapes.Command(await s.Commands.StatusAsync(w.NeedText("id"), t))),
            ["commands.list"] = Calls.On<Sandbox>(async (s, w, t) => (await s.Commands.ListAsync(t)).Select(Shapes.Command).ToArray()),
            ["commands.logs"] = Calls.On<Sandbox>(async (s, w, t) =>
            {
                var logs = await s.Commands.LogsAsync(w.NeedText("id"), w.Long("cursor"), t);
                return new { text = logs.Text, cursor = logs.Cursor };
            }),
            ["commands.interrupt"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(s.Commands.InterruptAsync(w.NeedText("id"), t))),
            ["commands.write_stdin"] = Calls.On<Sandbox>(async (s, w, t) => new
            {
                written = await s.Commands.WriteStdinAsync(w.NeedText("id"), w.Text("text") ?? "", w.Flag("close"), t),
            }),
            ["commands.set_env"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(s.Commands.SetEnvAsync(w.Map("variables")!, t))),
            ["execution.next"] = Calls.On<Execution>(async (e, w, t) => Shapes.Event(await e.NextAsync())),
            ["execution.output"] = Calls.On<Execution>(async (e, w, t) => Shapes.Output(await e.OutputAsync(t))),
            ["execution.close"] = Calls.On<Execution>((e, w, t) => Calls.Done(e.DisposeAsync().AsTask())),
            ["code.run"] = Calls.On<Sandbox>(async (s, w, t) => Shapes.Output(await s.Code.RunAsync(w.NeedText("code"), CodeOptions(w), null, t))),
            ["code.start"] = Calls.On<Sandbox>(async (s, w, t) => Held(await s.Code.StreamAsync(w.NeedText("code"), CodeOptions(w)))),
            ["code.create_context"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.Code.CreateContextAsync(
                w.NeedText("language"), new ContextOptions { Cwd = w.Text("cwd") }, t))),
            ["code.get_context"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.Code.GetContextAsync(w.NeedText("id"), t))),
            ["code.delete_context"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(s.Code.DeleteContextAsync(w.NeedText("id"), t))),
            ["code.interrupt"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(s.Code.InterruptAsync(w.NeedText("id"), t))),
            ["code.list_contexts"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.Code.ListContextsAsync(w.Text("language"), t))),
            ["code.delete_contexts"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(s.Code.DeleteContextsAsync(w.NeedText("language"), t))),
        };

        internal static Dictionary<string, Made> Shells() => new Dictionary<string, Made>
        {
            ["sessions.create"] = Calls.On<Sandbox>(async (s, w, t) =>
            {
                var session = await s.Sessions.CreateAsync(w.Text("cwd"), t);
                return new Held(session, new { id = session.Id });
            }),
            ["session.run"] = Calls.On<Session>(async (s, w, t) => Shapes.Output(await s.RunAsync(w.NeedText("command"), SessionOptions(w), null, t))),
            ["session.start"] = Calls.On<Session>(async (s, w, t) => Held(await s.StreamAsync(w.NeedText("command"), SessionOptions(w)))),
            ["session.interrupt"] = Calls.On<Session>((s, w, t) => Calls.Done(s.InterruptAsync(t))),
            ["session.delete"] = Calls.On<Session>((s, w, t) => Calls.Done(s.DeleteAsync(t))),
            ["terminals.create"] = Calls.On<Sandbox>(async (s, w, t) =>
            {
                var terminal = await s.Terminals.CreateAsync(w.Text("command"), w.Text("cwd"), Size(w), t);
                return new Held(terminal, new { id = terminal.Id });
            }),
            ["terminal.status"] = Calls.On<Terminal>((s, w, t) => Calls.Of(s.StatusAsync(t))),
            ["terminal.delete"] = Calls.On<Terminal>((s, w, t) => Calls.Done(s.DeleteAsync(t))),
            ["terminal.connect"] = Calls.On<Terminal>(async (s, w, t) =>
            {
                var options = new TerminalOptions
                {
                    Pipes = w.Flag("pipes"), Since = w.Long("since"), TakeOver = w.Flag("take_over"), Size = Size(w),
                };
                var connection = await s.ConnectAsync(options, t);
                return new Held(connection, null, () => connection.DisposeAsync().AsTask());
            }),
            ["connection.next"] = Calls.On<TerminalConnection>(async (c, w, t) => Shapes.Terminal(await c.NextAsync(t))),
            ["connection.write"] = Calls.On<TerminalConnection>((c, w, t) => Calls.Done(c.WriteAsync(w.NeedText("text"), t))),
            ["connection.resize"] = Calls.On<TerminalConnection>((c, w, t) => Calls.Done(c.ResizeAsync(w.Int("columns")!.Value, w.Int("rows")!.Value, t))),
            ["connection.signal"] = Calls.On<TerminalConnection>((c, w, t) => Calls.Done(c.SignalAsync(w.NeedText("signal"), t))),
            ["connection.ping"] = Calls.On<TerminalConnection>((c, w, t) => Calls.Done(c.PingAsync(t))),
            ["connection.close"] = Calls.On<TerminalConnection>((c, w, t) => Calls.Done(c.CloseAsync(t))),
        };

        /// <summary>Columns and rows.</summary>
        private static TerminalSize? Size(Arguments w) =>
            w.Get<List<int>>("size") is { } size ? new TerminalSize(size[0], size[1]) : (TerminalSize?)null;

        internal static Dictionary<string, Made> Files() => new Dictionary<string, Made>
        {
            ["files.read"] = Calls.On<Sandbox>(async (s, w, t) => Base64(await FilesOf(s, w).ReadAsync(w.NeedText("path"), t))),
            ["files.read_text"] = Calls.On<Sandbox>(async (s, w, t) => new { text = await FilesOf(s, w).ReadTextAsync(w.NeedText("path"), t) }),
            ["files.read_range"] = Calls.On<Sandbox>(async (s, w, t) => Base64(await FilesOf(s, w).ReadRangeAsync(
                w.NeedText("path"), w.Long("start")!.Value, w.Long("end")!.Value, t))),
            ["files.read_lines"] = Calls.On<Sandbox>(async (s, w, t) => new
            {
                text = await FilesOf(s, w).ReadLinesAsync(w.NeedText("path"), w.Long("first")!.Value, w.Long("count")!.Value, t),
            }),
            ["files.download"] = Calls.On<Sandbox>(async (s, w, t) => await Archives.CountedAsync(await FilesOf(s, w).DownloadAsync(w.NeedText("path"), t))),
            ["files.write"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(FilesOf(s, w).WriteAllAsync(new[] { FileOf(w) }, t))),
            ["files.write_all"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(FilesOf(s, w).WriteAllAsync(
                w.Need<List<JsonElement>>("files").Select(file => FileOf(Archives.Wrapped(file))).ToArray(), t))),
            ["files.upload"] = Calls.On<Sandbox>(async (s, w, t) =>
            {
                await FilesOf(s, w).WriteAsync(w.NeedText("path"), new MadeUp(w.Long("bytes")!.Value), null, t);
                return await Archives.CountedAsync(new MadeUp(w.Long("bytes")!.Value));
            }),
            ["files.info"] = Calls.On<Sandbox>(async (s, w, t) =>
                (await FilesOf(s, w).InfoAsync(Paths(w), t)).ToDictionary(pair => pair.Key, pair => Shapes.File(pair.Value))),
            ["files.exists"] = Calls.On<Sandbox>(async (s, w, t) => new { exists = await FilesOf(s, w).ExistsAsync(w.NeedText("path"), t) }),
            ["files.list"] = Calls.On<Sandbox>(async (s, w, t) =>
                (await FilesOf(s, w).ListAsync(w.NeedText("path"), w.Int("depth") ?? 1, t)).Select(Shapes.File).ToArray()),
            ["files.search"] = Calls.On<Sandbox>(async (s, w, t) =>
                (await FilesOf(s, w).SearchAsync(w.NeedText("path"), w.NeedText("pattern"), t)).Select(Shapes.File).ToArray()),
            ["files.rename"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(FilesOf(s, w).RenameAsync(w.NeedText("from"), w.NeedText("to"), t))),
            ["files.delete"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(FilesOf(s, w).DeleteAsync(Paths(w), t))),
            ["files.create_directories"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(FilesOf(s, w).CreateDirectoriesAsync(Paths(w), t))),
            ["files.delete_directories"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(FilesOf(s, w).DeleteDirectoriesAsync(Paths(w), t))),
            ["files.set_permissions"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(FilesOf(s, w).SetPermissionsAsync(
                new Dictionary<string, Permission> { [w.NeedText("path")] = new Permission { Mode = Octal(w), Owner = w.Text("owner"), Group = w.Text("group") } }, t))),
            ["files.replace"] = Calls.On<Sandbox>(async (s, w, t) => new
            {
                count = await FilesOf(s, w).ReplaceAsync(w.NeedText("path"), w.NeedText("old"), w.NeedText("new"), t),
            }),
            ["files.download_archive"] = Calls.On<Sandbox>(async (s, w, t) =>
                await Archives.EntriesAsync(await FilesOf(s, w).DownloadArchiveAsync(w.NeedText("path"), t), true)),
            ["files.upload_archive"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(FilesOf(s, w).UploadArchiveAsync(w.NeedText("path"), Archives.Packed(w), t))),
        };

        internal static Dictionary<string, Made> Network() => new Dictionary<string, Made>
        {
            ["egress.policy"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.Egress.PolicyAsync(t))),
            ["egress.patch"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.Egress.PatchAsync(w.Need<List<NetworkRule>>("rules"), t))),
            ["egress.delete"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.Egress.DeleteAsync(w.Need<List<string>>("targets"), t))),
            ["egress.replace"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.Egress.SetAsync(w.Need<NetworkPolicy>("policy"), t))),
            ["vault.create"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.CredentialVault.CreateAsync(w.Need<CredentialVaultCreateRequest>("request"), t))),
            ["vault.get"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.CredentialVault.GetAsync(t))),
            ["vault.patch"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.CredentialVault.PatchAsync(w.Need<CredentialVaultMutationRequest>("request"), t))),
            ["vault.delete"] = Calls.On<Sandbox>((s, w, t) => Calls.Done(s.CredentialVault.DeleteAsync(t))),
            ["vault.credentials"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.CredentialVault.CredentialsAsync(t))),
            ["vault.credential"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.CredentialVault.CredentialAsync(w.NeedText("name"), t))),
            ["vault.bindings"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.CredentialVault.BindingsAsync(t))),
            ["vault.binding"] = Calls.On<Sandbox>((s, w, t) => Calls.Of(s.CredentialVault.BindingAsync(w.NeedText("name"), t))),
            ["tunnel.write"] = Calls.On<System.IO.Stream>((s, w, t) => Calls.Done(s.WriteAsync(Encoding.UTF8.GetBytes(w.NeedText("text")), t).AsTask())),
            ["tunnel.read"] = Calls.On<System.IO.Stream>(async (s, w, t) => new { text = await ReadAsync(s, w.Int("bytes")!.Value, t) }),
            ["tunnel.close"] = Calls.On<System.IO.Stream>((s, w, t) => Calls.Done(s.DisposeAsync().AsTask())),
        };

        private static Held Held(Execution execution) => new Held(execution, null, () => execution.DisposeAsync().AsTask());

        private static CommandLine Command(Arguments w) => w.Get<List<string>>("argv") is List<string> argv ? argv : (CommandLine)w.NeedText("command");

        private static CommandOptions Options(Arguments w) => new CommandOptions
        {
            Cwd = w.Text("cwd"), Env = w.Map("env"), Timeout = w.Milliseconds("timeout_ms"), Uid = w.Int("uid"), Gid = w.Int("gid"),
            Stdin = w.Text("stdin"), StdinOpen = w.Flag("stdin_open"),
        };

        private static CodeOptions CodeOptions(Arguments w) => new CodeOptions
        {
            Language = w.Text("language"), Context = w.Text("context"), Timeout = w.Milliseconds("timeout_ms"),
        };

        private static SessionRunOptions SessionOptions(Arguments w) =>
            new SessionRunOptions { Cwd = w.Text("cwd"), Timeout = w.Milliseconds("timeout_ms") };

        private static Files FilesOf(Sandbox sandbox, Arguments w) =>
            w.Get<List<int>>("as_user") is List<int> user ? sandbox.Files.AsUser(user[0], user[1]) : sandbox.Files;

        private static int? Octal(Arguments w) => w.Text("mode") is string mode ? Convert.ToInt32(mode, 8) : (int?)null;

        private static WriteFile FileOf(Arguments w)
        {
            var contents = w.Text("base64") is string encoded ? Convert.FromBase64String(encoded) : (FileContents)(w.Text("text") ?? "");
            return new WriteFile(w.NeedText("path"), contents) { Mode = Octal(w), Owner = w.Text("owner"), Group = w.Text("group") };
        }

        private static List<string> Paths(Arguments w) => w.Need<List<string>>("paths");

        private static object Base64(byte[] bytes) => new { base64 = Convert.ToBase64String(bytes) };

        private static async Task<string> ReadAsync(System.IO.Stream tunnel, int length, CancellationToken token)
        {
            var bytes = new byte[length];
            var at = 0;
            for (var count = 1; at < length && count > 0; at += count) count = await tunnel.ReadAsync(bytes.AsMemory(at), token);
            return Encoding.UTF8.GetString(bytes, 0, at);
        }
    }

    /// <summary>Archives and streams that the calls make up and look into.</summary>
    internal static class Archives
    {
        /// <summary>A root filesystem or a directory as tar, with the directories on the way.</summary>
        internal static System.IO.Stream Packed(Arguments w)
        {
            var inputs = new List<TarInput>();
            foreach (var (name, text) in w.Map("files")!)
            {
                var steps = name.TrimStart('/').Split('/');
                for (var depth = 1; depth < steps.Length; depth++)
                {
                    var directory = string.Join('/', steps.Take(depth));
                    if (inputs.All(input => input.Name != directory)) inputs.Add(new TarInput(directory) { Type = TarType.Directory });
                }
                inputs.Add(TarInput.Text(string.Join('/', steps), text));
            }
            return Tar.Pack(inputs);
        }

        internal static async Task<object?> EntriesAsync(System.IO.Stream archive, bool isOfFiles)
        {
            await using (archive)
            {
                var whole = new System.IO.MemoryStream();
                await archive.CopyToAsync(whole);
                whole.Position = 0;
                var names = new List<string>();
                await foreach (var entry in Tar.ReadAsync(whole))
                {
                    if (isOfFiles && entry.Type != TarType.File) continue;
                    names.Add(entry.Name.StartsWith("./") ? entry.Name.Substring(2) : entry.Name);
                }
                names.Sort(StringComparer.Ordinal);
                return new { bytes = whole.Length, entries = names };
            }
        }

        internal static async Task<object?> CountedAsync(System.IO.Stream stream)
        {
            await using (stream)
            {
                using var hash = IncrementalHash.CreateHash(HashAlgorithmName.SHA256);
                var space = new byte[64 * 1024];
                var bytes = 0L;
                for (var count = 1; count > 0; bytes += count)
                {
                    count = await stream.ReadAsync(space);
                    hash.AppendData(space, 0, count);
                }
                return new { bytes, sha256 = BitConverter.ToString(hash.GetHashAndReset()).Replace("-", "").ToLowerInvariant() };
            }
        }

        internal static Arguments Wrapped(JsonElement with) =>
            new Arguments(JsonSerializer.Deserialize<JsonElement>($"{{\"with\": {with.GetRawText()}}}"));
    }

    /// <summary>Bytes that anyone can make again: each is its place modulo 251.</summary>
    internal sealed class MadeUp : ReadOnlyStream
    {
        private readonly long _length;
        private long _at;

        internal MadeUp(long length)
        {
            _length = length;
        }

        public override ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
        {
            var count = (int)Math.Min(buffer.Length, _length - _at);
            for (var at = 0; at < count; at++) buffer.Span[at] = (byte)((_at + at) % 251);
            _at += count;
            return new ValueTask<int>(count);
        }
    }
}
