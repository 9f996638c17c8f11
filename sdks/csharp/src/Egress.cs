// What a sandbox may reach, and the credentials that are put into its requests on the way out. Both are asked
// of the sandbox's egress API.

using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>What a sandbox may reach.</summary>
    public sealed class Egress
    {
        private readonly Sandbox _sandbox;

        internal Egress(Sandbox sandbox)
        {
            _sandbox = sandbox;
        }

        /// <summary>The policy.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> PolicyAsync(CancellationToken cancellationToken = default) =>
            AskAsync("GET", null, cancellationToken);

        /// <summary>Replaces the policy.</summary>
        /// <param name="policy">The new one.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> SetAsync(NetworkPolicy policy, CancellationToken cancellationToken = default) =>
            AskAsync("PUT", policy, cancellationToken);

        /// <summary>Puts rules before the others.</summary>
        /// <param name="rules">The rules.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> PatchAsync(IEnumerable<NetworkRule> rules, CancellationToken cancellationToken = default) =>
            AskAsync("PATCH", rules.ToArray(), cancellationToken);

        /// <summary>Removes the rules of these targets.</summary>
        /// <param name="targets">The targets.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> DeleteAsync(IEnumerable<string> targets, CancellationToken cancellationToken = default) =>
            AskAsync("DELETE", targets.ToArray(), cancellationToken);

        private async Task<PolicyStatusResponse> AskAsync(string method, object? json, CancellationToken token)
        {
            var api = await _sandbox.EgressApiAsync(token).ConfigureAwait(false);
            return await api.JsonAsync<PolicyStatusResponse>(method, "/policy", new Call { Json = json }, token).ConfigureAwait(false);
        }
    }

    /// <summary>Credentials of a sandbox.</summary>
    public sealed class CredentialVault
    {
        private readonly Sandbox _sandbox;

        internal CredentialVault(Sandbox sandbox)
        {
            _sandbox = sandbox;
        }

        /// <summary>Makes the vault.</summary>
        /// <param name="request">What it holds.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CredentialVaultState> CreateAsync(CredentialVaultCreateRequest request, CancellationToken cancellationToken = default) =>
            AskAsync<CredentialVaultState>("POST", "", request, cancellationToken);

        /// <summary>The vault, without any secret.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CredentialVaultState> GetAsync(CancellationToken cancellationToken = default) =>
            AskAsync<CredentialVaultState>("GET", "", null, cancellationToken);

        /// <summary>Changes the vault, all or nothing.</summary>
        /// <param name="request">What.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CredentialVaultState> PatchAsync(CredentialVaultMutationRequest request, CancellationToken cancellationToken = default) =>
            AskAsync<CredentialVaultState>("PATCH", "", request, cancellationToken);

        /// <summary>Removes the vault.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task DeleteAsync(CancellationToken cancellationToken = default)
        {
            var api = await _sandbox.EgressApiAsync(cancellationToken).ConfigureAwait(false);
            await api.DoneAsync("DELETE", "/credential-vault", null, cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Its credentials, without any secret.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CredentialListResponse> CredentialsAsync(CancellationToken cancellationToken = default) =>
            AskAsync<CredentialListResponse>("GET", "/credentials", null, cancellationToken);

        /// <summary>One credential, without any secret.</summary>
        /// <param name="name">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CredentialMetadata> CredentialAsync(string name, CancellationToken cancellationToken = default) =>
            AskAsync<CredentialMetadata>("GET", $"/credentials/{Encoded.Segment(name)}", null, cancellationToken);

        /// <summary>Its bindings.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CredentialBindingListResponse> BindingsAsync(CancellationToken cancellationToken = default) =>
            AskAsync<CredentialBindingListResponse>("GET", "/bindings", null, cancellationToken);

        /// <summary>One binding.</summary>
        /// <param name="name">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<CredentialBindingMetadata> BindingAsync(string name, CancellationToken cancellationToken = default) =>
            AskAsync<CredentialBindingMetadata>("GET", $"/bindings/{Encoded.Segment(name)}", null, cancellationToken);

        private async Task<T> AskAsync<T>(string method, string rest, object? json, CancellationToken token)
        {
            var api = await _sandbox.EgressApiAsync(token).ConfigureAwait(false);
            return await api.JsonAsync<T>(method, $"/credential-vault{rest}", new Call { Json = json }, token).ConfigureAwait(false);
        }
    }
}
