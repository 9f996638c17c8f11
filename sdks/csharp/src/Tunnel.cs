// A plain byte stream to a port of a sandbox, by an HTTP upgrade.

using System;
using System.IO;
using System.Net;
using System.Net.Http;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>Opens tunnels.</summary>
    internal static class Tunnel
    {
        /// <summary>Asks for the upgrade; the stream then reads what comes from the port and writes what goes to it.</summary>
        internal static async Task<Stream> OpenAsync(Target target, CancellationToken token)
        {
            token.ThrowIfCancellationRequested();
            var limit = target.Config.RequestTimeout;
            using var life = CancellationTokenSource.CreateLinkedTokenSource(token);
            Deadline.Start(life, limit);
            HttpResponseMessage response;
            try
            {
                var request = target.Request("GET", "/", new Call());
                request.Headers.TryAddWithoutValidation("Connection", "Upgrade");
                request.Headers.TryAddWithoutValidation("Upgrade", "tcp");
                response = await target.Config.Http.SendAsync(request, life.Token).ConfigureAwait(false);
            }
            catch (Exception error) when (Target.IsOfNetwork(error))
            {
                token.ThrowIfCancellationRequested();
                if (life.IsCancellationRequested) throw new TimedOutException("opening a tunnel", limit);
                throw new ConnectionException(target.Place, false, error);
            }
            if (response.StatusCode == HttpStatusCode.SwitchingProtocols)
                return await response.Content.ReadAsStreamAsync().ConfigureAwait(false);
            var reading = CancellationTokenSource.CreateLinkedTokenSource(token);
            var answer = new Answer(response, target.Place, "GET /", reading, token);
            throw await Refusal.ReadAsync("GET /", answer).ConfigureAwait(false);
        }
    }
}
