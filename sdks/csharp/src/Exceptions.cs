// Everything that can go wrong, as classes that say what happened and what to do next.
//
// Exit codes of commands and exceptions of code are not errors of the SDK: they are in the Output of the
// execution. A call that its caller cancels throws OperationCanceledException, as everywhere in .NET.

using System;
using System.Collections.Generic;
using System.Linq;

namespace OpenSandbox
{
    /// <summary>The class of an error, for programs that switch over it.</summary>
    public enum ErrorKind
    {
        /// <summary>The server or the daemon in the sandbox answered with an error.</summary>
        Api,

        /// <summary>No answer came.</summary>
        Connection,

        /// <summary>No answer came in time.</summary>
        Timeout,

        /// <summary>An answer is not what the protocol says.</summary>
        Unreadable,

        /// <summary>A stream of events ended before its last event.</summary>
        StreamBroken,

        /// <summary>A sandbox was not ready in time.</summary>
        NotReady,

        /// <summary>Something got into a state from which what was waited for never comes.</summary>
        Failed,

        /// <summary>The connection's settings are not usable.</summary>
        Config,

        /// <summary>A call makes no sense, and nothing was sent.</summary>
        InvalidArgument,

        /// <summary>A terminal's connection failed.</summary>
        Terminal,

        /// <summary>The pool has no idle sandbox.</summary>
        PoolEmpty,

        /// <summary>The pool was shut down.</summary>
        PoolClosed,
    }

    /// <summary>What every error of this package is.</summary>
    public abstract class OpenSandboxException : Exception
    {
        private protected OpenSandboxException(ErrorKind kind, string message, string code, string remedy, Exception? cause = null)
            : base(message, cause)
        {
            Kind = kind;
            Code = code;
            Remedy = remedy;
            RequestId = (cause as OpenSandboxException)?.RequestId;
        }

        /// <summary>The class of the error.</summary>
        public ErrorKind Kind { get; }

        /// <summary>The error's code: the server's own for an <see cref="ApiException"/>, else one of this package.</summary>
        public string Code { get; }

        /// <summary>What to do next.</summary>
        public string Remedy { get; }

        /// <summary>The id under which the server logged the request.</summary>
        public string? RequestId { get; private protected set; }

        /// <summary>The HTTP status, if an answer came: of this error, or of the one behind it.</summary>
        public virtual int? Status => (InnerException as OpenSandboxException)?.Status;

        /// <summary>Whether what was asked for does not exist.</summary>
        public bool IsNotFound => Status == 404;

        /// <summary>Whether the key is missing, wrong, or may not do this.</summary>
        public bool IsUnauthorized => Status == 401 || Status == 403;

        /// <summary>Whether the same call may succeed later. Says nothing about whether repeating it is safe: the SDK
        /// repeats by itself what is.</summary>
        public virtual bool IsRetryable => Status is int status && IsPassing(status);

        /// <summary>Statuses that say "not now".</summary>
        internal static bool IsPassing(int status) => status == 429 || status == 502 || status == 503;
    }

    /// <summary>The server or the daemon in the sandbox answered with an error.</summary>
    public sealed class ApiException : OpenSandboxException
    {
        internal ApiException(string what, int status, string code, string message)
            : this(what, status, code, message, null, null, Array.Empty<string>())
        {
        }

        internal ApiException(
            string what, int status, string code, string message, string? requestId, TimeSpan? retryAfter, IReadOnlyList<string> details)
            : base(ErrorKind.Api, Sentence(what, status, code, message, requestId), code, RemedyOf(status))
        {
            What = what;
            Status = status;
            Reason = message;
            RequestId = requestId;
            RetryAfter = retryAfter;
            Details = details;
        }

        /// <summary>The HTTP status.</summary>
        public override int? Status { get; }

        /// <summary>The request: method and path.</summary>
        public string What { get; }

        /// <summary>What happened, as the server says it, without the request and its id.</summary>
        public string Reason { get; }

        /// <summary>When to try again, if the server said so.</summary>
        public TimeSpan? RetryAfter { get; }

        /// <summary>Every problem of a request that failed validation.</summary>
        public IReadOnlyList<string> Details { get; }

        private static string Sentence(string what, int status, string code, string message, string? requestId)
        {
            var known = new[] { $"{what}: {status}", code, requestId == null ? "" : $"request {requestId}" };
            return $"{message} ({string.Join(", ", known.Where(part => part != ""))})";
        }

        private static string RemedyOf(int status)
        {
            switch (status)
            {
                case 400:
                case 422:
                    return "correct the request as the message says";
                case 401:
                case 403:
                    return "check the API key: OPEN_SANDBOX_API_KEY, or ApiKey of the connection";
                case 404:
                    return "check the id or path; a sandbox is gone when its lifetime is over";
                case 409:
                    return "look at the state of what this is about, which does not allow it now";
                case 410:
                    return "begin again: what was asked for is no longer kept";
                case 429:
                case 502:
                case 503:
                case 504:
                    return "try again later";
                case 501:
                    return "use another server or backend: this one does not do that";
                default:
                    return "look for the request id in the server's log";
            }
        }
    }

    /// <summary>No answer came: the other side cannot be reached, or the connection broke.</summary>
    public sealed class ConnectionException : OpenSandboxException
    {
        private const string Check = "check the domain and that the server runs";

        internal ConnectionException(string url, bool isUnsent, Exception? cause)
            : base(ErrorKind.Connection, $"{url} cannot be reached{ReasonOf(cause)}; {Check}", "CONNECTION_FAILED", Check, cause)
        {
            Url = url;
            IsUnsent = isUnsent;
        }

        /// <summary>Where the request went, without its query.</summary>
        public string Url { get; }

        /// <summary>Whether the request certainly did not arrive, so that repeating it is safe.</summary>
        public bool IsUnsent { get; }

        /// <inheritdoc/>
        public override bool IsRetryable => true;

        /// <summary>The innermost message, which names the cause where the outer ones say only that it failed.</summary>
        private static string ReasonOf(Exception? cause) => cause == null ? "" : $": {cause.GetBaseException().Message}";
    }

    /// <summary>No answer came in time.</summary>
    public sealed class TimedOutException : OpenSandboxException
    {
        internal TimedOutException(string what, TimeSpan after)
            : base(
                ErrorKind.Timeout, $"{what} took longer than {after.TotalSeconds} s", "TIMEOUT",
                "allow more time, or look at what keeps the server or the sandbox busy")
        {
            What = what;
            After = after;
        }

        /// <summary>What was waited for.</summary>
        public string What { get; }

        /// <summary>For how long.</summary>
        public TimeSpan After { get; }

        /// <inheritdoc/>
        public override bool IsRetryable => true;
    }

    /// <summary>An answer is not what the protocol says.</summary>
    public sealed class UnreadableException : OpenSandboxException
    {
        internal UnreadableException(string what, string message, string? remedy = null, Exception? cause = null)
            : base(
                ErrorKind.Unreadable,
                $"the answer of {what} is not readable: {message}{(remedy == null ? "; is this an OpenSandbox server?" : "")}",
                "UNREADABLE", remedy ?? "check that the domain leads to an OpenSandbox server", cause)
        {
        }
    }

    /// <summary>A stream of events ended before its last event and could not be taken up again.</summary>
    public sealed class StreamBrokenException : OpenSandboxException
    {
        internal StreamBrokenException(string what, string message, Exception? cause = null)
            : base(
                ErrorKind.StreamBroken, $"the stream of {what} broke off: {message}", "STREAM_BROKEN",
                "ask for the status of the command; run in the background what must outlive a connection", cause)
        {
            What = what;
        }

        /// <summary>The command, session or context.</summary>
        public string What { get; }
    }

    /// <summary>A sandbox was not ready in time.</summary>
    public sealed class NotReadyException : OpenSandboxException
    {
        internal NotReadyException(string sandboxId, TimeSpan after, Exception? cause)
            : base(
                ErrorKind.NotReady, $"sandbox {sandboxId} was not ready after {after.TotalSeconds} s", "NOT_READY",
                "look at its diagnostics, or wait longer with ReadyTimeout", cause)
        {
            SandboxId = sandboxId;
        }

        /// <summary>The sandbox.</summary>
        public string SandboxId { get; }
    }

    /// <summary>A sandbox or snapshot got into a state from which what was waited for never comes.</summary>
    public sealed class FailedException : OpenSandboxException
    {
        internal FailedException(string subject, string state, string? message)
            : base(
                ErrorKind.Failed, $"{subject} is {state}{(string.IsNullOrEmpty(message) ? "" : $": {message}")}", "FAILED",
                state == "Paused" || state == "Pausing" ? "resume it first" : "look at its diagnostics and make another")
        {
            Subject = subject;
            State = state;
        }

        /// <summary>The sandbox, snapshot or command.</summary>
        public string Subject { get; }

        /// <summary>Its state.</summary>
        public string State { get; }
    }

    /// <summary>The connection's settings are not usable.</summary>
    public sealed class ConfigException : OpenSandboxException
    {
        internal ConfigException(string origin, string message, Exception? cause = null)
            : base(ErrorKind.Config, $"{origin}: {message}", "CONFIG", $"correct {origin}", cause)
        {
            Origin = origin;
        }

        /// <summary>Where the setting stands: a variable, a file, a property.</summary>
        public string Origin { get; }
    }

    /// <summary>A call makes no sense, and nothing was sent.</summary>
    public sealed class InvalidArgumentException : OpenSandboxException
    {
        internal InvalidArgumentException(string message)
            : base(ErrorKind.InvalidArgument, message, "INVALID_ARGUMENT", "correct the argument")
        {
        }
    }

    /// <summary>A terminal's connection failed.</summary>
    public sealed class TerminalException : OpenSandboxException
    {
        internal TerminalException(string message, Exception? cause = null, string remedy = "connect again; Since replays what was missed")
            : base(ErrorKind.Terminal, $"the terminal's connection failed: {message}", "TERMINAL", remedy, cause)
        {
        }
    }

    /// <summary>The pool has no idle sandbox and its policy is not to make one, or making them failed.</summary>
    public sealed class PoolEmptyException : OpenSandboxException
    {
        internal PoolEmptyException(Exception? cause)
            : base(
                ErrorKind.PoolEmpty, "the pool has no idle sandbox", "POOL_EMPTY",
                "wait, make it larger, or let it create on demand", cause)
        {
        }

        /// <inheritdoc/>
        public override bool IsRetryable => true;
    }

    /// <summary>The pool was shut down.</summary>
    public sealed class PoolClosedException : OpenSandboxException
    {
        internal PoolClosedException()
            : base(ErrorKind.PoolClosed, "the pool is shut down", "POOL_CLOSED", "start another")
        {
        }
    }
}
