// The SDK at a real server, for what the shared scenarios do not see: how it feels in this language.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox.Test
{
    internal static class LiveTests
    {
        private static LiveServer s_server = null!;
        private static Client s_client = null!;

        internal static async Task StartAsync()
        {
            s_server = await LiveServer.StartAsync();
            s_client = s_server.Client();
        }

        internal static async Task StopAsync() => await s_server.DisposeAsync();

        private static async Task GoneAsync(string id)
        {
            var error = await Assert.ThrowsAsync<ApiException>(() => s_client.GetAsync(id));
            Assert.True(error.IsNotFound && error.RequestId != null && !error.IsUnauthorized, "it is gone, by a request with an id");
        }

        [Test("a block ends its sandbox unless it is kept")]
        private static async Task Scopes()
        {
            string id;
            var options = new CreateOptions { Name = "scoped", Env = new Dictionary<string, string> { ["A"] = "b" } };
            await using (var made = await Sandbox.CreateAsync("host", options, s_server.Connection))
            {
                id = made.Id;
                Assert.Equal("scoped", (await made.InfoAsync()).Metadata!["name"]);
                Assert.Equal("b\n", (await made.Commands.RunAsync("echo $A")).Stdout);
            }
            await GoneAsync(id);
            await using (var kept = (await s_client.CreateAsync(SandboxSource.Image("host"))).Keep()) id = kept.Id;
            await using (var other = await Sandbox.ConnectAsync(id, null, s_server.Connection))
                Assert.Equal(SandboxState.Running, (await other.InfoAsync()).Status.State);
            var handle = s_client.Sandbox(id);
            Assert.Equal(SandboxState.Running, (await handle.InfoAsync()).Status.State);
            await handle.KillAsync();
            await handle.KillAsync();
            await GoneAsync(id);
        }

        [Test("a key makes a create safe to repeat")]
        private static async Task Idempotency()
        {
            var options = new CreateOptions { IdempotencyKey = Guid.NewGuid().ToString() };
            await using var first = await s_client.CreateAsync("host", options);
            await using var second = await s_client.CreateAsync("host", options);
            Assert.Equal(first.Id, second.Id);
        }

        [Test("commands: output, codes, events, argv, stdin, timeouts")]
        private static async Task CommandsAsync()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            var commands = sandbox.Commands;
            var said = new List<string>();
            var output = await commands.RunAsync("echo out; echo err >&2; exit 3", null, given => said.Add(given.GetType().Name));
            Assert.Equal(("out\n", "err\n", 3, false), (output.Stdout, output.Stderr, output.ExitCode!.Value, output.IsSuccess));
            Assert.True(said.Contains("StdoutEvent") && said.Contains("StderrEvent"), "events were told");
            Assert.Equal((EndingKind.Signal, "killed"), ((await commands.RunAsync("kill -9 $$")).Ending.Kind, (await commands.RunAsync("kill -9 $$")).Ending.Signal));
            Assert.Equal("a b", (await commands.RunAsync(new[] { "printf", "%s", "a b" }, new CommandOptions { Cwd = "/tmp" })).Stdout);
            Assert.Equal("fed", (await commands.RunAsync("cat", new CommandOptions { Stdin = "fed" })).Stdout);
            Assert.True(!(await commands.RunAsync("sleep 600", new CommandOptions { Timeout = TimeSpan.FromSeconds(0.2) })).IsSuccess, "its time was over");

            var id = await commands.BackgroundAsync("echo begun; read line; echo got $line", new CommandOptions { StdinOpen = true });
            var status = await commands.StatusAsync(id);
            Assert.True(status.IsRunning && status.FinishedAt == null && status.Content != "" && status.StartedAt < DateTimeOffset.UtcNow.AddMinutes(1), "it runs");
            Assert.Equal(6L, await commands.WriteStdinAsync(id, "input\n", true));
            Assert.Equal(0, (await commands.WaitAsync(id)).ExitCode);
            var logs = await commands.LogsAsync(id);
            Assert.Equal(("begun\ngot input\n", 16L), (logs.Text, logs.Cursor!.Value));
            Assert.True((await commands.ListAsync()).Any(known => known.Id == id && known.Error == null), "it is known");
            // Where a reader stopped, another goes on.
            var part = await commands.FollowAsync(id);
            await foreach (var given in part) if (given is StdoutEvent) break;
            var rest = await (await commands.FollowAsync(id, part.LastSeq!.Value)).OutputAsync();
            Assert.Equal(("got input\n", 0, id), (rest.Stdout, rest.ExitCode!.Value, part.Id));
            await commands.SetEnvAsync(new Dictionary<string, string> { ["KEPT"] = "it's" });
            Assert.Equal("it's\n", (await commands.RunAsync("echo $KEPT")).Stdout);
            await Assert.ThrowsAsync<InvalidArgumentException>(() => commands.SetEnvAsync(new Dictionary<string, string> { ["a-b"] = "" }));
        }

        [Test("leaving a stream early lets the command go on")]
        private static async Task LeavingEarly()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            var execution = await sandbox.Commands.StreamAsync("echo one; read line; echo two > /tmp/two", new CommandOptions { StdinOpen = true });
            await foreach (var given in execution) if (given is StdoutEvent) break;
            await sandbox.Commands.WriteStdinAsync(execution.Id!, Encoding.UTF8.GetBytes("\n"), true);
            Assert.Equal(0, (await sandbox.Commands.WaitAsync(execution.Id!)).ExitCode);
            Assert.Equal("two\n", (await sandbox.Commands.RunAsync("cat /tmp/two")).Stdout);
        }

        [Test("a token ends a call, a stream and a wait")]
        private static async Task Cancellation()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            using var cancel = new CancellationTokenSource();
            var running = sandbox.Commands.RunAsync("echo up; exec sleep 600", null, given =>
            {
                if (given is StdoutEvent) cancel.Cancel();
            }, cancel.Token);
            Assert.True((await Assert.ThrowsAsync<OperationCanceledException>(() => running)).CancellationToken == cancel.Token, "it names the token");
            await Assert.ThrowsAsync<OperationCanceledException>(() => s_client.CreateAsync("host", null, cancel.Token));
            using var later = new CancellationTokenSource();
            var execution = await sandbox.Commands.StreamAsync("echo up; exec sleep 600");
            await Assert.ThrowsAsync<OperationCanceledException>(async () =>
            {
                await foreach (var given in execution.WithCancellation(later.Token)) if (given is StdoutEvent) later.Cancel();
            });
            await Assert.ThrowsAsync<TimedOutException>(() => sandbox.WaitForStateAsync(SandboxState.Paused, TimeSpan.FromSeconds(0.2)));
        }

        [Test("files: text, bytes, streams, permissions, search")]
        private static async Task FilesAsync()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            var files = sandbox.Files;
            var mode = Convert.ToInt32("640", 8);
            await files.WriteAsync("/tmp/d/text", "grüße", new Permission { Mode = mode });
            Assert.Equal("grüße", await files.ReadTextAsync("/tmp/d/text"));
            var info = (await files.InfoAsync(new[] { "/tmp/d/text" }))["/tmp/d/text"];
            Assert.Equal((mode, 7L, FileKind.File, (string?)null), (info.Mode, info.Size, info.Type, info.RawPath));
            Assert.True(info.ModifiedAt > DateTimeOffset.UtcNow.AddHours(-1) && info.CreatedAt > DateTimeOffset.UnixEpoch && info.Owner == info.Group, "it is new");
            var big = Enumerable.Range(0, 64).SelectMany(at => Enumerable.Repeat((byte)at, 65536)).ToArray();
            await files.WriteAsync("/tmp/d/big", new Pieces(big, 10_000));
            await using (var download = await files.DownloadAsync("/tmp/d/big"))
            {
                Assert.Equal(big.LongLength, download.Length);
                var whole = new MemoryStream();
                await download.CopyToAsync(whole);
                Assert.True(whole.ToArray().SequenceEqual(big), "it came back as it was");
            }
            Assert.Same(new byte[] { 0, 1 }, await files.ReadRangeAsync("/tmp/d/big", 65535, 65537));
            using (var part = new StreamReader(await files.ReadRangeHeaderAsync("/tmp/d/text", "bytes=0-1"))) Assert.Equal("gr", await part.ReadToEndAsync());
            Assert.Same(new[] { "/tmp/d/text" }, (await files.SearchAsync("/tmp/d", "te*")).Select(file => file.Path));
            var counts = await files.ReplaceAllAsync(new Dictionary<string, (string, string)> { ["/tmp/d/text"] = ("g", "G") });
            Assert.Equal(1L, counts["/tmp/d/text"]);
            await files.RenameAllAsync(new[] { ("/tmp/d/text", "/tmp/d/moved") });
            Assert.Equal("Grüße", await files.ReadTextAsync("/tmp/d/moved"));
            await files.WriteAsync("/tmp/d/binary", new byte[] { 0xff });
            await Assert.ThrowsAsync<UnreadableException>(() => files.ReadTextAsync("/tmp/d/binary"));
            await files.CreateDirectoriesAsync(new Dictionary<string, Permission> { ["/tmp/d/private"] = new Permission { Mode = Convert.ToInt32("700", 8) } });
            Assert.Equal("700\n", (await sandbox.Commands.RunAsync("stat -c %a /tmp/d/private")).Stdout);
            await Assert.ThrowsAsync<RankException>(() => files.WriteAsync("/tmp/d/none", new Failing()), "the source's own error");
            Assert.Equal(false, await files.ExistsAsync("/tmp/d/none"));
        }

        [Test("directories go there and back")]
        private static async Task DirectoriesAsync()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            using var place = new Place();
            var name = new string('n', 120);
            Directory.CreateDirectory(place.At("from/sub"));
            File.WriteAllText(place.At($"from/sub/{name}"), "long name");
            Posix.SetMode(place.At($"from/sub/{name}"), Convert.ToInt32("750", 8));
            File.WriteAllText(place.At("from/empty"), "");
            Posix.MakeLink($"sub/{name}", place.At("from/link"));
            var sent = await sandbox.Files.UploadDirectoryAsync(place.At("from"), "/tmp/there");
            Assert.Equal((4L, 9L), (sent.Entries, sent.Bytes));
            Assert.Equal("750\n", (await sandbox.Commands.RunAsync($"stat -c %a /tmp/there/sub/{name}")).Stdout);
            await sandbox.Files.WriteAsync("/tmp/there/more", "more");
            var back = await sandbox.Files.DownloadDirectoryAsync("/tmp/there", place.At("to"));
            Assert.Equal((13L, 0, 5), (back.Bytes, back.Skipped.Count, back.Entries));
            Assert.Equal(("long name", "more"), (File.ReadAllText(place.At("to/link")), File.ReadAllText(place.At("to/more"))));
            Assert.Equal(Convert.ToInt32("750", 8), Posix.Mode(place.At($"to/sub/{name}")));
        }

        [Test("code has results as types")]
        private static async Task CodeAsync()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            await sandbox.Code.RunAsync("x = 20");
            var output = await sandbox.Code.RunAsync("x + 1");
            Assert.Equal(("21", "21"), (output.Text, output.Results[0].Get("text/plain")));
            var html = await sandbox.Code.RunAsync(
                "class T:\n def _repr_html_(self): return '<table><tr><th>a</th></tr><tr><td>1 &lt; 2</td></tr></table>'\nT()");
            Assert.Equal(ResultKind.Table, html.Results[0].Kind);
            Assert.Same(new[] { "a", "1 < 2" }, html.Results[0].Table.SelectMany(row => row));
            var figure = (await sandbox.Code.RunAsync("class F:\n def _repr_png_(self): return b'\\x89PNG'\nF()")).Results[0].Figure!;
            Assert.Equal("image/png", figure.MediaType);
            Assert.Same(new byte[] { 0x89, 0x50, 0x4e, 0x47 }, figure.Bytes);
            var failed = await sandbox.Code.RunAsync("1 / 0");
            Assert.Equal(("ZeroDivisionError", (int?)null), (failed.Error!.Name, failed.ExitCode));
            var env = new ContextOptions { Env = new Dictionary<string, string> { ["OF_CONTEXT"] = "yes" } };
            var context = await sandbox.Code.CreateContextAsync("python", env);
            var seen = await sandbox.Code.RunAsync("import os; os.environ['OF_CONTEXT']", new CodeOptions { Context = context.Id });
            Assert.Equal("'yes'", seen.Text);
        }

        [Test("a session remembers, a terminal is come back to")]
        private static async Task Shells()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            await using (var session = await sandbox.Sessions.CreateAsync("/tmp"))
            {
                await session.RunAsync("name=value");
                Assert.Equal("/tmp value\n", (await sandbox.Sessions.Get(session.Id).RunAsync("echo $PWD $name")).Stdout);
            }
            var terminal = await sandbox.Terminals.CreateAsync();
            await using var first = await terminal.ConnectAsync();
            var size = new TerminalSize(101, 31);
            await first.ResizeAsync(size.Columns, size.Rows);
            await first.WriteAsync("stty size; echo begun$((40+2))\n");
            Assert.True((await UntilAsync(first, "begun42")).Contains("31 101"), "the window has its size");
            Assert.Equal(409, (await Assert.ThrowsAsync<ApiException>(() => terminal.ConnectAsync())).Status);
            // Giving up waiting loses nothing.
            using (var soon = new CancellationTokenSource(TimeSpan.FromMilliseconds(50)))
                await Assert.ThrowsAsync<OperationCanceledException>(async () =>
                {
                    while (true) await first.NextAsync(soon.Token);
                });
            await using var second = await sandbox.Terminals.Get(terminal.Id).ConnectAsync(new TerminalOptions { TakeOver = true, Since = 0 });
            await UntilAsync(second, "begun42");
            TerminalEvent? last = null;
            await foreach (var given in first) last = given;
            Assert.Equal(4001, ((ClosedEvent)last!).Code);
            await second.WriteAsync(Encoding.UTF8.GetBytes("exit 7\n"));
            await foreach (var given in second) if (given is ExitEvent) last = given;
            Assert.Equal(7, ((ExitEvent)last!).Code);
            await terminal.DeleteAsync();
            Assert.True((await Assert.ThrowsAsync<ApiException>(() => terminal.ConnectAsync())).IsNotFound, "it is gone");
        }

        private static async Task<string> UntilAsync(TerminalConnection connection, string wanted)
        {
            var seen = "";
            while (!seen.Contains(wanted))
            {
                var given = await connection.NextAsync() ?? throw new InvalidOperationException($"the connection ended before {wanted}: {seen}");
                seen += Encoding.UTF8.GetString((given as OutputEvent)?.Bytes ?? (given as ReplayEvent)?.Bytes ?? Array.Empty<byte>());
            }
            return seen;
        }

        [Test("ports: requests, and plain bytes")]
        private static async Task Ports()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            const string Reverse = "import socket; s=socket.create_server(('127.0.0.1',7000)); print('up',flush=True); c,_=s.accept(); c.sendall(c.recv(4)[::-1]); c.close()";
            var echo = await sandbox.Commands.StreamAsync(new List<string> { "python3", "-c", Reverse });
            while (!(await echo.NextAsync() is StdoutEvent))
            {
            }
            await using (var tunnel = await sandbox.TunnelAsync(7000))
            {
                await tunnel.WriteAsync(Encoding.UTF8.GetBytes("abcd"));
                Assert.Equal("dcba", await new StreamReader(tunnel).ReadToEndAsync());
            }
            await echo.DisposeAsync();
            var web = await sandbox.Commands.StreamAsync("cd /tmp && echo page > index.html && exec python3 -u -m http.server 7001");
            while (await web.NextAsync() is StartedEvent)
            {
            }
            using (var answer = await sandbox.FetchAsync(7001, "/index.html")) Assert.Equal("page\n", await answer.Content.ReadAsStringAsync());
            using (var refused = await sandbox.FetchAsync(7001, new HttpRequestMessage(HttpMethod.Post, new Uri("/", UriKind.Relative))))
                Assert.Equal(501, (int)refused.StatusCode);
        }

        [Test("pause, resume, snapshot, renew, events, lists")]
        private static async Task Lifecycle()
        {
            var labels = new Dictionary<string, string> { ["case"] = "all" };
            var mounts = new[] { Mount.Named("kept", "csharp-kept", "/kept") };
            await using var sandbox = await s_client.CreateAsync("host", new CreateOptions { Metadata = labels, Volumes = mounts });
            await using var events = await s_client.EventsAsync(sandbox.Id, 0);
            await sandbox.PauseAsync();
            var paused = await Assert.ThrowsAsync<FailedException>(() => s_client.ConnectAsync(sandbox.Id));
            Assert.Equal((SandboxState.Paused, $"sandbox {sandbox.Id}"), (paused.State, paused.Subject));
            await sandbox.ResumeAsync();
            Assert.True(await sandbox.IsHealthyAsync(), "it answers");
            await foreach (var given in events) if (given.Status?.State == SandboxState.Paused) break;
            await sandbox.Files.WriteAsync("/root/kept", "kept");
            var snapshot = await sandbox.SnapshotAsync("copy");
            await using (var restored = await s_client.CreateAsync(SandboxSource.Snapshot(snapshot.Id)))
                Assert.Equal("kept", await restored.Files.ReadTextAsync("/root/kept"));
            var known = new List<string>();
            await foreach (var each in s_client.ListSnapshotsAsync(new SnapshotFilter { SandboxId = sandbox.Id, PageSize = 1 })) known.Add(each.Id);
            Assert.Same(new[] { snapshot.Id }, known);
            await s_client.DeleteSnapshotAsync(snapshot.Id);
            var second = await s_client.CreateSnapshotAsync(sandbox.Id);
            Assert.Equal(SnapshotState.Ready, (await s_client.WaitForSnapshotAsync(second.Id)).Status.State);
            await s_client.DeleteSnapshotAsync(second.Id);
            Assert.True((await Assert.ThrowsAsync<ApiException>(() => s_client.CreateRequestAsync(new CreateSandboxRequest()))).Details.Count > 0, "every problem is told");
            Assert.True(await sandbox.RenewAsync(TimeSpan.FromMinutes(15)) > DateTimeOffset.UtcNow, "it lives on");
            var listed = new List<string>();
            var filter = new SandboxFilter { Metadata = labels, States = new[] { SandboxState.Running }, PageSize = 1 };
            await foreach (var info in s_client.ListAsync(filter)) listed.Add(info.Id);
            Assert.Same(new[] { sandbox.Id }, listed);
            await using var samples = await sandbox.WatchMetricsAsync();
            var sample = await samples.NextAsync();
            Assert.True(sample!.MemoryTotalMiB > 0 && (await sandbox.MetricsAsync()).CpuCount > 0, "it is measured");
            Assert.True((await sandbox.DiagnosticLogsAsync("all")).Kind != "" && (await sandbox.DiagnosticEventsAsync("all")).Kind != "", "there are diagnostics");
        }

        [Test("what this server refuses is a typed error")]
        private static async Task Refusals()
        {
            await using var sandbox = await s_client.CreateAsync("host");
            Assert.True(await sandbox.Egress.PolicyAsync() != null && await s_client.Operator.NetworkPolicyAsync(sandbox.Id) != null, "a policy is shown");
            var calls = new Func<Task>[]
            {
                () => sandbox.CredentialVault.GetAsync(),
                () => s_client.Operator.ListPoolsAsync(), () => sandbox.PreviewUrlAsync(80, DateTimeOffset.UtcNow.AddMinutes(1)),
                () => s_client.CreateAsync("host", new CreateOptions { RenewOnAccess = TimeSpan.FromSeconds(1), ResourceRequests = new Dictionary<string, string> { ["cpu"] = "none" } }),
            };
            foreach (var call in calls)
            {
                var error = await Assert.ThrowsAsync<OpenSandboxException>(call);
                Assert.True(error.Remedy != "" && error.Status >= 400 && error.Code != "", error.Message);
            }
        }

        [Test("a pool has sandboxes ready")]
        private static async Task Pools()
        {
            await using (var pool = new Pool(s_client, "host", new PoolOptions { MaxIdle = 2, Policy = PoolPolicy.Fail, WarmupConcurrency = 1 }))
            {
                await pool.WaitUntilWarmAsync(TimeSpan.FromMinutes(1));
                await using var sandbox = await pool.AcquireAsync(TimeSpan.FromMinutes(10));
                Assert.True((await sandbox.Commands.RunAsync("true")).IsSuccess, "it works");
                await pool.ResizeAsync(0);
                await Assert.ThrowsAsync<PoolEmptyException>(() => pool.AcquireAsync(TimeSpan.FromMinutes(10)));
                await pool.ShutdownAsync();
                await Assert.ThrowsAsync<PoolClosedException>(() => pool.AcquireAsync(TimeSpan.FromMinutes(10)));
            }
        }

        /// <summary>A source that breaks.</summary>
        private sealed class Failing : ReadOnlyStream
        {
            public override ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default) =>
                throw new RankException("the source broke");
        }
    }
}
