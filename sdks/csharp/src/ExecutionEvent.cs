// One event of an execution, and how it is read.

using System;
using System.Collections.Generic;
using System.Text;
using System.Text.Json;

namespace OpenSandbox
{
    /// <summary>One event of an execution: one of the classes below.</summary>
    public abstract class ExecutionEvent
    {
        private protected ExecutionEvent()
        {
        }
    }

    /// <summary>It has begun.</summary>
    public sealed class StartedEvent : ExecutionEvent
    {
        internal StartedEvent(string id)
        {
            Id = id;
        }

        /// <summary>What to ask by: a command's id, the session's, the context's.</summary>
        public string Id { get; }
    }

    /// <summary>Output.</summary>
    public sealed class StdoutEvent : ExecutionEvent
    {
        internal StdoutEvent(string text)
        {
            Text = text;
        }

        /// <summary>The text, with the line ends it was written with.</summary>
        public string Text { get; }
    }

    /// <summary>Error output.</summary>
    public sealed class StderrEvent : ExecutionEvent
    {
        internal StderrEvent(string text)
        {
            Text = text;
        }

        /// <summary>The text, with the line ends it was written with.</summary>
        public string Text { get; }
    }

    /// <summary>A value or a display of code.</summary>
    public sealed class ResultEvent : ExecutionEvent
    {
        internal ResultEvent(RichResult result)
        {
            Result = result;
        }

        /// <summary>The value.</summary>
        public RichResult Result { get; }
    }

    /// <summary>How many cells the context has run.</summary>
    public sealed class CountEvent : ExecutionEvent
    {
        internal CountEvent(long count)
        {
            Count = count;
        }

        /// <summary>So many.</summary>
        public long Count { get; }
    }

    /// <summary>It failed.</summary>
    public sealed class ErrorEvent : ExecutionEvent
    {
        internal ErrorEvent(ExecutionFailure failure)
        {
            Failure = failure;
        }

        /// <summary>How.</summary>
        public ExecutionFailure Failure { get; }
    }

    /// <summary>It is over.</summary>
    public sealed class CompletedEvent : ExecutionEvent
    {
        internal CompletedEvent(TimeSpan? took)
        {
            Took = took;
        }

        /// <summary>How long it took, if the daemon says so.</summary>
        public TimeSpan? Took { get; }
    }

    /// <summary>How an execution failed.</summary>
    public sealed class ExecutionFailure
    {
        internal ExecutionFailure(string name, string value, IReadOnlyList<string> traceback)
        {
            Name = name;
            Value = value;
            Traceback = traceback;
        }

        /// <summary><c>CommandExecError</c>, <c>NameError</c>.</summary>
        public string Name { get; }

        /// <summary>The exit code of a command, the message of an exception.</summary>
        public string Value { get; }

        /// <summary>Where it happened, one entry per line.</summary>
        public IReadOnlyList<string> Traceback { get; }
    }

    /// <summary>An event as it came. Output comes some hundred thousand a second, so that what it has is read without a
    /// serializer; the rest is left to one.</summary>
    internal struct WireEvent
    {
        internal enum Types
        {
            Missing,
            Unknown,
            Init,
            Stdout,
            Stderr,
            Result,
            Count,
            Error,
            Complete,
        }

        internal Types Type;
        internal long? Seq;
        internal string? Text;
        internal long? ExecutionCount;
        internal long? ExecutionTime;
        internal Dictionary<string, JsonElement>? Results;
        internal Wire.ExecutionError? Failure;

        /// <summary>What a daemon says that breaks the stream: an error envelope.</summary>
        internal string? Code;
        internal string? Message;

        private static readonly byte[][] Names =
        {
            Utf8("type"), Utf8("text"), Utf8("seq"), Utf8("execution_count"), Utf8("execution_time"),
            Utf8("results"), Utf8("error"), Utf8("code"), Utf8("message"),
        };

        private static readonly (byte[] Name, Types Type)[] TypeNames =
        {
            (Utf8("stdout"), Types.Stdout), (Utf8("stderr"), Types.Stderr), (Utf8("init"), Types.Init),
            (Utf8("result"), Types.Result), (Utf8("execution_count"), Types.Count), (Utf8("error"), Types.Error),
            (Utf8("execution_complete"), Types.Complete),
        };

        /// <summary>Reads one; what is no JSON object is a JsonException.</summary>
        internal static WireEvent Read(ReadOnlySpan<byte> json)
        {
            var read = default(WireEvent);
            var reader = new Utf8JsonReader(json);
            reader.Read();
            if (reader.TokenType != JsonTokenType.StartObject) throw new JsonException("it is not an object");
            while (reader.Read() && reader.TokenType == JsonTokenType.PropertyName)
            {
                var which = NameOf(ref reader);
                reader.Read();
                if (which < 0) reader.Skip();
                else if (reader.TokenType != JsonTokenType.Null) read.Take(which, ref reader);
            }
            // What is after the object is no JSON.
            reader.Read();
            return read;
        }

        private static byte[] Utf8(string text) => Encoding.UTF8.GetBytes(text);

        private static int NameOf(ref Utf8JsonReader reader)
        {
            for (var at = 0; at < Names.Length; at++) if (reader.ValueTextEquals(Names[at])) return at;
            return -1;
        }

        private static Types TypeOf(ref Utf8JsonReader reader)
        {
            foreach (var (name, type) in TypeNames) if (reader.ValueTextEquals(name)) return type;
            return Types.Unknown;
        }

        private void Take(int which, ref Utf8JsonReader reader)
        {
            switch (which)
            {
                case 0:
                    Type = TypeOf(ref reader);
                    break;
                case 1:
                    Text = reader.GetString();
                    break;
                case 2:
                    Seq = reader.GetInt64();
                    break;
                case 3:
                    ExecutionCount = reader.GetInt64();
                    break;
                case 4:
                    ExecutionTime = reader.GetInt64();
                    break;
                case 5:
                    Results = JsonSerializer.Deserialize<Dictionary<string, JsonElement>>(ref reader, Json.Options);
                    break;
                case 6:
                    Failure = JsonSerializer.Deserialize<Wire.ExecutionError>(ref reader, Json.Options);
                    break;
                case 7:
                    Code = reader.TokenType == JsonTokenType.String ? reader.GetString() : Skipped(ref reader);
                    break;
                default:
                    Message = reader.TokenType == JsonTokenType.String ? reader.GetString() : Skipped(ref reader);
                    break;
            }
        }

        private static string? Skipped(ref Utf8JsonReader reader)
        {
            reader.Skip();
            return null;
        }
    }
}
