// A connection to a terminal: what comes from it as events, its input by methods.

using System;
using System.Buffers.Binary;
using System.Collections.Generic;
using System.IO;
using System.Net.WebSockets;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>What comes from a terminal: one of the classes below.</summary>
    public abstract class TerminalEvent
    {
        private protected TerminalEvent()
        {
        }
    }

    /// <summary>This client now holds the terminal.</summary>
    public sealed class ConnectedEvent : TerminalEvent
    {
    }

    /// <summary>Output.</summary>
    public sealed class OutputEvent : TerminalEvent
    {
        internal OutputEvent(byte[] bytes, bool isError)
        {
            Bytes = bytes;
            IsError = isError;
        }

        /// <summary>What was written.</summary>
        public byte[] Bytes { get; }

        /// <summary>Whether it is error output; only with pipes.</summary>
        public bool IsError { get; }
    }

    /// <summary>Output from before, or after some that was lost.</summary>
    public sealed class ReplayEvent : TerminalEvent
    {
        internal ReplayEvent(long offset, byte[] bytes)
        {
            Offset = offset;
            Bytes = bytes;
        }

        /// <summary>Which byte of the whole is the first.</summary>
        public long Offset { get; }

        /// <summary>What was written.</summary>
        public byte[] Bytes { get; }
    }

    /// <summary>Something that was sent could not be honoured.</summary>
    public sealed class RefusedEvent : TerminalEvent
    {
        internal RefusedEvent(string code, string message)
        {
            Code = code;
            Message = message;
        }

        /// <summary>The error's code.</summary>
        public string Code { get; }

        /// <summary>Why.</summary>
        public string Message { get; }
    }

    /// <summary>The process has ended.</summary>
    public sealed class ExitEvent : TerminalEvent
    {
        internal ExitEvent(int code, int? signal)
        {
            Code = code;
            Signal = signal;
        }

        /// <summary>Its code, -1 for a signal.</summary>
        public int Code { get; }

        /// <summary>The signal, where the server says so.</summary>
        public int? Signal { get; }
    }

    /// <summary>The connection is closed. Nothing comes after.</summary>
    public sealed class ClosedEvent : TerminalEvent
    {
        internal ClosedEvent(int code, string reason)
        {
            Code = code;
            Reason = reason;
        }

        /// <summary>Why (RFC 6455, section 7.4); 4001 is another client that took over.</summary>
        public int Code { get; }

        /// <summary>The same in words.</summary>
        public string Reason { get; }
    }

    /// <summary>A connection to a terminal: its events by <c>await foreach</c> or one by one, its input by methods.</summary>
    public sealed class TerminalConnection : IAsyncEnumerable<TerminalEvent>, IAsyncDisposable
    {
        private const byte KindStdin = 0;
        private const byte KindStdout = 1;
        private const byte KindStderr = 2;
        private const byte KindReplay = 3;
        private const int ReplayHeadBytes = 9;

        /// <summary>Longer than any message of the daemon; what is longer is a fault or an attack.</summary>
        private const int MessageBytesMax = 16 * 1024 * 1024;

        /// <summary>How long the other side may take to say goodbye.</summary>
        private static readonly TimeSpan CloseLimit = TimeSpan.FromSeconds(1);

        private readonly WebSocket _socket;
        private readonly SemaphoreSlim _sending = new SemaphoreSlim(1);
        private readonly byte[] _space = new byte[16 * 1024];
        private Task<TerminalEvent?>? _pending;
        private volatile bool _isOver;

        internal TerminalConnection(WebSocket socket)
        {
            _socket = socket;
        }

        /// <summary>What comes next; nothing after <see cref="ClosedEvent"/>.</summary>
        /// <param name="cancellationToken">Stops waiting. Nothing is lost: the next call waits for the same.</param>
        public async ValueTask<TerminalEvent?> NextAsync(CancellationToken cancellationToken = default)
        {
            if (_pending == null)
            {
                if (_isOver) return null;
                _pending = ReceiveAsync();
            }
            if (cancellationToken.CanBeCanceled && !_pending.IsCompleted)
            {
                var cancelled = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
                using (cancellationToken.Register(() => cancelled.TrySetResult(true)))
                {
                    await Task.WhenAny(_pending, cancelled.Task).ConfigureAwait(false);
                }
                if (!_pending.IsCompleted) cancellationToken.ThrowIfCancellationRequested();
            }
            var pending = _pending;
            try
            {
                return await pending.ConfigureAwait(false);
            }
            finally
            {
                _pending = null;
            }
        }

        /// <summary>What comes, for <c>await foreach</c>. Leaving it does not leave the terminal.</summary>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async IAsyncEnumerator<TerminalEvent> GetAsyncEnumerator(CancellationToken cancellationToken = default)
        {
            while (await NextAsync(cancellationToken).ConfigureAwait(false) is TerminalEvent given) yield return given;
        }

        /// <summary>Sends keystrokes.</summary>
        /// <param name="input">The text.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task WriteAsync(string input, CancellationToken cancellationToken = default) =>
            WriteAsync(Encoding.UTF8.GetBytes(input), cancellationToken);

        /// <summary>Sends keystrokes.</summary>
        /// <param name="input">The bytes.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task WriteAsync(byte[] input, CancellationToken cancellationToken = default)
        {
            var frame = new byte[input.Length + 1];
            frame[0] = KindStdin;
            input.CopyTo(frame, 1);
            return SendAsync(frame, WebSocketMessageType.Binary, cancellationToken);
        }

        /// <summary>Says that the window has a new size.</summary>
        /// <param name="columns">Its width.</param>
        /// <param name="rows">Its height.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task ResizeAsync(int columns, int rows, CancellationToken cancellationToken = default) =>
            MessageAsync(new PtyClientMessage { Type = "resize", Cols = columns, Rows = rows }, cancellationToken);

        /// <summary>Sends a signal to what runs in front.</summary>
        /// <param name="signal">One of <see cref="PtySignal"/>.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task SignalAsync(string signal, CancellationToken cancellationToken = default) =>
            MessageAsync(new PtyClientMessage { Type = "signal", Signal = signal }, cancellationToken);

        /// <summary>Asks the daemon for a sign of life, which says in turn that this client lives.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task PingAsync(CancellationToken cancellationToken = default) =>
            MessageAsync(new PtyClientMessage { Type = "ping" }, cancellationToken);

        /// <summary>Leaves the terminal, which goes on without a client. Who waits for an event is told of the end.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task CloseAsync(CancellationToken cancellationToken = default)
        {
            if (_socket.State != WebSocketState.Open && _socket.State != WebSocketState.CloseReceived) return;
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
            limit.CancelAfter(CloseLimit);
            try
            {
                await _sending.WaitAsync(limit.Token).ConfigureAwait(false);
                try
                {
                    await _socket.CloseOutputAsync(WebSocketCloseStatus.NormalClosure, "", limit.Token).ConfigureAwait(false);
                }
                finally
                {
                    _sending.Release();
                }
            }
            catch (Exception error) when (error is WebSocketException || error is OperationCanceledException || error is ObjectDisposedException)
            {
                // The other side is gone already.
                cancellationToken.ThrowIfCancellationRequested();
                _socket.Abort();
            }
        }

        /// <summary>Leaves the terminal, which goes on without a client.</summary>
        public async ValueTask DisposeAsync()
        {
            await CloseAsync().ConfigureAwait(false);
            _isOver = true;
            _socket.Dispose();
        }

        private Task MessageAsync(PtyClientMessage message, CancellationToken token) =>
            SendAsync(Json.Bytes(message), WebSocketMessageType.Text, token);

        private async Task SendAsync(byte[] frame, WebSocketMessageType type, CancellationToken token)
        {
            // A WebSocket sends one message at a time.
            await _sending.WaitAsync(token).ConfigureAwait(false);
            try
            {
                if (_socket.State != WebSocketState.Open) throw new TerminalException("it is closed");
                await _socket.SendAsync(frame, type, true, token).ConfigureAwait(false);
            }
            catch (Exception error) when (error is WebSocketException || error is IOException || error is ObjectDisposedException)
            {
                throw new TerminalException(error.Message, error);
            }
            finally
            {
                _sending.Release();
            }
        }

        private async Task<TerminalEvent?> ReceiveAsync()
        {
            try
            {
                while (true)
                {
                    var (type, bytes) = await MessageAsync().ConfigureAwait(false);
                    if (type == WebSocketMessageType.Close) return await GoodbyeAsync().ConfigureAwait(false);
                    var given = type == WebSocketMessageType.Text ? TextEvent(bytes) : BinaryEvent(bytes);
                    if (given != null) return given;
                }
            }
            catch (Exception error)
            {
                var wasOver = _isOver;
                _isOver = true;
                _socket.Abort();
                if (wasOver) return null;
                if (error is TerminalException) throw;
                throw new TerminalException($"it broke off: {error.Message}", error);
            }
        }

        private async Task<(WebSocketMessageType Type, byte[] Bytes)> MessageAsync()
        {
            var whole = new MemoryStream();
            while (true)
            {
                var part = await _socket.ReceiveAsync(_space.AsMemory(), CancellationToken.None).ConfigureAwait(false);
                whole.Write(_space, 0, part.Count);
                if (whole.Length > MessageBytesMax) throw new TerminalException($"a message is longer than {MessageBytesMax} bytes");
                if (part.EndOfMessage || part.MessageType == WebSocketMessageType.Close) return (part.MessageType, whole.ToArray());
            }
        }

        private async Task<TerminalEvent> GoodbyeAsync()
        {
            var code = (int)(_socket.CloseStatus ?? WebSocketCloseStatus.NormalClosure);
            var closed = new ClosedEvent(code, _socket.CloseStatusDescription ?? "");
            _isOver = true;
            await CloseAsync().ConfigureAwait(false);
            return closed;
        }

        private static TerminalEvent BinaryEvent(byte[] frame)
        {
            switch (frame.Length == 0 ? -1 : frame[0])
            {
                case KindStdout:
                    return new OutputEvent(frame.AsSpan(1).ToArray(), false);
                case KindStderr:
                    return new OutputEvent(frame.AsSpan(1).ToArray(), true);
                case KindReplay when frame.Length >= ReplayHeadBytes:
                    return new ReplayEvent(BinaryPrimitives.ReadInt64BigEndian(frame.AsSpan(1)), frame.AsSpan(ReplayHeadBytes).ToArray());
                default:
                    throw new TerminalException("a frame is of no kind that is known");
            }
        }

        private static TerminalEvent? TextEvent(byte[] text)
        {
            var message = JsonSerializer.Deserialize<PtyServerMessage>(text, Json.Options);
            switch (message.Type)
            {
                case "connected":
                    return new ConnectedEvent();
                case "error":
                    return new RefusedEvent(message.Code ?? "", message.Error ?? "");
                case "exit":
                    return new ExitEvent(message.ExitCode ?? -1, message.Signal);
                default:
                    return null;
            }
        }
    }
}
