// Terminals: a shell with a screen, over a WebSocket that can be left and come back to.

using System;
using System.Collections.Generic;
using System.Net.WebSockets;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>How large a terminal is, in characters.</summary>
    public readonly struct TerminalSize
    {
        /// <summary>A size.</summary>
        /// <param name="columns">The width.</param>
        /// <param name="rows">The height.</param>
        public TerminalSize(int columns, int rows)
        {
            Columns = columns;
            Rows = rows;
        }

        /// <summary>The width.</summary>
        public int Columns { get; }

        /// <summary>The height.</summary>
        public int Rows { get; }
    }

    /// <summary>How to connect to a terminal.</summary>
    public sealed class TerminalOptions
    {
        /// <summary>Pipes instead of a terminal, with stderr apart.</summary>
        public bool Pipes { get; set; }

        /// <summary>Replay output from this byte on.</summary>
        public long? Since { get; set; }

        /// <summary>Take it from the client that holds it.</summary>
        public bool TakeOver { get; set; }

        /// <summary>The size that it gets before its shell starts or anything is replayed. Pipes have no size.</summary>
        public TerminalSize? Size { get; set; }
    }

    /// <summary>The terminals of a sandbox.</summary>
    public sealed class Terminals
    {
        private readonly Sandbox _sandbox;

        internal Terminals(Sandbox sandbox)
        {
            _sandbox = sandbox;
        }

        /// <summary>Makes a terminal: an interactive shell, or this shell text.</summary>
        /// <param name="command">Shell text; nothing is an interactive shell.</param>
        /// <param name="cwd">Where.</param>
        /// <param name="size">From the start: a shell that is told its size only while it starts may miss it.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<Terminal> CreateAsync(
            string? command = null, string? cwd = null, TerminalSize? size = null, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var request = new CreatePtyRequest { Command = command, Cwd = cwd, Cols = size?.Columns, Rows = size?.Rows };
            var call = new Call { Json = request };
            return Get((await exec.JsonAsync<CreatePtyResponse>("POST", "/pty", call, cancellationToken).ConfigureAwait(false)).SessionId);
        }

        /// <summary>A terminal by its id, without any request.</summary>
        /// <param name="id">Which.</param>
        public Terminal Get(string id) => new Terminal(_sandbox, id);
    }

    /// <summary>A terminal. It ends with <see cref="DeleteAsync"/>, or when its <c>await using</c> block is left.</summary>
    public sealed class Terminal : IAsyncDisposable
    {
        private readonly Sandbox _sandbox;

        internal Terminal(Sandbox sandbox, string id)
        {
            _sandbox = sandbox;
            Id = id;
        }

        /// <summary>Its id.</summary>
        public string Id { get; }

        private string Place => $"/pty/{Encoded.Segment(Id)}";

        /// <summary>How it stands.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<PtyStatus> StatusAsync(CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            return await exec.JsonAsync<PtyStatus>("GET", Place, null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Ends it.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task DeleteAsync(CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            await exec.DoneAsync("DELETE", Place, null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Ends it.</summary>
        public async ValueTask DisposeAsync() => await DeleteAsync().ConfigureAwait(false);

        /// <summary>Connects to it; the first connection starts its shell.</summary>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Ends connecting early.</param>
        public async Task<TerminalConnection> ConnectAsync(TerminalOptions? options = null, CancellationToken cancellationToken = default)
        {
            options ??= new TerminalOptions();
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call
            {
                Query = Encoded.Query(
                    ("pty", options.Pipes ? "0" : null), ("since", options.Since), ("takeover", options.TakeOver ? "1" : null),
                    ("cols", options.Size?.Columns), ("rows", options.Size?.Rows)),
            };
            try
            {
                return new TerminalConnection(await OpenAsync(exec, call, cancellationToken).ConfigureAwait(false));
            }
            catch (WebSocketException refused)
            {
                await ExplainAsync(exec, call, cancellationToken).ConfigureAwait(false);
                throw new TerminalException(
                    $"what answered is not a WebSocket: {refused.Message}", refused, "check for a proxy in between that does not pass WebSockets on");
            }
        }

        private async Task<WebSocket> OpenAsync(Target exec, Call call, CancellationToken token)
        {
            token.ThrowIfCancellationRequested();
            var socket = new ClientWebSocket();
            socket.Options.SetRequestHeader("User-Agent", exec.Config.UserAgent);
            foreach (var headers in new[] { exec.Config.Headers, exec.Headers })
                foreach (var (name, value) in headers) socket.Options.SetRequestHeader(name, value);
            // http becomes ws, https wss.
            var address = new Uri($"ws{exec.Place.Substring("http".Length)}{Place}/ws?{call.Query}");
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(token);
            Deadline.Start(limit, exec.Config.RequestTimeout);
            try
            {
                await socket.ConnectAsync(address, limit.Token).ConfigureAwait(false);
                return socket;
            }
            catch (Exception error)
            {
                socket.Dispose();
                token.ThrowIfCancellationRequested();
                if (limit.IsCancellationRequested) throw new TerminalException($"no answer after {exec.Config.RequestTimeout.TotalSeconds} s", error);
                throw;
            }
        }

        /// <summary>A WebSocket does not say why it was refused; the same request without the upgrade does.</summary>
        private async Task ExplainAsync(Target exec, Call call, CancellationToken token)
        {
            try
            {
                await exec.DoneAsync("GET", $"{Place}/ws", call, token).ConfigureAwait(false);
            }
            catch (ApiException error) when (error.Status == 400)
            {
                // That it is no upgrade.
            }
        }
    }
}
