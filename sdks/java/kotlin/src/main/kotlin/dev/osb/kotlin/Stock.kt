package dev.osb.kotlin

import dev.osb.Contents
import dev.osb.wire.ImageAuth
import dev.osb.wire.ImageInfo
import dev.osb.wire.ImportImagesResponse
import dev.osb.wire.ListImagesResponse
import dev.osb.wire.ListVolumesResponse
import dev.osb.wire.PlatformSpec
import dev.osb.wire.PruneImagesResponse
import dev.osb.wire.PullEvent
import dev.osb.wire.VolumeSummary
import kotlinx.coroutines.future.await

/** Extension: the images that a server keeps, for holders of an API key. */
public class Images internal constructor(private val java: dev.osb.Images) {
    /** All of them, and what they take. */
    public suspend fun list(): ListImagesResponse = java.listAsync().await()

    /**
     * Brings an image to the server. The last event is `done` or `error`; a stream that ends without either was cut off. Closing
     * it gives the download up; what has come stays for the next.
     */
    public suspend fun pull(image: String, auth: ImageAuth? = null, platform: PlatformSpec? = null): ValueStream<PullEvent> =
        ValueStream(java.pullAsync(image, auth, platform).await())

    /** Brings images to the server from an archive: an OCI layout, `docker save`, or a root filesystem, which needs a name. */
    public suspend fun importArchive(archive: Contents, name: String? = null): ImportImagesResponse =
        java.importArchiveAsync(archive, name).await()

    /** An image as an OCI archive. */
    public suspend fun export(reference: String): ByteStream = ByteStream(java.exportAsync(reference).await())

    /**
     * Gives an image that is there, by name or id, another name, which means exactly this image from now on; answers it with
     * all its names.
     */
    public suspend fun tag(reference: String, name: String): ImageInfo = java.tagAsync(reference, name).await()

    /** Takes a name from an image; what nobody uses goes with [prune]. */
    public suspend fun remove(reference: String) {
        java.removeAsync(reference).await()
    }

    /** Removes images without a name that nobody uses, and layers without an image. */
    public suspend fun prune(): PruneImagesResponse = java.pruneAsync().await()
}

/** Extension: the named volumes that a server keeps, for holders of an API key. */
public class Volumes internal constructor(private val java: dev.osb.Volumes) {
    /** All of them, and who has them mounted. */
    public suspend fun list(): ListVolumesResponse = java.listAsync().await()

    /** Makes a volume. A sandbox that names one that is not there makes it as well. */
    public suspend fun create(name: String): VolumeSummary = java.createAsync(name).await()

    /** Removes a volume with all it holds; one that a sandbox has mounted only when forced. */
    public suspend fun remove(name: String, force: Boolean = false) {
        java.removeAsync(name, force).await()
    }
}
