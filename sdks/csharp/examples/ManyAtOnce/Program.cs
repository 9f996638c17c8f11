// Ten sandboxes at once, from a pool that keeps some ready.

using System;
using System.Linq;
using System.Threading.Tasks;
using OpenSandbox;

internal static class Program
{
    private static async Task Main()
    {
        var image = Environment.GetEnvironmentVariable("IMAGE") ?? "python:3.12";
        await using var pool = new Pool(new Client(), image, new PoolOptions { MaxIdle = 4 });
        var squares = await Task.WhenAll(Enumerable.Range(1, 10).Select(async number =>
        {
            await using var sandbox = await pool.AcquireAsync(TimeSpan.FromMinutes(5));
            var output = await sandbox.Commands.RunAsync($"echo $(({number} * {number}))");
            return output.Stdout.Trim();
        }));
        Console.WriteLine(string.Join(" ", squares));
    }
}
