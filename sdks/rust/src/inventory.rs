//! What a server keeps for sandboxes to come: images and named volumes. Extensions of the
//! protocol, for holders of an API key.

use api::inventory::{
    CreateVolumeRequest, Image, ImportImagesResponse, ListImagesResponse, ListVolumesResponse,
    PruneImagesResponse, PullEvent, PullImageRequest, VolumeSummary,
};
use api::query::QueryWriter;
use futures_util::Stream;
use http::HeaderValue;

use crate::client::Client;
use crate::contents::{ByteStream, Contents};
use crate::error::Result;
use crate::event_stream;
use crate::transport::segment;

const TAR: HeaderValue = HeaderValue::from_static("application/x-tar");

/// The images of a server, by [`Client::images`].
///
/// ```no_run
/// use futures_util::TryStreamExt as _;
/// use opensandbox::Client;
/// use opensandbox::wire::sandbox::ImageSpec;
/// use opensandbox::wire::inventory::{PullEvent, PullImageRequest};
///
/// # async fn example() -> opensandbox::Result<()> {
/// let images = Client::from_env()?.images();
/// let request = PullImageRequest {
///     image: ImageSpec { uri: "python:3.12".to_owned(), auth: None },
///     platform: None,
/// };
/// let mut events = std::pin::pin!(images.pull(&request).await?);
/// while let Some(event) = events.try_next().await? {
///     if let PullEvent::Done { id } = event {
///         println!("here as {id}");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Images {
    client: Client,
}

impl Images {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// All of them, and what they take.
    pub async fn list(&self) -> Result<ListImagesResponse> {
        let request = self.client.target().get("/images");
        request.json_answer().await
    }

    /// Brings an image to the server. The last event is `Done` or `Error`; a stream that ends
    /// without either was cut off. Dropping the stream gives the download up; what has come stays
    /// for the next.
    pub async fn pull(
        &self,
        request: &PullImageRequest,
    ) -> Result<impl Stream<Item = Result<PullEvent>> + Send + use<>> {
        let call = self.client.target().post("/images/pull").json(request);
        // A registry may think about its first answer for long.
        let answer = call.timeout(None).send().await?;
        Ok(event_stream::values(answer, "the progress of a download"))
    }

    /// Brings images to the server from an archive: an OCI layout, `docker save`, or a root
    /// filesystem, which needs a name.
    pub async fn import(
        &self,
        archive: impl Into<Contents>,
        name: Option<&str>,
    ) -> Result<ImportImagesResponse> {
        let archive = archive.into();
        let length = archive.length();
        let request = self
            .client
            .target()
            .post("/images/import")
            .query(QueryWriter::new().optional("name", name).finish())
            .body(archive.into_body(), TAR, length)
            .timeout(None);
        request.json_answer().await
    }

    /// An image as an OCI archive.
    pub async fn export(&self, reference: &str) -> Result<ByteStream> {
        let query = QueryWriter::new().pair("reference", reference).finish();
        let request = self.client.target().get("/images/export").query(query);
        Ok(ByteStream::new(request.timeout(None).send().await?))
    }

    /// Gives an image that is there, by name or id, another name, which means exactly this image; answers it
    /// with all its names.
    pub async fn tag(&self, reference: &str, name: &str) -> Result<Image> {
        let query = QueryWriter::new()
            .pair("reference", reference)
            .pair("name", name)
            .finish();
        let request = self.client.target().post("/images/tag").query(query);
        request.json_answer().await
    }

    /// Takes a name from an image; what nobody uses goes with [`prune`](Self::prune).
    pub async fn remove(&self, reference: &str) -> Result<()> {
        let path = format!("/images/{}", segment(reference)?);
        self.client.target().delete(path).done().await
    }

    /// Removes images without a name that nobody uses, and layers without an image.
    pub async fn prune(&self) -> Result<PruneImagesResponse> {
        let request = self.client.target().post("/images/prune").timeout(None);
        request.json_answer().await
    }
}

/// The named volumes of a server, by [`Client::volumes`].
#[derive(Debug, Clone)]
pub struct Volumes {
    client: Client,
}

impl Volumes {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// All of them, and who has them mounted.
    pub async fn list(&self) -> Result<ListVolumesResponse> {
        let request = self.client.target().get("/volumes");
        request.json_answer().await
    }

    /// Makes a volume. A sandbox that names one that is not there makes it as well.
    pub async fn create(&self, name: &str) -> Result<VolumeSummary> {
        let order = CreateVolumeRequest {
            name: name.to_owned(),
        };
        let request = self.client.target().post("/volumes").json(&order);
        request.json_answer().await
    }

    /// Removes a volume with all it holds; one that a sandbox has mounted only when forced.
    pub async fn remove(&self, name: &str, is_forced: bool) -> Result<()> {
        let force = is_forced.then_some("true");
        let path = format!("/volumes/{}", segment(name)?);
        let query = QueryWriter::new().optional("force", force).finish();
        self.client.target().delete(path).query(query).done().await
    }
}
