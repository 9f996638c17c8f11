// Output as it comes from a command that would never end, which is then interrupted.

using System;
using System.Threading.Tasks;
using OpenSandbox;

internal static class Program
{
    private static async Task Main()
    {
        await using var sandbox = await Sandbox.CreateAsync(Environment.GetEnvironmentVariable("IMAGE") ?? "python:3.12");
        var execution = await sandbox.Commands.StreamAsync("for n in 1 2 3; do echo line $n; done; exec sleep infinity");
        await foreach (var happened in execution)
        {
            switch (happened)
            {
                case StdoutEvent line:
                    Console.Write(line.Text);
                    if (line.Text.Contains("3")) await sandbox.Commands.InterruptAsync(execution.Id!);
                    break;
                case ErrorEvent error:
                    Console.WriteLine($"ended: {error.Failure.Value}");
                    break;
            }
        }
    }
}
