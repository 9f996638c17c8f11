// Runs the tests: every method that is marked so, those that need a server beside each other at one real server.
//
//     OpenSandbox.Test [unit|live] [NAME]...

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Reflection;
using System.Threading.Tasks;

namespace OpenSandbox.Test
{
    /// <summary>Marks a test, and says what it shows.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    internal sealed class TestAttribute : Attribute
    {
        internal TestAttribute(string shows)
        {
            Shows = shows;
        }

        internal string Shows { get; }
    }

    internal static class Program
    {
        /// <summary>No test takes this long; it only keeps a broken one from hanging.</summary>
        private static readonly TimeSpan Limit = TimeSpan.FromMinutes(3);

        private static async Task<int> Main(string[] arguments)
        {
            var kinds = new List<Type>();
            if (arguments.FirstOrDefault() != "live") kinds.Add(typeof(UnitTests));
            if (arguments.FirstOrDefault() != "live") kinds.Add(typeof(WireTests));
            if (arguments.FirstOrDefault() != "unit") kinds.Add(typeof(LiveTests));
            var wanted = arguments.Skip(1).ToArray();
            var failed = 0;
            var ran = 0;
            foreach (var kind in kinds)
            {
                var tests = kind.GetMethods(BindingFlags.Static | BindingFlags.NonPublic)
                    .Where(method => method.GetCustomAttribute<TestAttribute>() != null)
                    .Where(method => wanted.Length == 0 || wanted.Contains(method.Name)).ToArray();
                if (tests.Length == 0) continue;
                if (kind == typeof(LiveTests)) await LiveTests.StartAsync();
                try
                {
                    var results = await Task.WhenAll(tests.Select(RunAsync));
                    failed += results.Count(isGood => !isGood);
                    ran += results.Length;
                }
                finally
                {
                    if (kind == typeof(LiveTests)) await LiveTests.StopAsync();
                }
            }
            Console.WriteLine($"{ran - failed} of {ran} tests");
            return failed == 0 && ran > 0 ? 0 : 1;
        }

        private static async Task<bool> RunAsync(MethodInfo test)
        {
            var watch = Stopwatch.StartNew();
            var shows = test.GetCustomAttribute<TestAttribute>()!.Shows;
            try
            {
                var run = Task.Run(() => (Task)test.Invoke(null, null)!);
                if (await Task.WhenAny(run, Task.Delay(Limit)) != run) throw new TimeoutException($"not done after {Limit}");
                await run;
                Console.WriteLine($"ok {shows} ({watch.ElapsedMilliseconds} ms)");
                return true;
            }
            catch (Exception error)
            {
                Console.WriteLine($"FAILED {shows} [{test.Name}]\n{(error as TargetInvocationException)?.InnerException ?? error}");
                return false;
            }
        }
    }

    /// <summary>What a test says of what it sees.</summary>
    internal static class Assert
    {
        internal static void True(bool holds, string what)
        {
            if (!holds) throw new InvalidOperationException($"it does not hold that {what}");
        }

        internal static void Equal<T>(T wanted, T seen, string what = "")
        {
            if (!EqualityComparer<T>.Default.Equals(wanted, seen)) throw new InvalidOperationException($"{what}: {Shown(seen)} instead of {Shown(wanted)}");
        }

        internal static void Same<T>(IEnumerable<T> wanted, IEnumerable<T> seen, string what = "")
        {
            var (one, other) = (wanted.ToArray(), seen.ToArray());
            if (!one.SequenceEqual(other)) throw new InvalidOperationException($"{what}: [{string.Join(", ", other)}] instead of [{string.Join(", ", one)}]");
        }

        internal static T Throws<T>(Action act, string what = "")
            where T : Exception
        {
            try
            {
                act();
            }
            catch (T error)
            {
                return error;
            }
            throw new InvalidOperationException($"{what}: nothing was thrown instead of {typeof(T).Name}");
        }

        internal static async Task<T> ThrowsAsync<T>(Func<Task> act, string what = "")
            where T : Exception
        {
            try
            {
                await act();
            }
            catch (T error)
            {
                return error;
            }
            throw new InvalidOperationException($"{what}: nothing was thrown instead of {typeof(T).Name}");
        }

        private static string Shown<T>(T value) => value == null ? "nothing" : $"\"{value}\"";
    }
}
