package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CreateVolumeRequest;
import dev.osb.wire.HostVolume;
import dev.osb.wire.ListVolumesResponse;
import dev.osb.wire.NamedVolume;
import dev.osb.wire.Volume;
import dev.osb.wire.VolumeSummary;
import java.util.concurrent.CompletableFuture;

/** Extension: the named volumes that a server keeps, for holders of an API key. */
public final class Volumes {
    private final Target server;

    Volumes(Target server) {
        this.server = server;
    }

    /** A directory of the host, to mount. The operator decides which are allowed. */
    public static Volume host(String name, String hostPath, String mountPath) {
        return new Volume(mountPath, name).withHost(new HostVolume(hostPath)).withReadOnly(false);
    }

    /** A named volume that outlives the sandbox, to mount; it is made when it does not exist. */
    public static Volume named(String name, String volume, String mountPath) {
        NamedVolume claim = new NamedVolume(volume).withCreateIfNotExists(true).withDeleteOnSandboxTermination(false);
        return new Volume(mountPath, name).withPvc(claim).withReadOnly(false);
    }

    /** All of them, and who has them mounted. */
    public ListVolumesResponse list() {
        return await(listAsync());
    }

    /** {@link #list} without blocking. */
    public CompletableFuture<ListVolumesResponse> listAsync() {
        return server.json(Call.get("/volumes"), ListVolumesResponse::fromJson);
    }

    /** Makes a volume. A sandbox that names one that is not there makes it as well. */
    public VolumeSummary create(String name) {
        return await(createAsync(name));
    }

    /** {@link #create} without blocking. */
    public CompletableFuture<VolumeSummary> createAsync(String name) {
        return server.json(Call.post("/volumes").json(new CreateVolumeRequest(name)), VolumeSummary::fromJson);
    }

    /** Removes a volume with all it holds; one that a sandbox has mounted only when forced. */
    public void remove(String name, boolean force) {
        await(removeAsync(name, force));
    }

    /** {@link #remove} without blocking. */
    public CompletableFuture<Void> removeAsync(String name, boolean force) {
        return server.done(Call.delete("/volumes/" + Text.segment(name)).query("force", force ? true : null));
    }
}
