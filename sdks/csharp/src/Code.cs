// Code that remembers: contexts, and cells that run in them.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>How code runs.</summary>
    public sealed class CodeOptions
    {
        /// <summary>In the default context of this language.</summary>
        public string? Language { get; set; }

        /// <summary>In the context with this id.</summary>
        public string? Context { get; set; }

        /// <summary>Extension: interrupt it after this time.</summary>
        public TimeSpan? Timeout { get; set; }
    }

    /// <summary>How a context is made.</summary>
    public sealed class ContextOptions
    {
        /// <summary>Its working directory.</summary>
        public string? Cwd { get; set; }

        /// <summary>Extension: the environment of its interpreter, over everything else.</summary>
        public IReadOnlyDictionary<string, string>? Env { get; set; }
    }

    /// <summary>The code of a sandbox.</summary>
    public sealed class Code
    {
        private readonly Sandbox _sandbox;

        internal Code(Sandbox sandbox)
        {
            _sandbox = sandbox;
        }

        /// <summary>Runs code in the default context of its language, or in one that is chosen. An exception of the code is no
        /// error: look at <see cref="Output.Error"/>.</summary>
        /// <param name="code">The code.</param>
        /// <param name="options">How.</param>
        /// <param name="onEvent">Called with each event as it comes.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async Task<Output> RunAsync(
            string code, CodeOptions? options = null, Action<ExecutionEvent>? onEvent = null, CancellationToken cancellationToken = default)
        {
            var execution = await StreamAsync(code, options, cancellationToken).ConfigureAwait(false);
            return await Commands.WatchedAsync(execution, onEvent).ConfigureAwait(false);
        }

        /// <summary>Starts code and answers its events as they come.</summary>
        /// <param name="code">The code.</param>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Stops reading, also later.</param>
        public async Task<Execution> StreamAsync(string code, CodeOptions? options = null, CancellationToken cancellationToken = default)
        {
            options ??= new CodeOptions();
            var isPlaced = options.Language != null || options.Context != null;
            var request = new RunCodeRequest
            {
                Code = code,
                Context = isPlaced ? new ContextRef { Language = options.Language, Id = options.Context } : null,
                Timeout = options.Timeout is TimeSpan timeout ? Commands.Milliseconds(timeout) : (long?)null,
            };
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var answer = await exec.SendAsync("POST", "/code", new Call { Json = request }, cancellationToken).ConfigureAwait(false);
            return new Execution(answer, ExecutionKind.Context, exec, cancellationToken);
        }

        /// <summary>Makes a context of a language.</summary>
        /// <param name="language"><c>python</c>, <c>bash</c>, <c>javascript</c> and so on.</param>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<CodeContext> CreateContextAsync(
            string language, ContextOptions? options = null, CancellationToken cancellationToken = default)
        {
            var request = new CodeContextRequest
            {
                Language = language,
                Cwd = options?.Cwd,
                Envs = options?.Env?.ToDictionary(pair => pair.Key, pair => pair.Value),
            };
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            return await exec.JsonAsync<CodeContext>("POST", "/code/context", new Call { Json = request }, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>A context.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<CodeContext> GetContextAsync(string id, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            return await exec.JsonAsync<CodeContext>("GET", $"/code/contexts/{Encoded.Segment(id)}", null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>The contexts.</summary>
        /// <param name="language">Only those of this language.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<IReadOnlyList<CodeContext>> ListContextsAsync(string? language = null, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Encoded.Query(("language", language)) };
            return await exec.JsonAsync<List<CodeContext>>("GET", "/code/contexts", call, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Ends a context.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task DeleteContextAsync(string id, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            await exec.DoneAsync("DELETE", $"/code/contexts/{Encoded.Segment(id)}", null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Ends the contexts of a language.</summary>
        /// <param name="language">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task DeleteContextsAsync(string language, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Encoded.Query(("language", language)) };
            await exec.DoneAsync("DELETE", "/code/contexts", call, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Interrupts what runs in a context.</summary>
        /// <param name="id">The id of its <see cref="StartedEvent"/>.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task InterruptAsync(string id, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Encoded.Query(("id", id)) };
            await exec.DoneAsync("DELETE", "/code", call, cancellationToken).ConfigureAwait(false);
        }
    }
}
