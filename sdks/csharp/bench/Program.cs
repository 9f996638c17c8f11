// Measures the SDK at the server that the environment names, for bench/run, and prints what it found as JSON.
//
//     OpenSandbox.Bench first ROUNDS        create to first output, ms, each round
//     OpenSandbox.Bench lines COMMAND       six times a command that prints 1,000,000 lines, lines/s and MiB
//     OpenSandbox.Bench many                200 sandboxes at once, s and threads

using System;
using System.Diagnostics;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox.Bench
{
    internal static class Program
    {
        private const int Lines = 1_000_000;
        private const int AtOnce = 200;
        private const int Passes = 6;

        /// <summary>The first rounds also pay for compiling the code.</summary>
        private const int WarmUp = 30;

        private static readonly Client Client = new Client();

        private static async Task Main(string[] arguments)
        {
            object measured = arguments[0] switch
            {
                "first" => await FirstAsync(int.Parse(arguments[1])),
                "lines" => await LinesAsync(arguments[1]),
                _ => await ManyAsync(),
            };
            Console.WriteLine(JsonSerializer.Serialize(measured, measured.GetType()));
        }

        private static async Task UseAsync(Sandbox sandbox)
        {
            await foreach (var given in await sandbox.Commands.StreamAsync("echo hi")) if (given is StdoutEvent) break;
        }

        private static async Task<object> FirstAsync(int rounds)
        {
            var times = new double[rounds];
            for (var round = -WarmUp; round < rounds; round++)
            {
                var watch = Stopwatch.StartNew();
                await using var sandbox = await Client.CreateAsync("host");
                await UseAsync(sandbox);
                if (round >= 0) times[round] = watch.Elapsed.TotalMilliseconds;
            }
            return new { times };
        }

        private static long Resident()
        {
            using var self = Process.GetCurrentProcess();
            return self.WorkingSet64 / (1024 * 1024);
        }

        /// <summary>The same lines again and again. What the first millions add to the process is room that the collector takes
        /// before it runs at all; what is still held at the end, or added later, would not be flat.</summary>
        private static async Task<object> LinesAsync(string command)
        {
            await using var sandbox = await Client.CreateAsync("host");
            await UseAsync(sandbox);
            var before = Resident();
            var heldBefore = GC.GetTotalMemory(true);
            var most = new long[Passes];
            var rates = new double[Passes];
            for (var pass = 0; pass < Passes; pass++)
            {
                var watch = Stopwatch.StartNew();
                var count = await CountAsync(sandbox, command);
                rates[pass] = Lines / watch.Elapsed.TotalSeconds;
                most[pass] = Resident();
                if (count != Lines) throw new InvalidOperationException($"{count} lines came instead of {Lines}");
            }
            return new
            {
                rate = rates.OrderBy(rate => rate).ElementAt(Passes / 2),
                added = most.Max() - before,
                later = most.Skip(Passes / 2).Max() - most.Take(Passes / 2).Max(),
                held = (GC.GetTotalMemory(true) - heldBefore) / (1024.0 * 1024),
            };
        }

        private static async Task<int> CountAsync(Sandbox sandbox, string command)
        {
            var count = 0;
            await foreach (var given in await sandbox.Commands.StreamAsync(command))
            {
                if (!(given is StdoutEvent stdout)) continue;
                // What is printed at once may come as one event of several lines.
                foreach (var character in stdout.Text) if (character == '\n') count++;
            }
            return count;
        }

        private static async Task<object> ManyAsync()
        {
            var threads = 0;
            using var watcher = new Timer(_ => threads = Math.Max(threads, Process.GetCurrentProcess().Threads.Count), null, 0, 20);
            var watch = Stopwatch.StartNew();
            var all = await Task.WhenAll(Enumerable.Range(0, AtOnce).Select(_ => Client.CreateAsync("host")));
            await Task.WhenAll(all.Select(UseAsync));
            var seconds = watch.Elapsed.TotalSeconds;
            await Task.WhenAll(all.Select(sandbox => sandbox.KillAsync()));
            return new { seconds, threads };
        }
    }
}
