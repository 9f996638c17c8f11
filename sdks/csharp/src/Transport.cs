// Requests and their answers: headers, deadlines, and the one place that decides what is sent again. Knows
// nothing of sandboxes.

using System;
using System.Collections.Generic;
using System.IO;
using System.Net;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Net.Sockets;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>The connections that all clients of a process share.</summary>
    internal static class Connections
    {
        internal static readonly SocketsHttpHandler Shared = new SocketsHttpHandler
        {
            // Credentials are in headers of our own, which a redirect must not carry elsewhere.
            AllowAutoRedirect = false,
            UseCookies = false,
            // So that a server that moves is found again, though a program runs for months.
            PooledConnectionLifetime = TimeSpan.FromMinutes(15),
        };
    }

    /// <summary>How JSON is written and read.</summary>
    internal static class Json
    {
        /// <summary>What is null is left out, and null is as good as absent.</summary>
        internal static readonly JsonSerializerOptions Options = new JsonSerializerOptions { IgnoreNullValues = true };

        internal static byte[] Bytes(object value) => JsonSerializer.SerializeToUtf8Bytes(value, value.GetType(), Options);
    }

    /// <summary>Bounds of time.</summary>
    internal static class Deadline
    {
        /// <summary>The longest wait of a timer, some 24 days.</summary>
        private static readonly TimeSpan Longest = TimeSpan.FromMilliseconds(int.MaxValue);

        internal static TimeSpan Seconds(double seconds) =>
            seconds < Longest.TotalSeconds ? TimeSpan.FromSeconds(seconds) : Longest;

        /// <summary>As long as a timer can wait.</summary>
        internal static TimeSpan Bounded(TimeSpan limit) => limit > Longest ? Longest : limit;

        internal static void Start(CancellationTokenSource source, TimeSpan limit) => source.CancelAfter(Bounded(limit));

        internal static void Stop(CancellationTokenSource source) => source.CancelAfter(Timeout.InfiniteTimeSpan);
    }

    /// <summary>What a request carries.</summary>
    internal sealed class Call
    {
        /// <summary>Already encoded.</summary>
        internal string Query { get; set; } = "";

        internal IReadOnlyDictionary<string, string>? Headers { get; set; }

        /// <summary>Sent as JSON.</summary>
        internal object? Json { get; set; }

        /// <summary>Makes the body of one attempt.</summary>
        internal Func<HttpContent>? Content { get; set; }

        /// <summary>The body is a stream, which can be sent only once.</summary>
        internal bool IsOnce { get; set; }

        /// <summary>The head of the answer, and then its whole body, may each take this long; nothing is what the
        /// settings say.</summary>
        internal TimeSpan? Limit { get; set; }

        /// <summary>The caller vouches that sending it again is safe.</summary>
        internal bool IsRepeatable { get; set; }
    }

    /// <summary>A place that requests go to, with the headers they carry.</summary>
    internal sealed class Target
    {
        internal const string ApiKeyHeader = "OPEN-SANDBOX-API-KEY";

        /// <summary>An answer that is read into memory as a whole is at most this long. Listings of large trees have some
        /// tens of MiB; what is longer is a fault or an attack.</summary>
        private const int AnswerBytesMax = 256 * 1024 * 1024;

        private static readonly Call Nothing = new Call();

        [ThreadStatic]
        private static Random? t_random;

        internal Target(ConnectionConfig config, string place, IReadOnlyDictionary<string, string> headers)
        {
            Config = config;
            Place = place;
            Headers = headers;
        }

        internal ConnectionConfig Config { get; }

        /// <summary>Without a slash at the end.</summary>
        internal string Place { get; }

        internal IReadOnlyDictionary<string, string> Headers { get; }

        /// <summary>Sends a request and reads the answer as JSON.</summary>
        internal async Task<T> JsonAsync<T>(string method, string path, Call? call, CancellationToken token)
        {
            var bytes = await BytesAsync(method, path, call, token).ConfigureAwait(false);
            try
            {
                var value = JsonSerializer.Deserialize<T>(bytes, Json.Options);
                return value == null ? throw new JsonException("it is null") : value;
            }
            catch (JsonException error)
            {
                throw new UnreadableException($"{method} {path}", error.Message, null, error);
            }
        }

        /// <summary>Sends a request and reads the answer as text.</summary>
        internal async Task<string> TextAsync(string method, string path, Call? call, CancellationToken token) =>
            Encoding.UTF8.GetString(await BytesAsync(method, path, call, token).ConfigureAwait(false));

        /// <summary>Sends a request and lets the answer's body, if any, pass.</summary>
        internal Task DoneAsync(string method, string path, Call? call, CancellationToken token) =>
            BytesAsync(method, path, call, token);

        /// <summary>Sends a request and reads the answer as bytes.</summary>
        internal async Task<byte[]> BytesAsync(string method, string path, Call? call, CancellationToken token)
        {
            var answer = await SendAsync(method, path, call, token).ConfigureAwait(false);
            return await answer.WholeAsync(AnswerBytesMax, LimitOf(call ?? Nothing)).ConfigureAwait(false);
        }

        /// <summary>Sends a request, again where that is safe, and answers what came with a good status. The deadline is
        /// for the answer's head; the body may take longer.</summary>
        internal async Task<Answer> SendAsync(string method, string path, Call? call, CancellationToken token)
        {
            call ??= Nothing;
            var policy = Config.Retry;
            var delay = policy.FirstDelay;
            for (var attempt = 1; ; attempt++)
            {
                try
                {
                    return await AttemptAsync(method, path, call, token).ConfigureAwait(false);
                }
                catch (OpenSandboxException error) when (attempt <= policy.Attempts && MayRepeat(method, call, error))
                {
                    var wait = (error as ApiException)?.RetryAfter ?? delay;
                    // There is no event to wait for: the other side is busy or away.
                    await Task.Delay(Deadline.Bounded(Least(wait, policy.LongestDelay)), token).ConfigureAwait(false);
                    delay = Spread(delay, policy);
                }
            }
        }

        /// <summary>A request as it goes over the wire, without its body.</summary>
        internal HttpRequestMessage Request(string method, string path, Call call)
        {
            var address = call.Query == "" ? $"{Place}{path}" : $"{Place}{path}?{call.Query}";
            var request = new HttpRequestMessage(new HttpMethod(method), new Uri(address)) { Version = HttpVersion.Version11 };
            request.Headers.TryAddWithoutValidation("User-Agent", Config.UserAgent);
            Add(request, Config.Headers);
            Add(request, Headers);
            if (call.Headers != null) Add(request, call.Headers);
            return request;
        }

        private static void Add(HttpRequestMessage request, IReadOnlyDictionary<string, string> headers)
        {
            foreach (var (name, value) in headers)
            {
                // The last that is said holds.
                request.Headers.Remove(name);
                request.Headers.TryAddWithoutValidation(name, value);
            }
        }

        private static TimeSpan Least(TimeSpan one, TimeSpan other) => one < other ? one : other;

        /// <summary>Spread out, so that clients that failed together do not return together.</summary>
        private static TimeSpan Spread(TimeSpan delay, RetryPolicy policy)
        {
            t_random ??= new Random();
            var first = policy.FirstDelay.TotalSeconds;
            var spread = first + t_random.NextDouble() * (3 * delay.TotalSeconds - first);
            return Least(Deadline.Seconds(Math.Max(spread, first)), policy.LongestDelay);
        }

        private static bool MayRepeat(string method, Call call, OpenSandboxException error)
        {
            if (call.IsOnce) return false;
            var isSafe = call.IsRepeatable || (method != "POST" && method != "PATCH");
            if (error is ConnectionException broken) return broken.IsUnsent || isSafe;
            return error is ApiException refused && isSafe && OpenSandboxException.IsPassing(refused.Status!.Value);
        }

        private static HttpContent? ContentOf(string method, Call call)
        {
            if (call.Content != null) return call.Content();
            if (call.Json == null)
            {
                // SocketsHttpHandler sends what has no body again by itself when a kept connection breaks. An empty body
                // keeps it from that: which requests are repeated is decided here alone.
                return method == "GET" || method == "DELETE" ? null : new ByteArrayContent(Array.Empty<byte>());
            }
            var content = new ByteArrayContent(Json.Bytes(call.Json));
            content.Headers.ContentType = new MediaTypeHeaderValue("application/json");
            return content;
        }

        private TimeSpan LimitOf(Call call) => call.Limit ?? Config.RequestTimeout;

        private async Task<Answer> AttemptAsync(string method, string path, Call call, CancellationToken token)
        {
            token.ThrowIfCancellationRequested();
            var what = $"{method} {path}";
            var limit = LimitOf(call);
            var life = CancellationTokenSource.CreateLinkedTokenSource(token);
            Deadline.Start(life, limit);
            HttpResponseMessage response;
            try
            {
                var request = Request(method, path, call);
                request.Content = ContentOf(method, call);
                response = await Config.Http.SendAsync(request, life.Token).ConfigureAwait(false);
            }
            catch (Exception error) when (IsOfNetwork(error))
            {
                var isLate = life.IsCancellationRequested;
                life.Dispose();
                token.ThrowIfCancellationRequested();
                if (isLate) throw new TimedOutException(what, limit);
                throw new ConnectionException($"{Place}{path}", IsUnsent(error), error);
            }
            Deadline.Stop(life);
            var answer = new Answer(response, $"{Place}{path}", what, life, token);
            if (response.IsSuccessStatusCode) return answer;
            throw await Refusal.ReadAsync(what, answer).ConfigureAwait(false);
        }

        /// <summary>Whether an error is of the connection, as opposed to a source that could not be read.</summary>
        internal static bool IsOfNetwork(Exception error) =>
            error is HttpRequestException || error is IOException || error is OperationCanceledException || error is SocketException;

        /// <summary>Whether a request certainly did not leave: no connection was made.</summary>
        private static bool IsUnsent(Exception error)
        {
            // Broken later, the error of the socket is behind one of the stream.
            if (!(error is HttpRequestException) || !(error.InnerException is SocketException socket)) return false;
            switch (socket.SocketErrorCode)
            {
                case SocketError.ConnectionRefused:
                case SocketError.HostNotFound:
                case SocketError.TryAgain:
                case SocketError.NoData:
                case SocketError.HostUnreachable:
                case SocketError.NetworkUnreachable:
                    return true;
                default:
                    return false;
            }
        }
    }
}
