package dev.osb;

import dev.osb.wire.SandboxStatus;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/** Making a sandbox, connecting to one, and waiting until it can be used. */
final class Ready {
    private static final Set<String> ENDED = Set.of("Failed", "Terminated", "Stopping");
    private static final Set<String> FROZEN = Set.of("Paused", "Pausing");

    private Ready() {}

    static CompletableFuture<Sandbox> create(Client client, SandboxSource source, CreateOptions options) {
        return Task.start(task -> task.link(
            () -> client.createRequestAsync(options.request(source), options.ready().readyTimeout, options.idempotencyKey())
        ).thenCompose(created -> {
            Sandbox sandbox = new Sandbox(client, created.id(), true);
            if (options.ready().skipReady) return CompletableFuture.completedFuture(sandbox);
            return task.link(() -> until(sandbox, options.ready())).handle((nothing, thrown) -> {
                if (thrown == null) return CompletableFuture.completedFuture(sandbox);
                // Nobody would know its id; whether this works is not the caller's question.
                return sandbox.killAsync().handle((gone, error) -> sandbox)
                    .thenCompose(gone -> CompletableFuture.<Sandbox>failedFuture(Task.unwrapped(thrown)));
            }).thenCompose(result -> result);
        }));
    }

    static CompletableFuture<Sandbox> connect(Client client, String id, ReadyOptions options) {
        Sandbox sandbox = new Sandbox(client, id, false);
        return Task.start(task -> {
            CompletableFuture<Void> resumed = options.resume ? task.link(() -> client.resumeAsync(id)) : CompletableFuture.completedFuture(null);
            return resumed
                .thenCompose(nothing -> options.skipReady ? CompletableFuture.completedFuture(null) : task.link(() -> until(sandbox, options)))
                .thenApply(nothing -> sandbox);
        });
    }

    /** Waits until the daemon in the sandbox answers. */
    static CompletableFuture<Void> until(Sandbox sandbox, ReadyOptions options) {
        Throwable[] last = {null};
        return Task.start(task -> {
            task.deadline(options.readyTimeout, () -> new NotReadyException(sandbox.id(), options.readyTimeout, last[0]));
            return Task.until(() -> task.link(sandbox::pingAsync).handle((nothing, thrown) -> {
                if (thrown == null) return CompletableFuture.completedFuture(true);
                Throwable error = Task.unwrapped(thrown);
                if (!mayPass(error)) return CompletableFuture.<Boolean>failedFuture(error);
                last[0] = error;
                return task.link(() -> refuseHopeless(sandbox)).thenCompose(x -> task.pause(options.healthCheckInterval)).thenApply(x -> (Boolean) null);
            }).thenCompose(result -> result)).thenApply(done -> null);
        });
    }

    /** Whether the same question may be answered otherwise in a moment. */
    private static boolean mayPass(Throwable error) {
        if (!(error instanceof OpenSandboxException ours)) return false;
        return switch (ours.status()) {
            case 0 -> ours.kind() == ErrorKind.CONNECTION || ours.kind() == ErrorKind.TIMEOUT;
            case 400, 401, 403, 410 -> false;
            // The sandbox itself is not known, as opposed to having no address yet.
            case 404 -> ours.code().equals("KUBERNETES::POD_IP_NOT_AVAILABLE") || !ours.code().endsWith("NOT_FOUND");
            default -> true;
        };
    }

    /** Fails if the sandbox is in a state from which it never becomes ready. */
    private static CompletableFuture<Void> refuseHopeless(Sandbox sandbox) {
        return Task.map(sandbox.infoAsync().handle((info, thrown) -> info), info -> {
            if (info == null) return null;
            SandboxStatus status = info.status();
            if (ENDED.contains(status.state())) {
                String why = status.message() == null ? "the server does not say why" : status.message();
                throw new FailedException("sandbox " + sandbox.id(), status.state(), why);
            }
            if (FROZEN.contains(status.state())) throw new FailedException("sandbox " + sandbox.id(), status.state(), "resume it first");
            return null;
        });
    }
}
