// The SDK's own types as sdks/conformance/README.md writes them.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Text;

namespace OpenSandbox.Conformance
{
    internal static class Shapes
    {
        internal static object Output(Output output) => new
        {
            id = output.Id,
            stdout = output.Stdout,
            stderr = output.Stderr,
            exit_code = output.ExitCode,
            ending = new { kind = Program.Snake(output.Ending.Kind.ToString()), code = output.Ending.Code, signal = output.Ending.Signal },
            success = output.IsSuccess,
            error = output.Error == null ? null : Failure(output.Error),
            results = output.Results.Select(Result).ToArray(),
            text = output.Text,
            count = output.Count,
            took_ms = Milliseconds(output.Took),
        };

        internal static object? Event(ExecutionEvent? given)
        {
            switch (given)
            {
                case StartedEvent started:
                    return new { type = "started", id = started.Id };
                case StdoutEvent stdout:
                    return new { type = "stdout", text = stdout.Text };
                case StderrEvent stderr:
                    return new { type = "stderr", text = stderr.Text };
                case CountEvent count:
                    return new { type = "count", count = count.Count };
                case CompletedEvent completed:
                    return new { type = "completed", took_ms = Milliseconds(completed.Took) };
                case ErrorEvent error:
                    return new Dictionary<string, object?>
                    {
                        ["type"] = "error", ["name"] = error.Failure.Name, ["value"] = error.Failure.Value, ["traceback"] = error.Failure.Traceback,
                    };
                case ResultEvent result:
                    return new
                    {
                        type = "result", kind = Program.Snake(result.Result.Kind.ToString()), by_type = result.Result.ByType,
                        text = result.Result.Text, count = result.Result.Count,
                    };
                default:
                    return null;
            }
        }

        internal static object? Terminal(TerminalEvent? given)
        {
            switch (given)
            {
                case ConnectedEvent _:
                    return new { type = "connected" };
                case OutputEvent output:
                    return new { type = output.IsError ? "error_output" : "output", text = Encoding.UTF8.GetString(output.Bytes) };
                case ReplayEvent replay:
                    return new { type = "replay", offset = replay.Offset, text = Encoding.UTF8.GetString(replay.Bytes) };
                case RefusedEvent refused:
                    return new { type = "refused", code = refused.Code, message = refused.Message };
                case ExitEvent exit:
                    return new { type = "exit", code = exit.Code, signal = exit.Signal };
                case ClosedEvent closed:
                    return new { type = "closed", code = closed.Code, reason = closed.Reason };
                default:
                    return null;
            }
        }

        internal static object File(FileEntry file) => new
        {
            path = file.Path,
            raw_path = file.RawPath,
            type = file.Type,
            size = file.Size,
            modified_at = file.ModifiedAt,
            created_at = file.CreatedAt,
            owner = file.Owner,
            group = file.Group,
            mode = int.Parse(Convert.ToString(file.Mode, 8)),
        };

        internal static object Command(CommandStatus status) => new
        {
            id = status.Id,
            content = status.Content,
            running = status.IsRunning,
            exit_code = status.ExitCode,
            error = status.Error,
            started_at = status.StartedAt,
            finished_at = status.FinishedAt,
        };

        internal static object? Metrics(SandboxMetrics? sample) => sample == null ? null : new
        {
            cpu_count = sample.CpuCount,
            cpu_used_pct = sample.CpuUsedPercent,
            mem_total_mib = sample.MemoryTotalMiB,
            mem_used_mib = sample.MemoryUsedMiB,
            timestamp = sample.At.ToUnixTimeMilliseconds(),
        };

        private static object Failure(ExecutionFailure failure) =>
            new { name = failure.Name, value = failure.Value, traceback = failure.Traceback };

        private static object Result(RichResult result) => new
        {
            kind = Program.Snake(result.Kind.ToString()), by_type = result.ByType, text = result.Text, count = result.Count,
        };

        private static long? Milliseconds(TimeSpan? time) => time is TimeSpan given ? (long)given.TotalMilliseconds : (long?)null;
    }
}
