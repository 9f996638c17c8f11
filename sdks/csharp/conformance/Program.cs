// Reads calls from stdin, one JSON object a line, makes them with the SDK and answers on stdout; the protocol is
// in sdks/conformance/README.md. Calls overlap, as there.

using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox.Conformance
{
    internal static class Program
    {
        /// <summary>What calls left under a name, in the order in which they did.</summary>
        private static readonly List<(string Name, Held Held)> AllHeld = new List<(string, Held)>();

        /// <summary>Calls under way, by their number.</summary>
        private static readonly ConcurrentDictionary<long, CancellationTokenSource> Running =
            new ConcurrentDictionary<long, CancellationTokenSource>();

        private static readonly TextWriter Out = new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false)) { AutoFlush = true };

        private static async Task Main()
        {
            Answer(new { ready = true });
            using var lines = new StreamReader(Console.OpenStandardInput(), new UTF8Encoding(false));
            while (await lines.ReadLineAsync() is string line)
            {
                var message = JsonSerializer.Deserialize<JsonElement>(line);
                if (message.TryGetProperty("cancel", out var cancelled))
                {
                    if (Running.TryGetValue(cancelled.GetInt64(), out var call)) call.Cancel();
                    continue;
                }
                // Begun here, so that what is said one after the other is begun so.
                _ = CallAsync(message);
            }
            // Whatever still waits has nobody to answer.
            Environment.Exit(0);
        }

        private static void Answer(object message)
        {
            var text = JsonSerializer.Serialize(message, message.GetType());
            lock (Out) Out.WriteLine(text);
        }

        private static async Task CallAsync(JsonElement message)
        {
            var id = message.GetProperty("id").GetInt64();
            var name = message.GetProperty("call").GetString();
            using var cancel = new CancellationTokenSource();
            Running[id] = cancel;
            try
            {
                await Task.Yield();
                if (name == "runner.reset")
                {
                    await ResetAsync();
                    Answer(new { id, result = (object?)null });
                    return;
                }
                var result = await Calls.MakeAsync(name, Find(message), new Arguments(message), cancel.Token);
                if (Text(message, "as") is string place) Hold(place, (Held)result!);
                Answer(new { id, result = result is Held held ? held.Shown : result });
            }
            catch (Exception error)
            {
                Answer(new { id, error = Described(error, cancel.Token) });
            }
            finally
            {
                Running.TryRemove(id, out _);
            }
        }

        private static string? Text(JsonElement message, string name) =>
            message.TryGetProperty(name, out var value) && value.ValueKind == JsonValueKind.String ? value.GetString() : null;

        private static object? Find(JsonElement message)
        {
            if (!(Text(message, "on") is string name)) return null;
            lock (AllHeld)
            {
                var found = AllHeld.LastOrDefault(entry => entry.Name == name).Held;
                return found?.Value ?? throw new InvalidOperationException($"nothing is held as {name}");
            }
        }

        private static void Hold(string name, Held held)
        {
            lock (AllHeld) AllHeld.Add((name, held));
        }

        private static async Task ResetAsync()
        {
            List<(string Name, Held Held)> all;
            lock (AllHeld)
            {
                all = AllHeld.ToList();
                AllHeld.Clear();
            }
            all.Reverse();
            foreach (var (_, held) in all) if (held.Close != null) await held.Close();
        }

        private static object Described(Exception error, CancellationToken token)
        {
            if (token.IsCancellationRequested && error is OperationCanceledException)
                return new { kind = "cancelled", message = error.Message };
            if (!(error is OpenSandboxException known)) return new { kind = "runner", message = error.ToString() };
            // An error that wraps one from the wire gives that one's code.
            var behind = known.InnerException is ApiException cause ? cause.Code : null;
            return new
            {
                kind = Snake(known.Kind.ToString()),
                message = known.Message,
                status = known.Status,
                code = behind ?? known.Code,
                request_id = known.RequestId,
                retryable = known.IsRetryable,
                remedy = known.Remedy,
            };
        }

        internal static string Snake(string name) =>
            string.Concat(name.Select((letter, at) => char.IsUpper(letter) ? (at == 0 ? "" : "_") + char.ToLowerInvariant(letter) : letter.ToString()));
    }

    /// <summary>What a call leaves under a name.</summary>
    internal sealed class Held
    {
        internal Held(object value, object? shown = null, Func<Task>? close = null)
        {
            Value = value;
            Shown = shown;
            Close = close;
        }

        internal object Value { get; }

        internal object? Shown { get; }

        internal Func<Task>? Close { get; }
    }

    /// <summary>The arguments of a call. Absent and null are the same, except where <see cref="IsNull"/> is asked.</summary>
    internal sealed class Arguments
    {
        private readonly JsonElement _with;

        internal Arguments(JsonElement message)
        {
            _with = message.TryGetProperty("with", out var with) ? with : JsonSerializer.Deserialize<JsonElement>("{}");
        }

        internal bool IsNull(string name) => _with.TryGetProperty(name, out var value) && value.ValueKind == JsonValueKind.Null;

        internal bool Has(string name) => Element(name) != null;

        internal JsonElement? Element(string name) =>
            _with.TryGetProperty(name, out var value) && value.ValueKind != JsonValueKind.Null ? value : (JsonElement?)null;

        internal T? Value<T>(string name)
            where T : struct => Element(name) is JsonElement value ? JsonSerializer.Deserialize<T>(value.GetRawText()) : (T?)null;

        internal T? Get<T>(string name)
            where T : class => Element(name) is JsonElement value ? JsonSerializer.Deserialize<T>(value.GetRawText()) : null;

        internal T Need<T>(string name)
            where T : class => Get<T>(name) ?? throw new InvalidOperationException($"{name} is missing");

        internal string? Text(string name) => Get<string>(name);

        internal string NeedText(string name) => Need<string>(name);

        internal int? Int(string name) => Value<int>(name);

        internal long? Long(string name) => Value<long>(name);

        internal bool Flag(string name) => Value<bool>(name) ?? false;

        internal TimeSpan? Milliseconds(string name) => Value<double>(name) is double value ? TimeSpan.FromMilliseconds(value) : (TimeSpan?)null;

        internal TimeSpan? Seconds(string name) => Value<double>(name) is double value ? TimeSpan.FromSeconds(value) : (TimeSpan?)null;

        internal Dictionary<string, string>? Map(string name) => Get<Dictionary<string, string>>(name);
    }
}
