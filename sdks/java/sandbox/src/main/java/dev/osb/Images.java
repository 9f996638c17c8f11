package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.ImageAuth;
import dev.osb.wire.ImageInfo;
import dev.osb.wire.ImageSpec;
import dev.osb.wire.ImportImagesResponse;
import dev.osb.wire.ListImagesResponse;
import dev.osb.wire.PlatformSpec;
import dev.osb.wire.PruneImagesResponse;
import dev.osb.wire.PullEvent;
import dev.osb.wire.PullImageRequest;
import java.util.concurrent.CompletableFuture;

/** Extension: the images that a server keeps, for holders of an API key. */
public final class Images {
    private static final String TAR = "application/x-tar";

    private final Target server;

    Images(Target server) {
        this.server = server;
    }

    /** All of them, and what they take. */
    public ListImagesResponse list() {
        return await(listAsync());
    }

    /** {@link #list} without blocking. */
    public CompletableFuture<ListImagesResponse> listAsync() {
        return server.json(Call.get("/images"), ListImagesResponse::fromJson);
    }

    /**
     * Brings an image to the server. The last event is {@code done} or {@code error}; a stream that ends without either was
     * cut off. Closing it gives the download up; what has come stays for the next.
     */
    public ValueStream<PullEvent> pull(String image) {
        return pull(image, null, null);
    }

    /** Brings an image to the server, with credentials for a private registry and for a platform, unless these are null. */
    public ValueStream<PullEvent> pull(String image, ImageAuth auth, PlatformSpec platform) {
        return await(pullAsync(image, auth, platform));
    }

    /** {@link #pull(String, ImageAuth, PlatformSpec)} without blocking. */
    public CompletableFuture<ValueStream<PullEvent>> pullAsync(String image, ImageAuth auth, PlatformSpec platform) {
        Call call = Call.post("/images/pull").json(new PullImageRequest(new ImageSpec(auth, image), platform))
            // A registry may think about its first answer for long.
            .timeout(null);
        return Task.map(server.send(call), answer -> new ValueStream<>(answer, "the progress of a download", PullEvent::fromJson));
    }

    /**
     * Brings images to the server from an archive: an OCI layout, {@code docker save}, or a root filesystem, which needs a
     * name; else it may be null.
     */
    public ImportImagesResponse importArchive(Contents archive, String name) {
        return await(importArchiveAsync(archive, name));
    }

    /** {@link #importArchive} without blocking. */
    public CompletableFuture<ImportImagesResponse> importArchiveAsync(Contents archive, String name) {
        Contents body = archive.as(TAR);
        Call call = Call.post("/images/import").query("name", name).body(body).timeout(null);
        return Form.explained(body, server.json(call, ImportImagesResponse::fromJson));
    }

    /** An image as an OCI archive. */
    public ByteStream export(String reference) {
        return await(exportAsync(reference));
    }

    /** {@link #export} without blocking. */
    public CompletableFuture<ByteStream> exportAsync(String reference) {
        Call call = Call.get("/images/export").query("reference", reference).timeout(null);
        return Task.map(server.send(call), answer -> new ByteStream(answer, call.what()));
    }

    /**
     * Gives an image that is there, by name or id, another name, which means exactly this image from now on; answers it with
     * all its names.
     */
    public ImageInfo tag(String reference, String name) {
        return await(tagAsync(reference, name));
    }

    /** {@link #tag} without blocking. */
    public CompletableFuture<ImageInfo> tagAsync(String reference, String name) {
        return server.json(Call.post("/images/tag").query("reference", reference, "name", name), ImageInfo::fromJson);
    }

    /** Takes a name from an image; what nobody uses goes with {@link #prune}. */
    public void remove(String reference) {
        await(removeAsync(reference));
    }

    /** {@link #remove} without blocking. */
    public CompletableFuture<Void> removeAsync(String reference) {
        return server.done(Call.delete("/images/" + Text.segment(reference)));
    }

    /** Removes images without a name that nobody uses, and layers without an image. */
    public PruneImagesResponse prune() {
        return await(pruneAsync());
    }

    /** {@link #prune} without blocking. */
    public CompletableFuture<PruneImagesResponse> pruneAsync() {
        return server.json(Call.post("/images/prune").timeout(null), PruneImagesResponse::fromJson);
    }
}
