// What a server keeps for sandboxes to come: images and named volumes. Extensions of the protocol, for holders
// of an API key.

using System.IO;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>How an image is brought to a server.</summary>
    public sealed class PullOptions
    {
        /// <summary>Credentials for a private registry.</summary>
        public ImageAuth? Auth { get; set; }

        /// <summary>The platform; nothing is the server's own.</summary>
        public PlatformSpec? Platform { get; set; }
    }

    /// <summary>The images of a server.</summary>
    public sealed class Images
    {
        private readonly Target _server;

        internal Images(Target server)
        {
            _server = server;
        }

        /// <summary>All of them, and what they take.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListImagesResponse> ListAsync(CancellationToken cancellationToken = default) =>
            _server.JsonAsync<ListImagesResponse>("GET", "/images", null, cancellationToken);

        /// <summary>Brings an image to the server. The last event is <c>done</c> or <c>error</c>; a stream that ends without
        /// either was cut off. Leaving it gives the download up; what has come stays for the next.</summary>
        /// <param name="image">Its reference.</param>
        /// <param name="options">How.</param>
        /// <param name="cancellationToken">Gives it up, also later.</param>
        public async Task<ValueStream<PullEvent>> PullAsync(string image, PullOptions? options = null, CancellationToken cancellationToken = default)
        {
            var spec = new ImageSpec { Uri = image, Auth = options?.Auth };
            // A registry may think about its first answer for long.
            var call = new Call { Json = new PullImageRequest { Image = spec, Platform = options?.Platform }, Limit = Timeout.InfiniteTimeSpan };
            var answer = await _server.SendAsync("POST", "/images/pull", call, cancellationToken).ConfigureAwait(false);
            return new ValueStream<PullEvent>(answer, "the progress of a download");
        }

        /// <summary>Brings images to the server from an archive: an OCI layout, <c>docker save</c>, or a root filesystem, which
        /// needs a name.</summary>
        /// <param name="archive">The archive.</param>
        /// <param name="name">The image's name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ImportImagesResponse> ImportAsync(FileContents archive, string? name = null, CancellationToken cancellationToken = default)
        {
            var sent = new Body.Sent(new[] { archive }, "application/x-tar");
            var call = sent.Call(Encoded.Query(("name", name)), Timeout.InfiniteTimeSpan);
            return sent.ExplainedAsync(() => _server.JsonAsync<ImportImagesResponse>("POST", "/images/import", call, cancellationToken));
        }

        /// <summary>An image as an OCI archive.</summary>
        /// <param name="reference">Which.</param>
        /// <param name="cancellationToken">Ends reading early, also later.</param>
        public async Task<Stream> ExportAsync(string reference, CancellationToken cancellationToken = default)
        {
            var call = new Call { Query = Encoded.Query(("reference", reference)), Limit = Timeout.InfiniteTimeSpan };
            return new BodyStream(await _server.SendAsync("GET", "/images/export", call, cancellationToken).ConfigureAwait(false));
        }

        /// <summary>Gives an image that is there another name, which means exactly this image from now on; answers it with all
        /// its names.</summary>
        /// <param name="reference">Which, by name or id.</param>
        /// <param name="name">The name it gets as well.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ImageInfo> TagAsync(string reference, string name, CancellationToken cancellationToken = default)
        {
            var call = new Call { Query = Encoded.Query(("reference", reference), ("name", name)) };
            return _server.JsonAsync<ImageInfo>("POST", "/images/tag", call, cancellationToken);
        }

        /// <summary>Takes a name from an image; what nobody uses goes with <see cref="PruneAsync"/>.</summary>
        /// <param name="reference">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task RemoveAsync(string reference, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("DELETE", $"/images/{Encoded.Segment(reference)}", null, cancellationToken);

        /// <summary>Removes images without a name that nobody uses, and layers without an image.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PruneImagesResponse> PruneAsync(CancellationToken cancellationToken = default) =>
            _server.JsonAsync<PruneImagesResponse>("POST", "/images/prune", new Call { Limit = Timeout.InfiniteTimeSpan }, cancellationToken);
    }

    /// <summary>The named volumes of a server.</summary>
    public sealed class Volumes
    {
        private readonly Target _server;

        internal Volumes(Target server)
        {
            _server = server;
        }

        /// <summary>All of them, and who has them mounted.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListVolumesResponse> ListAsync(CancellationToken cancellationToken = default) =>
            _server.JsonAsync<ListVolumesResponse>("GET", "/volumes", null, cancellationToken);

        /// <summary>Makes a volume. A sandbox that names one that is not there makes it as well.</summary>
        /// <param name="name">Its name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<VolumeSummary> CreateAsync(string name, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<VolumeSummary>("POST", "/volumes", new Call { Json = new CreateVolumeRequest { Name = name } }, cancellationToken);

        /// <summary>Removes a volume with all it holds.</summary>
        /// <param name="name">Which.</param>
        /// <param name="force">Also one that a sandbox has mounted.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task RemoveAsync(string name, bool force = false, CancellationToken cancellationToken = default)
        {
            var call = new Call { Query = Encoded.Query(("force", force ? true : (object?)null)) };
            return _server.DoneAsync("DELETE", $"/volumes/{Encoded.Segment(name)}", call, cancellationToken);
        }
    }
}
