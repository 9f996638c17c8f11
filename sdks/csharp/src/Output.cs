// Everything an execution gave, when it is over.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Text;

namespace OpenSandbox
{
    /// <summary>How an execution ended.</summary>
    public enum EndingKind
    {
        /// <summary>With a code.</summary>
        Code,

        /// <summary>By a signal.</summary>
        Signal,

        /// <summary>With an exception, or not at all.</summary>
        Failed,
    }

    /// <summary>How an execution ended, with what belongs to that.</summary>
    public readonly struct Ending
    {
        internal Ending(EndingKind kind, int? code, string? signal)
        {
            Kind = kind;
            Code = code;
            Signal = signal;
        }

        /// <summary>How.</summary>
        public EndingKind Kind { get; }

        /// <summary>The code it ended with.</summary>
        public int? Code { get; }

        /// <summary>The signal it ended by: <c>killed</c>, <c>terminated</c>.</summary>
        public string? Signal { get; }
    }

    /// <summary>Everything an execution gave.</summary>
    public sealed class Output
    {
        private const string SignalMark = "signal: ";

        private readonly StringBuilder _stdout = new StringBuilder();
        private readonly StringBuilder _stderr = new StringBuilder();
        private readonly List<RichResult> _results = new List<RichResult>();
        private string? _stdoutText;
        private string? _stderrText;
        private bool _isComplete;

        /// <summary>What to ask by.</summary>
        public string? Id { get; private set; }

        /// <summary>Values and displays of code.</summary>
        public IReadOnlyList<RichResult> Results => _results;

        /// <summary>How it failed; nothing if it did not.</summary>
        public ExecutionFailure? Error { get; private set; }

        /// <summary>How many cells the context has run.</summary>
        public long? Count { get; private set; }

        /// <summary>How long it took.</summary>
        public TimeSpan? Took { get; private set; }

        /// <summary>Its output.</summary>
        public string Stdout => _stdoutText ??= _stdout.ToString();

        /// <summary>Its error output.</summary>
        public string Stderr => _stderrText ??= _stderr.ToString();

        /// <summary>The exit code: 0 when it completed, -1 for a signal, nothing when there is none because it did not start
        /// or was code that failed.</summary>
        public int? ExitCode
        {
            get
            {
                if (Error == null) return _isComplete ? 0 : (int?)null;
                return int.TryParse(Error.Value, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var code) ? code : (int?)null;
            }
        }

        /// <summary>How it ended.</summary>
        public Ending Ending
        {
            get
            {
                var first = Error?.Traceback.FirstOrDefault();
                if (first != null && first.StartsWith(SignalMark, StringComparison.Ordinal))
                    return new Ending(EndingKind.Signal, null, first.Substring(SignalMark.Length));
                return ExitCode is int code ? new Ending(EndingKind.Code, code, null) : new Ending(EndingKind.Failed, null, null);
            }
        }

        /// <summary>Whether it succeeded.</summary>
        public bool IsSuccess => Error == null && _isComplete;

        /// <summary>The text of the last value of code.</summary>
        public string? Text => _results.LastOrDefault(result => result.Text != null)?.Text;

        /// <summary>Takes an event in.</summary>
        /// <param name="given">The event.</param>
        public void Add(ExecutionEvent given)
        {
            switch (given)
            {
                case StdoutEvent stdout:
                    _stdout.Append(stdout.Text);
                    _stdoutText = null;
                    break;
                case StderrEvent stderr:
                    _stderr.Append(stderr.Text);
                    _stderrText = null;
                    break;
                case StartedEvent started:
                    Id = started.Id;
                    break;
                case ResultEvent result:
                    _results.Add(result.Result);
                    break;
                case CountEvent count:
                    Count = count.Count;
                    break;
                case ErrorEvent error:
                    Error = error.Failure;
                    break;
                case CompletedEvent completed:
                    Took = completed.Took;
                    _isComplete = true;
                    break;
            }
        }
    }
}
