// Streams of an answer: events of one kind, and bytes. Leaving one early gives the connection up; reading to
// the end leaves it to the next request.

using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>Values as they come: for <c>await foreach</c>, or one by one. It can be closed while a reader waits, who is
    /// then told of its end.</summary>
    /// <typeparam name="T">What it is of.</typeparam>
    public sealed class ValueStream<T> : IAsyncEnumerable<T>, IAsyncDisposable
        where T : class
    {
        private readonly Answer _answer;
        private readonly string _what;
        private readonly EventDecoder _decoder;
        private readonly Func<ReadOnlyMemory<byte>, T> _read;
        private volatile bool _isOver;

        internal ValueStream(Answer answer, string what, Func<ReadOnlyMemory<byte>, T>? read = null)
        {
            _answer = answer;
            _what = what;
            _decoder = new EventDecoder(what);
            _read = read ?? (json => JsonSerializer.Deserialize<T>(json.Span, Json.Options));
        }

        /// <summary>The next value; nothing at the end.</summary>
        public async ValueTask<T?> NextAsync()
        {
            while (!_isOver)
            {
                try
                {
                    if (_decoder.TryTake(out var json)) return _read(json);
                    var count = await _answer.ReadAsync(_decoder.Space()).ConfigureAwait(false);
                    if (count == 0) _isOver = true;
                    _decoder.Came(count);
                }
                catch (Exception error)
                {
                    // The reader that waited when the stream was given up is told of its end, not of an error.
                    if (_isOver) break;
                    Close();
                    if (error is JsonException) throw new UnreadableException(_what, $"an event is not JSON: {error.Message}", null, error);
                    throw;
                }
            }
            return null;
        }

        /// <summary>The values for <c>await foreach</c>; leaving it gives the stream up, and so does the token.</summary>
        /// <param name="cancellationToken">Ends reading early.</param>
        public async IAsyncEnumerator<T> GetAsyncEnumerator(CancellationToken cancellationToken = default)
        {
            using var stop = _answer.StopBy(cancellationToken);
            try
            {
                while (await NextAsync().ConfigureAwait(false) is T value) yield return value;
            }
            finally
            {
                Close();
            }
        }

        /// <summary>Gives the stream up.</summary>
        public ValueTask DisposeAsync()
        {
            Close();
            return default;
        }

        private void Close()
        {
            if (_isOver) return;
            _isOver = true;
            _answer.Cancel();
        }
    }

    /// <summary>The body of an answer. Its errors are those of this package, and disposing it gives the rest up.</summary>
    internal sealed class BodyStream : ReadOnlyStream
    {
        private readonly Answer _answer;
        private readonly long? _length;

        internal BodyStream(Answer answer)
        {
            _answer = answer;
            var headers = answer.Response.Content.Headers;
            // A length counts what was sent, which is not what arrives when a proxy has compressed it.
            _length = headers.ContentEncoding.Count == 0 ? headers.ContentLength : null;
        }

        public override long Length => _length ?? throw new NotSupportedException("the length is not known before the end");

        public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
        {
            cancellationToken.ThrowIfCancellationRequested();
            using var stop = _answer.StopBy(cancellationToken);
            return await _answer.ReadAsync(buffer).ConfigureAwait(false);
        }

        protected override void Dispose(bool disposing)
        {
            if (disposing) _answer.Cancel();
            base.Dispose(disposing);
        }
    }
}
