// The SDK at a server by hand, which answers as no real one can be made to.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox.Test
{
    internal static class WireTests
    {
        [Test("every form of an error has a message")]
        private static async Task Errors()
        {
            var forms = new[]
            {
                (400, "{\"code\":\"A\",\"message\":\"no room\",\"detail\":[{\"loc\":[\"body\"],\"msg\":\"x\"}]}", "no room"),
                (422, "{\"detail\":[{\"loc\":[\"body\",\"timeout\"],\"msg\":\"too short\"},{\"loc\":[\"body\",1],\"msg\":\"no\"}]}", "body.timeout: too short; body.1: no"),
                (404, "{\"detail\":\"Not Found\"}", "Not Found"),
                (500, "Broken\nx", "Broken"),
                (500, "<html>busy</html>", "the server answered Internal Server Error"),
            };
            using var hand = new HandServer((request, before) => HandServer.Answer(forms[before].Item1, forms[before].Item2, $"X-Request-ID: r{before}"));
            for (var at = 0; at < forms.Length; at++)
            {
                var error = await Assert.ThrowsAsync<ApiException>(() => hand.Client().HealthAsync());
                Assert.Equal((forms[at].Item1, forms[at].Item3, $"r{at}"), (error.Status!.Value, error.Reason, error.RequestId));
                Assert.True(error.Remedy != "" && error.What == "GET /health" && error.Kind == ErrorKind.Api, "it says what to do");
                Assert.Equal((at < 2, error.Status == 404), (error.Details.Count > 0, error.IsNotFound));
            }
        }

        private static RetryPolicy Quick => new RetryPolicy
        {
            Attempts = 3, FirstDelay = TimeSpan.FromMilliseconds(1), LongestDelay = TimeSpan.FromMilliseconds(5),
        };

        [Test("only what is safe is sent again")]
        private static async Task Retries()
        {
            const string Busy = "{\"code\":\"BUSY\",\"message\":\"not now\"}";
            using var hand = new HandServer((request, before) => request.StartsWith("GET") && before >= 2
                ? HandServer.Answer(200, "{\"status\":\"healthy\"}") : HandServer.Answer(503, Busy, "Retry-After: 0"));
            var client = hand.Client(new ConnectionOptions { Retry = Quick });
            Assert.Equal("healthy", (await client.HealthAsync()).Status);
            Assert.Equal(3, hand.Count, "requests");
            var request = new Wire.CreateSandboxRequest();
            var error = await Assert.ThrowsAsync<ApiException>(() => client.CreateRequestAsync(request));
            Assert.Equal((4, TimeSpan.Zero, true), (hand.Count, error.RetryAfter!.Value, error.IsRetryable), "a POST was sent once");
            await Assert.ThrowsAsync<ApiException>(() => client.CreateRequestAsync(request, null, "key"));
            Assert.Equal(8, hand.Count, "with a key it was sent four times");
            // Nobody listens: the request certainly did not leave.
            var gone = new Client(new ConnectionConfig(new ConnectionOptions { Domain = HandServer.Deserted(), Retry = Quick }));
            var unsent = await Assert.ThrowsAsync<ConnectionException>(() => gone.CreateRequestAsync(request));
            Assert.True(unsent.IsUnsent && unsent.Url.EndsWith("/v1/sandboxes") && unsent.IsRetryable, "it says so");
        }

        [Test("a request that may have arrived is not sent again by the runtime either")]
        private static async Task NotByTheRuntime()
        {
            // The second request on a kept connection finds it closed without an answer.
            using var hand = new HandServer((request, before) => before == 0 ? HandServer.Answer(200, "{\"status\":\"healthy\"}") : null) { Keeps = true };
            var client = hand.Client(new ConnectionOptions { Retry = Quick });
            await client.HealthAsync();
            await Assert.ThrowsAsync<ConnectionException>(() => client.RequestAsync("POST", "/sandboxes/x/pause"));
            Assert.Equal(2, hand.Count, "requests");
        }

        [Test("streams of the published daemon are read, and told to have broken when they did")]
        private static async Task PublishedStreams()
        {
            var events = new[]
            {
                "{\"type\":\"init\",\"text\":\"c1\",\"timestamp\":1}", "{\"type\":\"stdout\",\"text\":\"l1\",\"timestamp\":1}",
                "{\"type\":\"stdout\",\"text\":\"l2\",\"timestamp\":1}", "{\"type\":\"execution_complete\",\"execution_time\":4,\"timestamp\":1}",
            };
            var runs = 0;
            HandServer? hand = null;
            hand = new HandServer((request, before) =>
            {
                if (request.Contains("/endpoints/")) return HandServer.Answer(200, $"{{\"endpoint\":\"{hand!.Address}\"}}");
                return HandServer.Answer(200, string.Concat(events.Take(runs++ == 0 ? 4 : 2).Select(json => $"{json}\n\n")));
            });
            using (hand)
            {
                var commands = hand.Client().Sandbox("s1").Commands;
                var output = await commands.RunAsync("x");
                Assert.Equal(("l1\nl2\n", 0, TimeSpan.FromMilliseconds(4)), (output.Stdout, output.ExitCode!.Value, output.Took!.Value));
                var execution = await commands.StreamAsync("x");
                var seen = new List<ExecutionEvent>();
                var error = await Assert.ThrowsAsync<StreamBrokenException>(async () =>
                {
                    await foreach (var given in execution) seen.Add(given);
                });
                Assert.Equal(("l1\n", "command c1"), (((StdoutEvent)seen.Last()).Text, error.What));
                Assert.True(await execution.NextAsync() == null, "nothing comes after an error");
            }
        }

        [Test("an answer that stops in the middle is late, and a caller who cancels is told so")]
        private static async Task Late()
        {
            var stalled = new TaskCompletionSource<bool>();
            using var hand = new HandServer((request, before) => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") { Stalled = stalled.Task };
            var late = await Assert.ThrowsAsync<TimedOutException>(
                () => hand.Client(new ConnectionOptions { RequestTimeout = TimeSpan.FromMilliseconds(100) }).HealthAsync());
            Assert.Equal(("GET /health", 0.1), (late.What, late.After.TotalSeconds));
            using var cancel = new CancellationTokenSource();
            var waiting = hand.Client().HealthAsync(cancel.Token);
            cancel.Cancel();
            var cancelled = await Assert.ThrowsAsync<OperationCanceledException>(() => waiting);
            Assert.True(cancelled.CancellationToken == cancel.Token, "it names the caller's token");
            stalled.SetResult(true);
        }

        [Test("a pool throws away what waited too long, and makes another")]
        private static async Task PoolsExpire()
        {
            var ended = new TaskCompletionSource<bool>();
            var made = 0;
            HandServer? hand = null;
            hand = new HandServer((request, before) =>
            {
                if (request.StartsWith("POST /v1/sandboxes ")) return HandServer.Answer(202, $"{{\"id\":\"s{Interlocked.Increment(ref made)}\"}}");
                if (request.Contains("/endpoints/")) return HandServer.Answer(200, $"{{\"endpoint\":\"{hand!.Address}\"}}");
                if (request.StartsWith("DELETE /v1/sandboxes/s2 ")) ended.TrySetResult(true);
                return HandServer.Answer(200, "{}");
            });
            using (hand)
            {
                await using var pool = new Pool(hand.Client(), "host", new PoolOptions { MaxIdle = 1, IdleTimeout = TimeSpan.FromMilliseconds(1) });
                await ended.Task;
                Assert.True(pool.Status.MaxIdle == 1 && !pool.Status.IsDegraded && pool.Status.Idle + pool.Status.Warming <= 1, "one at a time");
            }
        }

        [Test("a sandbox that is not ready yet is asked again, one that never will be is not")]
        private static async Task Readiness()
        {
            var pings = 0;
            var state = "Pending";
            HandServer? hand = null;
            hand = new HandServer((request, before) =>
            {
                if (request.Contains("/endpoints/")) return HandServer.Answer(200, $"{{\"endpoint\":\"{hand!.Address}\"}}");
                if (!request.StartsWith("GET /ping")) return HandServer.Answer(200, $"{{\"id\":\"s1\",\"status\":{{\"state\":\"{state}\",\"message\":\"why\"}}}}");
                return HandServer.Answer(++pings == 3 ? 200 : 503, "{\"code\":\"BUSY\",\"message\":\"later\"}");
            });
            using (hand)
            {
                var client = hand.Client(new ConnectionOptions { Retry = new RetryPolicy { Attempts = 0 } });
                var quick = new ConnectOptions { HealthCheckInterval = TimeSpan.FromMilliseconds(1), ReadyTimeout = TimeSpan.FromMinutes(1) };
                await client.ConnectAsync("s1", quick);
                Assert.Equal(3, pings);
                quick.ReadyTimeout = TimeSpan.FromMilliseconds(100);
                var late = await Assert.ThrowsAsync<NotReadyException>(() => client.ConnectAsync("s1", quick));
                Assert.Equal(("s1", 503, ErrorKind.NotReady), (late.SandboxId, late.Status!.Value, late.Kind));
                state = "Failed";
                var failed = await Assert.ThrowsAsync<FailedException>(() => client.ConnectAsync("s1", quick));
                Assert.True(failed.Message.Contains("why"), failed.Message);
            }
        }

        [Test("settings go with every request, and a handler of one's own sends them")]
        private static async Task SettingsGoWithRequests()
        {
            var seen = "";
            using var hand = new HandServer((request, before) =>
            {
                seen = request;
                return HandServer.Answer(302, "", "Location: /elsewhere");
            });
            var counting = new CountingHandler();
            var client = hand.Client(new ConnectionOptions { UserAgent = "mine/1", Handler = counting, ApiKey = "k", Headers = new Dictionary<string, string> { ["X-Team"] = "blue" } });
            Assert.Equal(302, (await Assert.ThrowsAsync<ApiException>(() => client.Images.PullAsync("x", new PullOptions { Auth = new Wire.ImageAuth { Username = "u" } }))).Status);
            foreach (var wanted in new[] { "User-Agent: mine/1", "X-Team: blue", "OPEN-SANDBOX-API-KEY: k", "\"username\":\"u\"" }) Assert.True(seen.Contains(wanted), $"{wanted} in {seen}");
            Assert.Equal((1, 1, "mine/1"), (counting.Count, hand.Count, client.Config.UserAgent));
        }

        [Test("what a terminal says while nobody waits is kept for the next who does")]
        private static async Task TerminalsKeepEvents()
        {
            var listener = new TcpListener(IPAddress.Loopback, 0);
            listener.Start();
            using var hand = new HandServer((request, before) => HandServer.Answer(200, $"{{\"endpoint\":\"127.0.0.1:{((IPEndPoint)listener.LocalEndpoint).Port}\"}}"));
            var connecting = hand.Client().Sandbox("s1").Terminals.Get("t1").ConnectAsync();
            using var daemon = await listener.AcceptTcpClientAsync();
            listener.Stop();
            var stream = daemon.GetStream();
            var request = await HandServer.RequestAsync(stream);
            var key = request!.Split("\r\n").First(line => line.StartsWith("Sec-WebSocket-Key:")).Split(": ")[1];
            using var sha = System.Security.Cryptography.SHA1.Create();
            // RFC 6455, section 1.3.
            var accept = Convert.ToBase64String(sha.ComputeHash(Encoding.ASCII.GetBytes(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
            var head = $"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n";
            await stream.WriteAsync(Encoding.ASCII.GetBytes(head));
            await using var connection = await connecting;
            await Assert.ThrowsAsync<OperationCanceledException>(() => connection.NextAsync(new CancellationToken(true)).AsTask());
            // It says goodbye with code 4001, and the client has answered when a byte comes.
            await stream.WriteAsync(new byte[] { 0x88, 2, 0x0f, 0xa1 });
            Assert.Equal(0x88, stream.ReadByte(), "a close frame");
            Assert.Equal(4001, ((ClosedEvent)(await connection.NextAsync())!).Code);
            Assert.True(await connection.NextAsync() == null, "nothing comes after");
        }

        [Test("what makes no sense is refused before anything is sent")]
        private static async Task Nonsense()
        {
            var client = new Client(new ConnectionConfig(new ConnectionOptions { Domain = HandServer.Deserted() }));
            var sandbox = client.Sandbox("s1");
            await Assert.ThrowsAsync<InvalidArgumentException>(() => client.CreateAsync(""));
            await Assert.ThrowsAsync<InvalidArgumentException>(() => client.CreateAsync("x", new CreateOptions { Lifetime = TimeSpan.Zero }));
            await Assert.ThrowsAsync<InvalidArgumentException>(() => client.GetAsync(".."));
            await Assert.ThrowsAsync<InvalidArgumentException>(() => sandbox.Commands.RunAsync(default));
            await Assert.ThrowsAsync<InvalidArgumentException>(() => sandbox.Files.ReadRangeAsync("/x", -1, 2));
            await Assert.ThrowsAsync<InvalidArgumentException>(() => sandbox.Files.ReadRangeHeaderAsync("/x", "a\r\nb"));
            Assert.Throws<InvalidArgumentException>(() => sandbox.Files.AsUser(-1, 0));
            await Assert.ThrowsAsync<InvalidArgumentException>(() => client.RenewAsync("s1", TimeSpan.MaxValue));
            foreach (var name in new[] { "a b", "a:" })
                Assert.Throws<ConfigException>(() => _ = new ConnectionConfig(new ConnectionOptions { Headers = new Dictionary<string, string> { [name] = "x" } }));
            var origin = Assert.Throws<ConfigException>(() => _ = new ConnectionConfig(new ConnectionOptions { ApiKey = "a\r\nb" })).Origin;
            Assert.Equal("ApiKey", origin);
        }
    }

    /// <summary>Counts what it sends.</summary>
    internal sealed class CountingHandler : DelegatingHandler
    {
        internal CountingHandler()
            : base(new SocketsHttpHandler { AllowAutoRedirect = false })
        {
        }

        internal int Count { get; private set; }

        protected override Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
        {
            Count++;
            return base.SendAsync(request, cancellationToken);
        }
    }

    /// <summary>A server by hand: gets the head of a request with how many came before, answers raw bytes, or nothing, which
    /// closes the connection. Each answer ends its connection unless it keeps them.</summary>
    internal sealed class HandServer : IDisposable
    {
        private readonly TcpListener _listener = new TcpListener(IPAddress.Loopback, 0);
        private readonly Func<string, int, string?> _answer;
        private int _count;

        internal HandServer(Func<string, int, string?> answer)
        {
            _answer = answer;
            _listener.Start();
            _ = ListenAsync();
        }

        internal string Address => $"127.0.0.1:{((IPEndPoint)_listener.LocalEndpoint).Port}";

        internal int Count => _count;

        internal bool Keeps { get; set; }

        /// <summary>Connections stay open after an answer until this is done.</summary>
        internal Task Stalled { get; set; } = Task.CompletedTask;

        public void Dispose() => _listener.Stop();

        internal static string Answer(int status, string body, params string[] headers)
        {
            var head = string.Concat(headers.Select(header => $"{header}\r\n"));
            return $"HTTP/1.1 {status} x\r\n{head}Content-Length: {Encoding.UTF8.GetByteCount(body)}\r\n\r\n{body}";
        }

        /// <summary>An address where nobody listens, of a part of loopback that nobody else uses.</summary>
        internal static string Deserted()
        {
            var listener = new TcpListener(IPAddress.Parse("127.88.77.65"), 0);
            listener.Start();
            var port = ((IPEndPoint)listener.LocalEndpoint).Port;
            listener.Stop();
            return $"127.88.77.65:{port}";
        }

        internal Client Client(ConnectionOptions? options = null)
        {
            options ??= new ConnectionOptions();
            options.Domain = Address;
            return new Client(new ConnectionConfig(options));
        }

        private async Task ListenAsync()
        {
            try
            {
                while (true) _ = ServeAsync(await _listener.AcceptTcpClientAsync());
            }
            catch (Exception error) when (error is SocketException || error is ObjectDisposedException)
            {
                // Stopped.
            }
        }

        private async Task ServeAsync(TcpClient client)
        {
            using (client)
            {
                var stream = client.GetStream();
                do
                {
                    if (!(await RequestAsync(stream) is string request)) return;
                    var answer = _answer(request, Interlocked.Increment(ref _count) - 1);
                    if (answer == null) return;
                    var text = Keeps ? answer : answer.Replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
                    await stream.WriteAsync(Encoding.UTF8.GetBytes(text));
                    await Stalled;
                }
                while (Keeps);
            }
        }

        internal static async Task<string?> RequestAsync(NetworkStream stream)
        {
            var text = "";
            var space = new byte[4096];
            while (true)
            {
                var count = await stream.ReadAsync(space);
                if (count == 0) return null;
                text += Encoding.UTF8.GetString(space, 0, count);
                var end = text.IndexOf("\r\n\r\n", StringComparison.Ordinal);
                if (end < 0) continue;
                var length = text.Split("\r\n").FirstOrDefault(line => line.StartsWith("Content-Length:", StringComparison.OrdinalIgnoreCase));
                if (length == null || text.Length - end - 4 >= int.Parse(length.Split(':')[1])) return text;
            }
        }
    }
}
