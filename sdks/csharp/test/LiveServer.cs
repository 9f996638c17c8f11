// A real server on the embedded runtime, in a directory and on a port of its own. Needs root, and osb and execd:
// OSB_BIN, or what `cargo build` left, the newest of it.

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading.Tasks;

namespace OpenSandbox.Test
{
    internal sealed class LiveServer : IAsyncDisposable
    {
        private const string ApiKey = "sdk-test-key";

        /// <summary>What it takes at most to start, also on a busy machine.</summary>
        private static readonly TimeSpan StartLimit = TimeSpan.FromSeconds(60);

        private readonly Place _place = new Place();
        private readonly Process _process;
        private readonly TaskCompletionSource<string> _address = new TaskCompletionSource<string>();
        private readonly List<string> _log = new List<string>();

        private LiveServer()
        {
            var osb = Find();
            var settings = new[]
            {
                "log.format=json", $"server.api_key={ApiKey}", $"embedded.data_dir={_place.Path}", "embedded.ready_sandboxes=4",
                $"runtime.execd_path={Path.Combine(Path.GetDirectoryName(osb)!, "execd")}",
            };
            var start = new ProcessStartInfo(osb) { RedirectStandardError = true, RedirectStandardOutput = true };
            foreach (var argument in new[] { "server", "--port", "0" }.Concat(settings.SelectMany(setting => new[] { "--set", setting })))
                start.ArgumentList.Add(argument);
            start.Environment["HOME"] = _place.Path;
            start.Environment.Remove("SANDBOX_CONFIG_PATH");
            // What this runtime needs is not for it.
            start.Environment.Remove("LD_LIBRARY_PATH");
            _process = new Process { StartInfo = start, EnableRaisingEvents = true };
            _process.Exited += (_, __) => _address.TrySetException(new InvalidOperationException($"the server ended:\n{string.Join('\n', _log)}"));
            // Read on, so that the server never waits for its log to be taken.
            _process.ErrorDataReceived += (_, line) => Look(line.Data);
            _process.Start();
            _process.BeginErrorReadLine();
            _process.BeginOutputReadLine();
        }

        internal ConnectionOptions Connection => new ConnectionOptions { Domain = _address.Task.Result, ApiKey = ApiKey };

        internal static async Task<LiveServer> StartAsync()
        {
            var server = new LiveServer();
            if (await Task.WhenAny(server._address.Task, Task.Delay(StartLimit)) != server._address.Task)
                throw new TimeoutException($"the server is not ready:\n{string.Join('\n', server._log)}");
            await server._address.Task;
            return server;
        }

        internal Client Client() => new Client(new ConnectionConfig(Connection));

        /// <summary>Sandboxes outlive their server, also those that a test left alive.</summary>
        public async ValueTask DisposeAsync()
        {
            var client = Client();
            await foreach (var info in client.ListAsync(new SandboxFilter { PageSize = 200 })) await client.Sandbox(info.Id).KillAsync();
            using (var kill = Process.Start("kill", $"-TERM {_process.Id}")) kill.WaitForExit();
            _process.WaitForExit();
            _process.Dispose();
            _place.Dispose();
        }

        private static string Find()
        {
            if (Environment.GetEnvironmentVariable("OSB_BIN") is string given) return given;
            var repo = Path.Combine(Path.GetDirectoryName(Source())!, "../../..");
            var target = Environment.GetEnvironmentVariable("CARGO_TARGET_DIR") ?? Path.Combine(repo, "target");
            var built = new[] { "release", "debug" }.Select(profile => Path.Combine(target, profile, "osb")).Where(File.Exists);
            return built.OrderByDescending(File.GetLastWriteTimeUtc).FirstOrDefault()
                ?? throw new InvalidOperationException("no osb is built; run: cargo build -p osb -p execd");
        }

        private static string Source([CallerFilePath] string path = "") => path;

        private void Look(string? line)
        {
            if (line == null) return;
            if (_log.Count < 200) _log.Add(line);
            if (!line.StartsWith('{')) return;
            var entry = JsonSerializer.Deserialize<JsonElement>(line);
            if (entry.TryGetProperty("message", out var message) && message.GetString() == "ready")
                _address.TrySetResult(entry.GetProperty("address").GetString());
        }
    }
}
