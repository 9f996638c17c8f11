// Commands in a sandbox: to the end, as a stream, or in the background.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Net.Http;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>What is run: shell text, or a program with its arguments without a shell. Both convert to it by
    /// themselves.</summary>
    public readonly struct CommandLine
    {
        private CommandLine(string? text, IReadOnlyList<string>? arguments)
        {
            Text = text;
            Arguments = arguments;
        }

        /// <summary>Shell text.</summary>
        public string? Text { get; }

        /// <summary>A program with its arguments.</summary>
        public IReadOnlyList<string>? Arguments { get; }

        /// <summary>Shell text.</summary>
        /// <param name="text">The text.</param>
        public static implicit operator CommandLine(string text) => new CommandLine(text, null);

        /// <summary>A program with its arguments.</summary>
        /// <param name="arguments">The program, then its arguments.</param>
        public static implicit operator CommandLine(string[] arguments) => new CommandLine(null, arguments);

        /// <summary>A program with its arguments.</summary>
        /// <param name="arguments">The program, then its arguments.</param>
        public static implicit operator CommandLine(List<string> arguments) => new CommandLine(null, arguments);
    }

    /// <summary>How a command runs.</summary>
    public sealed class CommandOptions
    {
        /// <summary>Its working directory.</summary>
        public string? Cwd { get; set; }

        /// <summary>Its environment, over everything else.</summary>
        public IReadOnlyDictionary<string, string>? Env { get; set; }

        /// <summary>Kill it after this time.</summary>
        public TimeSpan? Timeout { get; set; }

        /// <summary>Run it as this user.</summary>
        public int? Uid { get; set; }

        /// <summary>Run it as this group; needs a user as well.</summary>
        public int? Gid { get; set; }

        /// <summary>Extension: text for its stdin, which then ends unless it is kept open.</summary>
        public string? Stdin { get; set; }

        /// <summary>Extension: keeps its stdin open for <see cref="Commands.WriteStdinAsync(string, string, bool, CancellationToken)"/>.</summary>
        public bool StdinOpen { get; set; }
    }

    /// <summary>Output of a command so far.</summary>
    public sealed class Logs
    {
        internal Logs(string text, long? cursor)
        {
            Text = text;
            Cursor = cursor;
        }

        /// <summary>The output from the cursor on.</summary>
        public string Text { get; }

        /// <summary>Where to read on.</summary>
        public long? Cursor { get; }
    }

    /// <summary>How a command is going.</summary>
    public sealed class CommandStatus
    {
        internal CommandStatus(CommandStatusResponse wire)
        {
            Id = wire.Id;
            Content = wire.Content ?? "";
            IsRunning = wire.Running;
            ExitCode = (int?)wire.ExitCode;
            Error = wire.Error;
            StartedAt = wire.StartedAt;
            FinishedAt = wire.FinishedAt;
        }

        /// <summary>The command's id.</summary>
        public string Id { get; }

        /// <summary>What was asked to run.</summary>
        public string Content { get; }

        /// <summary>Whether it still runs.</summary>
        public bool IsRunning { get; }

        /// <summary>How it ended; -1 for a signal, 255 when it did not start.</summary>
        public int? ExitCode { get; }

        /// <summary>Why it failed, where there is more to say than the code.</summary>
        public string? Error { get; }

        /// <summary>When it began.</summary>
        public DateTimeOffset StartedAt { get; }

        /// <summary>When it ended.</summary>
        public DateTimeOffset? FinishedAt { get; }
    }

    /// <summary>The commands of a sandbox.</summary>
    public sealed class Commands
    {
        /// <summary>Answers the byte offset to read logs from next.</summary>
        private const string LogsCursorHeader = "EXECD-COMMANDS-TAIL-CURSOR";

        private static readonly Regex VariableName = new Regex("^[A-Za-z0-9_]+$");

        private readonly Sandbox _sandbox;

        internal Commands(Sandbox sandbox)
        {
            _sandbox = sandbox;
        }

        /// <summary>Runs shell text, or a program with its arguments without a shell, to its end. What ends with another code
        /// than 0 is no error: look at <see cref="Output.ExitCode"/>. Cancelling stops waiting; the command goes on until it
        /// is interrupted or its time is over.</summary>
        /// <param name="command">What to run.</param>
        /// <param name="options">How.</param>
        /// <param name="onEvent">Called with each event as it comes.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async Task<Output> RunAsync(
            CommandLine command, CommandOptions? options = null, Action<ExecutionEvent>? onEvent = null, CancellationToken cancellationToken = default)
        {
            var execution = await StartAsync(command, options, false, cancellationToken).ConfigureAwait(false);
            return await WatchedAsync(execution, onEvent).ConfigureAwait(false);
        }

        /// <summary>Starts a command and answers its events as they come.</summary>
        /// <param name="command">What to run.</param>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Stops reading, also later; the command goes on.</param>
        public Task<Execution> StreamAsync(CommandLine command, CommandOptions? options = null, CancellationToken cancellationToken = default) =>
            StartAsync(command, options, false, cancellationToken);

        /// <summary>Starts a command in the background and answers its id.</summary>
        /// <param name="command">What to run.</param>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async Task<string> BackgroundAsync(CommandLine command, CommandOptions? options = null, CancellationToken cancellationToken = default)
        {
            var execution = await StartAsync(command, options, true, cancellationToken).ConfigureAwait(false);
            var output = await execution.OutputAsync(cancellationToken).ConfigureAwait(false);
            if (output.Error != null) throw new FailedException("the command", "not started", output.Error.Value);
            return output.Id ?? throw new StreamBrokenException("a background command", "it ended without the command's id");
        }

        /// <summary>How a command is going.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<CommandStatus> StatusAsync(string id, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var path = $"/command/status/{Encoded.Segment(id)}";
            return new CommandStatus(await exec.JsonAsync<CommandStatusResponse>("GET", path, null, cancellationToken).ConfigureAwait(false));
        }

        /// <summary>Extension: the commands that the daemon still knows.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<IReadOnlyList<CommandStatus>> ListAsync(CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var all = await exec.JsonAsync<List<CommandStatusResponse>>("GET", "/command", null, cancellationToken).ConfigureAwait(false);
            return all.Select(status => new CommandStatus(status)).ToArray();
        }

        /// <summary>Waits until a command has ended, also one that runs in the background, and answers how.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async Task<CommandStatus> WaitAsync(string id, CancellationToken cancellationToken = default)
        {
            await using (var execution = await FollowAsync(id, 0, cancellationToken).ConfigureAwait(false))
            {
                // Only its end is of interest; the events before are let pass.
                while (await execution.NextAsync().ConfigureAwait(false) != null)
                {
                }
            }
            return await StatusAsync(id, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Output of a command from a cursor on; nothing is from its beginning.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cursor">Where the last read ended.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<Logs> LogsAsync(string id, long? cursor = null, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Encoded.Query(("cursor", cursor)) };
            var answer = await exec.SendAsync("GET", $"/command/{Encoded.Segment(id)}/logs", call, cancellationToken).ConfigureAwait(false);
            var next = answer.Header(LogsCursorHeader);
            var bytes = await answer.WholeAsync(int.MaxValue, System.Threading.Timeout.InfiniteTimeSpan).ConfigureAwait(false);
            return new Logs(Encoding.UTF8.GetString(bytes), long.TryParse(next, NumberStyles.None, CultureInfo.InvariantCulture, out var at) ? at : (long?)null);
        }

        /// <summary>Interrupts a command, or what runs in a session.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task InterruptAsync(string id, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Encoded.Query(("id", id)) };
            await exec.DoneAsync("DELETE", "/command", call, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Extension: writes to the stdin of a command that was started with <see cref="CommandOptions.StdinOpen"/>.
        /// Answers how many bytes it took.</summary>
        /// <param name="id">Which.</param>
        /// <param name="input">The text.</param>
        /// <param name="close">Whether its input ends with this.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<long> WriteStdinAsync(string id, string input, bool close = false, CancellationToken cancellationToken = default) =>
            WriteStdinAsync(id, Encoding.UTF8.GetBytes(input), close, cancellationToken);

        /// <summary>Extension: the same with bytes.</summary>
        /// <param name="id">Which.</param>
        /// <param name="input">The bytes.</param>
        /// <param name="close">Whether its input ends with this.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<long> WriteStdinAsync(string id, byte[] input, bool close = false, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call
            {
                Query = Encoded.Query(("close", close)),
                Content = () => new ByteArrayContent(input),
                // A command that does not read holds its writer up for as long as it likes.
                Limit = System.Threading.Timeout.InfiniteTimeSpan,
            };
            var path = $"/command/{Encoded.Segment(id)}/stdin";
            return (await exec.JsonAsync<StdinResponse>("POST", path, call, cancellationToken).ConfigureAwait(false)).Written;
        }

        /// <summary>Extension: follows a command, also one that runs in the background, from the event after
        /// <paramref name="after"/> on; 0 is from its beginning.</summary>
        /// <param name="id">Which.</param>
        /// <param name="after">The number of the last event that is known.</param>
        /// <param name="cancellationToken">Stops reading, also later; the command goes on.</param>
        public async Task<Execution> FollowAsync(string id, long after = 0, CancellationToken cancellationToken = default)
        {
            var exec = await _sandbox.ExecAsync(cancellationToken).ConfigureAwait(false);
            var call = new Call { Query = Encoded.Query(("after", after)) };
            var answer = await exec.SendAsync("GET", $"/command/{Encoded.Segment(id)}/events", call, cancellationToken).ConfigureAwait(false);
            return new Execution(answer, ExecutionKind.Command, exec, cancellationToken, id, after);
        }

        /// <summary>Makes variables part of the environment of every command from now on, by adding them to the file that the
        /// daemon reads.</summary>
        /// <param name="variables">By name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task SetEnvAsync(IReadOnlyDictionary<string, string> variables, CancellationToken cancellationToken = default)
        {
            var lines = new StringBuilder();
            foreach (var (name, value) in variables)
            {
                if (!VariableName.IsMatch(name) || value.Contains('\n'))
                    throw new InvalidArgumentException($"\"{name}\" cannot be kept: a name has letters, digits and _, and a value is one line");
                lines.Append(name).Append('=').Append(value).Append('\n');
            }
            const string File = "${EXECD_ENVS:-/opt/opensandbox/.env}";
            var text = lines.ToString().Replace("'", "'\\''", StringComparison.Ordinal);
            var command = $"mkdir -p \"$(dirname \"{File}\")\" && printf %s '{text}' >> \"{File}\"";
            var output = await RunAsync(command, cancellationToken: cancellationToken).ConfigureAwait(false);
            if (!output.IsSuccess) throw new FailedException($"sandbox {_sandbox.Id}", "not able to keep variables", output.Stderr);
        }

        /// <summary>Reads an execution to its end and tells of its events on the way.</summary>
        internal static async Task<Output> WatchedAsync(Execution execution, Action<ExecutionEvent>? onEvent)
        {
            var output = new Output();
            await foreach (var given in execution.WithCancellation(default).ConfigureAwait(false))
            {
                output.Add(given);
                onEvent?.Invoke(given);
            }
            return output;
        }

        /// <summary>A wait as the protocol writes it; at least one, because 0 is forever.</summary>
        internal static long Milliseconds(TimeSpan wait)
        {
            if (wait < TimeSpan.Zero) throw new InvalidArgumentException($"{wait} is not a time to wait");
            return Math.Max(1, (long)Math.Round(wait.TotalMilliseconds));
        }

        private async Task<Execution> StartAsync(CommandLine command, CommandOptions? options, bool isBackground, CancellationToken token)
        {
            options ??= new CommandOptions();
            if (command.Text == null && command.Arguments == null) throw new InvalidArgumentException("a command is shell text or a program; name one");
            var request = new RunCommandRequest
            {
                Command = command.Text,
                Argv = command.Arguments?.ToList(),
                Background = isBackground,
                Cwd = options.Cwd,
                Envs = options.Env?.ToDictionary(pair => pair.Key, pair => pair.Value),
                Timeout = options.Timeout is TimeSpan timeout ? Milliseconds(timeout) : (long?)null,
                Uid = options.Uid,
                Gid = options.Gid,
                Stdin = options.Stdin,
                StdinOpen = options.StdinOpen ? true : (bool?)null,
            };
            var exec = await _sandbox.ExecAsync(token).ConfigureAwait(false);
            var answer = await exec.SendAsync("POST", "/command", new Call { Json = request }, token).ConfigureAwait(false);
            return new Execution(answer, ExecutionKind.Command, exec, token);
        }
    }
}
