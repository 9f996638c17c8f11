// Waiting: until a sandbox can be used, and for changes on the server.

using System;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>Waiting until a sandbox can be used.</summary>
    internal static class Ready
    {
        /// <summary>Waits until the daemon in the sandbox answers.</summary>
        internal static async Task WaitAsync(Sandbox sandbox, ReadyOptions options, CancellationToken token)
        {
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(token);
            Deadline.Start(limit, options.ReadyTimeout);
            OpenSandboxException? last = null;
            try
            {
                while (true)
                {
                    try
                    {
                        await sandbox.PingAsync(limit.Token).ConfigureAwait(false);
                        return;
                    }
                    catch (OpenSandboxException error) when (MayPass(error))
                    {
                        last = error;
                    }
                    await RefuseHopelessAsync(sandbox, limit.Token).ConfigureAwait(false);
                    await Task.Delay(options.HealthCheckInterval, limit.Token).ConfigureAwait(false);
                }
            }
            catch (OperationCanceledException)
            {
                token.ThrowIfCancellationRequested();
                throw new NotReadyException(sandbox.Id, options.ReadyTimeout, last);
            }
        }

        /// <summary>Whether the same question may be answered otherwise in a moment.</summary>
        private static bool MayPass(OpenSandboxException error)
        {
            switch (error.Status)
            {
                case null:
                    return error.Kind == ErrorKind.Connection || error.Kind == ErrorKind.Timeout;
                case 400:
                case 401:
                case 403:
                case 410:
                    return false;
                case 404:
                    // The sandbox itself is not known, as opposed to having no address yet.
                    return error.Code == "KUBERNETES::POD_IP_NOT_AVAILABLE" || !error.Code.EndsWith("NOT_FOUND", StringComparison.Ordinal);
                default:
                    return true;
            }
        }

        /// <summary>Throws if the sandbox is in a state from which it never becomes ready.</summary>
        private static async Task RefuseHopelessAsync(Sandbox sandbox, CancellationToken token)
        {
            SandboxStatus status;
            try
            {
                status = (await sandbox.InfoAsync(token).ConfigureAwait(false)).Status;
            }
            catch (OpenSandboxException)
            {
                return;
            }
            var subject = $"sandbox {sandbox.Id}";
            switch (status.State)
            {
                case SandboxState.Failed:
                case SandboxState.Terminated:
                case SandboxState.Stopping:
                    throw new FailedException(subject, status.State, status.Message ?? "the server does not say why");
                case SandboxState.Paused:
                case SandboxState.Pausing:
                    throw new FailedException(subject, status.State, "resume it first");
            }
        }
    }

    /// <summary>Waiting for a change on the server: told by its stream of events where it has one, by asking again where it
    /// does not.</summary>
    internal sealed class Change<T>
        where T : class
    {
        /// <summary>How long to wait before asking a server again that tells nobody of changes.</summary>
        private static readonly TimeSpan AskAgain = TimeSpan.FromSeconds(0.5);

        private readonly Client _client;
        private readonly string? _sandboxId;
        private readonly Func<CancellationToken, Task<T?>> _check;

        /// <summary>What is waited for: <paramref name="check"/> answers something once it has come.</summary>
        internal Change(Client client, string? sandboxId, Func<CancellationToken, Task<T?>> check)
        {
            _client = client;
            _sandboxId = sandboxId;
            _check = check;
        }

        /// <summary>Checks now and after every change until it has come, or the time has passed.</summary>
        internal async Task<T> WaitAsync(string what, TimeSpan timeout, CancellationToken token)
        {
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(token);
            Deadline.Start(limit, timeout);
            try
            {
                var found = await _check(limit.Token).ConfigureAwait(false);
                while (found == null)
                {
                    found = await ByEventsAsync(limit.Token).ConfigureAwait(false);
                    if (found != null) break;
                    await Task.Delay(AskAgain, limit.Token).ConfigureAwait(false);
                    found = await _check(limit.Token).ConfigureAwait(false);
                }
                return found;
            }
            catch (OperationCanceledException)
            {
                token.ThrowIfCancellationRequested();
                throw new TimedOutException($"waiting for {what}", timeout);
            }
        }

        /// <summary>Nothing when the server has no events, or when their stream ends before what is waited for came.</summary>
        private async Task<T?> ByEventsAsync(CancellationToken token)
        {
            ValueStream<LifecycleEvent> events;
            try
            {
                events = await _client.EventsAsync(_sandboxId, null, token).ConfigureAwait(false);
            }
            catch (OpenSandboxException error) when (error.Status == 404 || error.Status == 405 || error.Status == 501)
            {
                // The route is not known to this server.
                return null;
            }
            await using (((IAsyncDisposable)events).ConfigureAwait(false))
            {
                // Asked only now that no change can be missed any more.
                while (true)
                {
                    if (await _check(token).ConfigureAwait(false) is T found) return found;
                    try
                    {
                        if (await events.NextAsync().ConfigureAwait(false) == null) return null;
                    }
                    catch (ConnectionException)
                    {
                        return null;
                    }
                }
            }
        }
    }
}
