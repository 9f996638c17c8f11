// The head of a good answer, whose body is still to be read; and how errors are read from bodies.

using System;
using System.Buffers;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>An answer. Its body is read to the end, which leaves the connection to the next request, or given up.</summary>
    internal sealed class Answer
    {
        private readonly string _url;
        private readonly string _what;
        private readonly CancellationTokenSource _life;
        private readonly CancellationToken _caller;
        private Stream? _body;
        private CancellationToken _stopper;
        private volatile Exception? _reason;
        private bool _isAtEnd;

        internal Answer(HttpResponseMessage response, string url, string what, CancellationTokenSource life, CancellationToken caller)
        {
            Response = response;
            _url = url;
            _what = what;
            _life = life;
            _caller = caller;
        }

        internal HttpResponseMessage Response { get; }

        internal string? Header(string name) =>
            Response.Headers.TryGetValues(name, out var values) || Response.Content.Headers.TryGetValues(name, out values)
                ? values.FirstOrDefault() : null;

        /// <summary>Reads some bytes; none at the end. A connection that broke is a <see cref="ConnectionException"/>, a caller
        /// who cancelled an <see cref="OperationCanceledException"/>.</summary>
        internal async ValueTask<int> ReadAsync(Memory<byte> into)
        {
            if (_isAtEnd) return 0;
            try
            {
                _body ??= await Response.Content.ReadAsStreamAsync().ConfigureAwait(false);
                var count = await _body.ReadAsync(into, _life.Token).ConfigureAwait(false);
                if (count > 0 || into.Length == 0) return count;
                _isAtEnd = true;
                Response.Dispose();
                _life.Dispose();
                return 0;
            }
            catch (Exception error) when (Target.IsOfNetwork(error) || error is ObjectDisposedException)
            {
                throw Meaning(error);
            }
        }

        /// <summary>Ends reading when this token is cancelled, beside the one that the request was made with.</summary>
        internal CancellationTokenRegistration StopBy(CancellationToken token)
        {
            if (!token.CanBeCanceled) return default;
            return token.Register(() =>
            {
                _stopper = token;
                Cancel();
            });
        }

        /// <summary>Reads to the end, within this time.</summary>
        internal async Task<byte[]> WholeAsync(int most, TimeSpan limit)
        {
            using var late = new Timer(_ => Cancel(new TimedOutException(_what, limit)));
            if (limit != Timeout.InfiniteTimeSpan) late.Change(Deadline.Bounded(limit), Timeout.InfiniteTimeSpan);
            var space = ArrayPool<byte>.Shared.Rent(16 * 1024);
            var whole = new MemoryStream();
            try
            {
                for (var count = 1; count > 0;)
                {
                    count = await ReadAsync(space).ConfigureAwait(false);
                    whole.Write(space, 0, count);
                    if (whole.Length <= most) continue;
                    Cancel();
                    throw new UnreadableException(_what, $"it is longer than {most} bytes");
                }
            }
            finally
            {
                ArrayPool<byte>.Shared.Return(space);
            }
            return whole.ToArray();
        }

        /// <summary>Gives the rest up when it has not come within this time.</summary>
        internal void EndWithin(TimeSpan limit)
        {
            try
            {
                Deadline.Start(_life, limit);
            }
            catch (ObjectDisposedException)
            {
                // It has come already.
            }
        }

        /// <summary>Gives the body up; who waits for it is told the reason, if there is one.</summary>
        internal void Cancel(Exception? reason = null)
        {
            _reason ??= reason;
            try
            {
                _life.Cancel();
            }
            catch (ObjectDisposedException)
            {
                // Read to its end.
            }
            Response.Dispose();
        }

        private Exception Meaning(Exception error)
        {
            if (_caller.IsCancellationRequested) return new OperationCanceledException(_caller);
            if (_stopper.IsCancellationRequested) return new OperationCanceledException(_stopper);
            return _reason ?? new ConnectionException(_url, false, error);
        }
    }

    /// <summary>Reads an error in the forms of our servers, of the published ones and of proxies between.</summary>
    internal static class Refusal
    {
        private const string RequestIdHeader = "X-Request-ID";

        /// <summary>As much of an error's body is read as any real one has.</summary>
        private const int BytesMax = 64 * 1024;

        /// <summary>Half an error is still an error; the deadline of the request is long over.</summary>
        private static readonly TimeSpan Limit = TimeSpan.FromSeconds(5);

        /// <summary>Statuses that come from gateways without a word of their own; .NET has no words for those that came
        /// over the wire with others.</summary>
        private static readonly Dictionary<int, string> Reasons = new Dictionary<int, string>
        {
            [301] = "Moved Permanently", [302] = "Found", [307] = "Temporary Redirect", [308] = "Permanent Redirect",
            [400] = "Bad Request", [401] = "Unauthorized", [403] = "Forbidden", [404] = "Not Found",
            [408] = "Request Timeout", [413] = "Content Too Large", [429] = "Too Many Requests",
            [500] = "Internal Server Error", [502] = "Bad Gateway", [503] = "Service Unavailable", [504] = "Gateway Timeout",
        };

        internal static async Task<ApiException> ReadAsync(string what, Answer answer)
        {
            var text = "";
            try
            {
                text = Encoding.UTF8.GetString(await answer.WholeAsync(BytesMax, Limit).ConfigureAwait(false));
            }
            catch (OpenSandboxException)
            {
                // The status alone says enough.
            }
            return Of(what, (int)answer.Response.StatusCode, text, answer.Header(RequestIdHeader), answer.Header("Retry-After"));
        }

        internal static ApiException Of(string what, int status, string text, string? requestId, string? retryAfter)
        {
            var body = Object(text);
            string? Field(string name) =>
                body is JsonElement found && found.TryGetProperty(name, out var value) && value.ValueKind == JsonValueKind.String
                    ? value.GetString() : null;

            var details = new List<string>();
            if (body is JsonElement given && given.TryGetProperty("detail", out var problems) && problems.ValueKind == JsonValueKind.Array)
                details.AddRange(problems.EnumerateArray().Select(Problem));
            var line = text.Split('\n')[0].Trim();
            // A page of HTML says less than the status.
            var plain = body == null && line != "" && line[0] != '<' ? line : null;
            var reason = Reasons.TryGetValue(status, out var words) ? words : $"status {status}";
            var message = Field("message") ?? Field("detail") ?? (details.Count > 0 ? string.Join("; ", details) : null)
                ?? plain ?? $"the server answered {reason}";
            var seconds = uint.TryParse(retryAfter, out var asked) ? Deadline.Seconds(asked) : (TimeSpan?)null;
            return new ApiException(what, status, Field("code") ?? "", message, requestId ?? Field("request_id"), seconds, details);
        }

        private static JsonElement? Object(string text)
        {
            try
            {
                using var document = JsonDocument.Parse(text);
                return document.RootElement.ValueKind == JsonValueKind.Object ? document.RootElement.Clone() : (JsonElement?)null;
            }
            catch (JsonException)
            {
                return null;
            }
        }

        private static string Problem(JsonElement problem)
        {
            if (problem.ValueKind != JsonValueKind.Object) return problem.ToString();
            var place = problem.TryGetProperty("loc", out var loc) && loc.ValueKind == JsonValueKind.Array
                ? string.Join(".", loc.EnumerateArray().Select(step => step.ToString())) : "";
            return $"{place}: {(problem.TryGetProperty("msg", out var message) ? message.ToString() : "")}";
        }
    }
}
