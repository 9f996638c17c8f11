// Who may use a server: API keys, tokens made from them, and tenants. Extensions of the protocol, for administrators, but
// for tokens.

using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>The API keys of a server, and tokens made from them.</summary>
    public sealed class Keys
    {
        private readonly Target _server;

        internal Keys(Target server)
        {
            _server = server;
        }

        /// <summary>All that the caller looks after, and tokens that are good.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListKeysResponse> ListAsync(CancellationToken cancellationToken = default) =>
            _server.JsonAsync<ListKeysResponse>("GET", "/keys", null, cancellationToken);

        /// <summary>Makes a key, whose value is shown this once.</summary>
        /// <param name="request">What it may do.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<NewApiKey> CreateAsync(CreateKeyRequest request, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<NewApiKey>("POST", "/keys", new Call { Json = request }, cancellationToken);

        /// <summary>Gives a key a new value. What is open with the old one ends, and it is good for as long as the request says.</summary>
        /// <param name="id">Which.</param>
        /// <param name="request">How.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<NewApiKey> RotateAsync(string id, RotateKeyRequest request, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<NewApiKey>("POST", $"/keys/{Encoded.Segment(id)}/rotate", new Call { Json = request }, cancellationToken);

        /// <summary>Revokes a key with its tokens; what is open with them ends.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task RevokeAsync(string id, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("DELETE", $"/keys/{Encoded.Segment(id)}", null, cancellationToken);

        /// <summary>Makes a token from this client's own key: a key for a short time that may do no more.</summary>
        /// <param name="request">What it may do.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<NewApiKey> CreateTokenAsync(CreateTokenRequest request, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<NewApiKey>("POST", "/tokens", new Call { Json = request }, cancellationToken);
    }

    /// <summary>The tenants of a server.</summary>
    public sealed class Tenants
    {
        private readonly Target _server;

        internal Tenants(Target server)
        {
            _server = server;
        }

        /// <summary>All but the built-in one.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListTenantsResponse> ListAsync(CancellationToken cancellationToken = default) =>
            _server.JsonAsync<ListTenantsResponse>("GET", "/tenants", null, cancellationToken);

        /// <summary>One of them.</summary>
        /// <param name="name">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Tenant> GetAsync(string name, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<Tenant>("GET", $"/tenants/{Encoded.Segment(name)}", null, cancellationToken);

        /// <summary>Makes a tenant.</summary>
        /// <param name="name">Its name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Tenant> CreateAsync(string name, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<Tenant>("POST", "/tenants", new Call { Json = new CreateTenantRequest { Name = name } }, cancellationToken);

        /// <summary>Removes a tenant that has nothing any more, with its keys.</summary>
        /// <param name="name">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task RemoveAsync(string name, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("DELETE", $"/tenants/{Encoded.Segment(name)}", null, cancellationToken);
    }
}
