// The first page: a sandbox, a command, code that remembers, a file. The server is the one of OPEN_SANDBOX_DOMAIN and
// OPEN_SANDBOX_API_KEY. IMAGE is what the sandbox starts from.

using System;
using System.Threading.Tasks;
using OpenSandbox;

internal static class Program
{
    private static async Task<int> Main()
    {
        try
        {
            await using var sandbox = await Sandbox.CreateAsync(Environment.GetEnvironmentVariable("IMAGE") ?? "python:3.12");
            var output = await sandbox.Commands.RunAsync("echo 'Hello Sandbox!'");
            Console.WriteLine($"{output.Stdout.Trim()} exit code {output.ExitCode}");

            await sandbox.Code.RunAsync("x = 20");
            Console.WriteLine($"x + 1 is {(await sandbox.Code.RunAsync("x + 1")).Text}");

            await sandbox.Files.WriteAsync("/tmp/data.csv", "a,b\n1,2\n");
            await foreach (var happened in await sandbox.Commands.StreamAsync("wc -l /tmp/data.csv"))
                if (happened is StdoutEvent line) Console.WriteLine(line.Text.Trim());
            return 0;
        }
        catch (OpenSandboxException error)
        {
            Console.Error.WriteLine($"[{error.Code}] {error.Message}; {error.Remedy} (request {error.RequestId ?? "not sent"})");
            return 1;
        }
    }
}
