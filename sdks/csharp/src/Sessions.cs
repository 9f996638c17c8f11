// Live shells that keep their variables, functions and directory between runs.

using System;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>How shell text runs in a session.</summary>
    public sealed class SessionRunOptions
    {
        /// <summary>Where to run; the session goes on from there.</summary>
        public string? Cwd { get; set; }

        /// <summary>End this run, not the session, after this time.</summary>
        public TimeSpan? Timeout { get; set; }
    }

    /// <summary>The sessions of a sandbox.</summary>
    public sealed class Sessions
    {
        private readonly Sandbox _sandbox;

        internal Sessions(Sandbox sandbox)
        {
            _sandbox = sandbox;
        }

        /// <summary>Starts a shell.</summary>
        /// <param name="cwd">Where.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<Session> CreateAsync(string? cwd = null, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Json = new CreateSessionRequest { Cwd = cwd } };
            var made = await exec.JsonAsync<CreateSessionResponse>("POST", "/session", call, cancellationToken).ConfigureAwait(false);
            return Get(made.SessionId);
        }

        /// <summary>A session by its id, without any request.</summary>
        /// <param name="id">Which.</param>
        public Session Get(string id) => new Session(_sandbox, id);
    }

    /// <summary>A live shell. It ends with <see cref="DeleteAsync"/>, or when its <c>await using</c> block is left.</summary>
    public sealed class Session : IAsyncDisposable
    {
        private readonly Sandbox _sandbox;

        internal Session(Sandbox sandbox, string id)
        {
            _sandbox = sandbox;
            Id = id;
        }

        /// <summary>Its id.</summary>
        public string Id { get; }

        /// <summary>Runs shell text in it to the end.</summary>
        /// <param name="command">The text.</param>
        /// <param name="options">How.</param>
        /// <param name="onEvent">Called with each event as it comes.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async Task<Output> RunAsync(
            string command, SessionRunOptions? options = null, Action<ExecutionEvent>? onEvent = null, CancellationToken cancellationToken = default)
        {
            var execution = await StreamAsync(command, options, cancellationToken).ConfigureAwait(false);
            return await Commands.WatchedAsync(execution, onEvent).ConfigureAwait(false);
        }

        /// <summary>Runs shell text in it and answers its events as they come.</summary>
        /// <param name="command">The text.</param>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Stops reading, also later.</param>
        public async Task<Execution> StreamAsync(
            string command, SessionRunOptions? options = null, CancellationToken cancellationToken = default)
        {
            var request = new RunInSessionRequest
            {
                Command = command,
                Cwd = options?.Cwd,
                Timeout = options?.Timeout is TimeSpan timeout ? Commands.Milliseconds(timeout) : (long?)null,
            };
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var path = $"/session/{Encoded.Segment(Id)}/run";
            var answer = await exec.SendAsync("POST", path, new Call { Json = request }, cancellationToken).ConfigureAwait(false);
            return new Execution(answer, ExecutionKind.Session, exec, cancellationToken);
        }

        /// <summary>Interrupts what runs in it.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task InterruptAsync(CancellationToken cancellationToken = default) => _sandbox.Commands.InterruptAsync(Id, cancellationToken);

        /// <summary>Ends it.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task DeleteAsync(CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            await exec.DoneAsync("DELETE", $"/session/{Encoded.Segment(Id)}", null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Ends it.</summary>
        public async ValueTask DisposeAsync() => await DeleteAsync().ConfigureAwait(false);
    }
}
