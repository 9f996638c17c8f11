// What runs in a sandbox, as a stream of events.
//
// A stream that breaks is taken up again where it broke, so that every event is given out exactly once; that
// needs events that are numbered, which the published daemon does not send. Its streams end with a
// StreamBrokenException when they break.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>What an execution is of, which decides how its stream is read.</summary>
    internal enum ExecutionKind
    {
        /// <summary>Can be taken up again; <c>error</c> is its last event.</summary>
        Command,

        /// <summary>Its events cannot be asked for again.</summary>
        Session,

        /// <summary>Texts are as they were written, and <c>execution_complete</c> comes after <c>error</c>.</summary>
        Context,
    }

    /// <summary>An execution under way: its events by <c>await foreach</c> or one by one, or all of it by
    /// <see cref="OutputAsync"/>. Leaving the loop early lets the execution go on without a reader.</summary>
    public sealed class Execution : IAsyncEnumerable<ExecutionEvent>, IAsyncDisposable
    {
        /// <summary>Attempts to take a broken stream up again without a single event in between: with the growing waits
        /// between them some ten seconds, in which a server restarts.</summary>
        private const int ResumeAttempts = 8;

        /// <summary>The wait before the second attempt; it doubles from there. The first is made at once.</summary>
        private static readonly TimeSpan ResumeDelay = TimeSpan.FromMilliseconds(100);

        /// <summary>After the last event the daemon closes the stream at once. A proxy that keeps it open must not keep the
        /// caller.</summary>
        private static readonly TimeSpan DrainLimit = TimeSpan.FromSeconds(1);

        private readonly ExecutionKind _kind;
        private readonly Target _target;
        private readonly CancellationToken _caller;
        private volatile Answer _answer;
        private EventDecoder _decoder;
        private CancellationToken _stopper;
        private bool _isAtEnd;
        private int _failures;
        private bool _isOver;
        private volatile bool _isClosed;

        internal Execution(Answer answer, ExecutionKind kind, Target target, CancellationToken caller, string? id = null, long? after = null)
        {
            _answer = answer;
            _kind = kind;
            _target = target;
            _caller = caller;
            Id = id;
            LastSeq = after;
            _decoder = new EventDecoder($"the stream of {What}");
        }

        /// <summary>What to ask by, once it has begun.</summary>
        public string? Id { get; private set; }

        /// <summary>The number of the last event that was given out, to follow a command from; only of servers that number
        /// them.</summary>
        public long? LastSeq { get; private set; }

        private string What => $"{_kind.ToString().ToLowerInvariant()} {Id ?? "(not begun)"}";

        /// <summary>The next event; nothing at the end.</summary>
        public ValueTask<ExecutionEvent?> NextAsync()
        {
            // Most events are here already, and cost no task.
            try
            {
                if (!_isClosed && TryTake() is ExecutionEvent ready) return new ValueTask<ExecutionEvent?>(ready);
            }
            catch (OpenSandboxException)
            {
                Close();
                throw;
            }
            return NextFromWireAsync();
        }

        /// <summary>Reads to the end and answers everything that was not read yet.</summary>
        /// <param name="cancellationToken">Ends reading early; what runs goes on.</param>
        public async Task<Output> OutputAsync(CancellationToken cancellationToken = default)
        {
            var output = new Output();
            await foreach (var given in this.WithCancellation(cancellationToken).ConfigureAwait(false)) output.Add(given);
            return output;
        }

        /// <summary>The events for <c>await foreach</c>; leaving it gives the stream up, and so does the token. What runs
        /// goes on.</summary>
        /// <param name="cancellationToken">Ends reading early.</param>
        public IAsyncEnumerator<ExecutionEvent> GetAsyncEnumerator(CancellationToken cancellationToken = default) =>
            new Enumerator(this, cancellationToken);

        /// <summary>Gives the stream up; what runs goes on.</summary>
        public ValueTask DisposeAsync()
        {
            Close();
            return default;
        }

        private void Close()
        {
            if (_isClosed) return;
            _isClosed = true;
            _answer.Cancel();
        }

        private void Stop(CancellationToken by)
        {
            _stopper = by;
            _answer.Cancel();
        }

        private async ValueTask<ExecutionEvent?> NextFromWireAsync()
        {
            try
            {
                while (!_isClosed)
                {
                    if (TryTake() is ExecutionEvent given) return given;
                    await FillAsync().ConfigureAwait(false);
                }
                return null;
            }
            catch (Exception)
            {
                // The reader that waited when it was given up is told of its end, not of an error.
                if (_isClosed) return null;
                // Nothing comes after an error.
                Close();
                throw;
            }
        }

        /// <summary>Brings more bytes, by another connection where one broke.</summary>
        private async Task FillAsync()
        {
            // Whatever happens after the last event, everything has come.
            if (_isOver) _answer.EndWithin(DrainLimit);
            if (_isAtEnd)
            {
                if (_isOver) Close();
                else await ResumeAsync(null).ConfigureAwait(false);
                return;
            }
            try
            {
                var count = await _answer.ReadAsync(_decoder.Space()).ConfigureAwait(false);
                _decoder.Came(count);
                if (count > 0) return;
                _isAtEnd = true;
                _decoder.Finish();
            }
            catch (ConnectionException broken)
            {
                if (_stopper.IsCancellationRequested) throw new OperationCanceledException(_stopper);
                if (_isOver) Close();
                else if (!_isClosed) await ResumeAsync(broken).ConfigureAwait(false);
            }
        }

        /// <summary>The next event of those that came.</summary>
        private ExecutionEvent? TryTake()
        {
            while (TryJson(out var json))
            {
                WireEvent wire;
                try
                {
                    wire = WireEvent.Read(json.Span);
                }
                // InvalidOperationException is what System.Text.Json says of text that is no Unicode, and of another type.
                catch (Exception error) when (error is JsonException || error is InvalidOperationException || error is FormatException)
                {
                    // Half an event at the end of a broken connection comes again when resumed.
                    if (_isAtEnd) return null;
                    throw new UnreadableException($"the stream of {What}", $"an event is not JSON: {error.Message}", null, error);
                }
                if (wire.Seq is long seq)
                {
                    if (LastSeq is long last && seq <= last) continue;
                    LastSeq = seq;
                    _failures = 0;
                }
                if (EventOf(wire) is ExecutionEvent given) return given;
            }
            return null;
        }

        private bool TryJson(out ReadOnlyMemory<byte> json)
        {
            try
            {
                return _decoder.TryTake(out json);
            }
            catch (UnreadableException) when (_isAtEnd)
            {
                json = default;
                return false;
            }
        }

        private ExecutionEvent? EventOf(in WireEvent wire)
        {
            switch (wire.Type)
            {
                case WireEvent.Types.Stdout:
                    return new StdoutEvent(TextOf(wire));
                case WireEvent.Types.Stderr:
                    return new StderrEvent(TextOf(wire));
                case WireEvent.Types.Init:
                    Id = (wire.Text ?? "").TrimEnd();
                    return new StartedEvent(Id);
                case WireEvent.Types.Result:
                    return new ResultEvent(new RichResult(wire.Results ?? new Dictionary<string, JsonElement>(), wire.ExecutionCount));
                case WireEvent.Types.Count:
                    return new CountEvent(wire.ExecutionCount ?? 0);
                case WireEvent.Types.Error:
                    _isOver = true;
                    var failure = wire.Failure;
                    return new ErrorEvent(new ExecutionFailure(
                        failure?.Ename ?? "", failure?.Evalue ?? "", failure?.Traceback?.ToArray() ?? Array.Empty<string>()));
                case WireEvent.Types.Complete:
                    _isOver = true;
                    return new CompletedEvent(wire.ExecutionTime is long took ? TimeSpan.FromMilliseconds(took) : (TimeSpan?)null);
                case WireEvent.Types.Missing:
                    // The stream broke on the daemon's side after it had begun: an error envelope.
                    throw new StreamBrokenException(What, $"{wire.Message} ({wire.Code})");
                default:
                    return null;
            }
        }

        /// <summary>Events without numbers are lines without their ends, except those of code.</summary>
        private string TextOf(in WireEvent wire)
        {
            var text = wire.Text ?? "";
            var isWhole = wire.Seq != null || _kind == ExecutionKind.Context || text.EndsWith('\n');
            return isWhole ? text : $"{text}\n";
        }

        /// <summary>Goes on after the last event that came.</summary>
        private async Task ResumeAsync(Exception? broken)
        {
            if (Id == null || LastSeq == null || _kind != ExecutionKind.Command)
            {
                const string Why = "the connection ended before the last event, and this kind of stream cannot be taken up again";
                throw new StreamBrokenException(What, Why, broken);
            }
            while (_failures < ResumeAttempts)
            {
                if (_failures > 0) await PauseAsync(ResumeDelay * (1 << (_failures - 1))).ConfigureAwait(false);
                _failures++;
                try
                {
                    var call = new Call { Query = Encoded.Query(("after", LastSeq)) };
                    _answer = await _target.SendAsync("GET", $"/command/{Encoded.Segment(Id)}/events", call, _caller).ConfigureAwait(false);
                    if (_isClosed || _stopper.IsCancellationRequested) _answer.Cancel();
                    _decoder = new EventDecoder($"the stream of {What}");
                    _isAtEnd = false;
                    return;
                }
                catch (OpenSandboxException error) when (error.IsRetryable)
                {
                    broken = error;
                }
                catch (OpenSandboxException error)
                {
                    throw new StreamBrokenException(What, "its rest is not to be had", error);
                }
            }
            throw new StreamBrokenException(What, "the sandbox could not be reached again", broken);
        }

        private async Task PauseAsync(TimeSpan delay)
        {
            using var both = CancellationTokenSource.CreateLinkedTokenSource(_caller, _stopper);
            await Task.Delay(delay, both.Token).ConfigureAwait(false);
        }

        private sealed class Enumerator : IAsyncEnumerator<ExecutionEvent>
        {
            private readonly Execution _execution;
            private readonly CancellationTokenRegistration _stop;
            private ExecutionEvent? _current;

            internal Enumerator(Execution execution, CancellationToken token)
            {
                _execution = execution;
                if (token.CanBeCanceled) _stop = token.Register(() => execution.Stop(token));
            }

            public ExecutionEvent Current => _current!;

            public ValueTask<bool> MoveNextAsync()
            {
                var next = _execution.NextAsync();
                if (!next.IsCompletedSuccessfully) return WaitAsync(next);
                _current = next.Result;
                return new ValueTask<bool>(_current != null);
            }

            public ValueTask DisposeAsync()
            {
                _stop.Dispose();
                return _execution.DisposeAsync();
            }

            private async ValueTask<bool> WaitAsync(ValueTask<ExecutionEvent?> next)
            {
                _current = await next.ConfigureAwait(false);
                return _current != null;
            }
        }
    }
}
