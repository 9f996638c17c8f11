package dev.osb;

import dev.osb.wire.JsonReader;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** The bytes of one connection as events. */
final class EventStream {
    private final Body body;
    private final EventDecoder decoder;
    private boolean isFinished;

    EventStream(Body body, String what, Consumer<JsonReader> take) {
        this.body = body;
        this.decoder = new EventDecoder(what, take);
    }

    /** Takes the events in that come next, if any is whole by then; answers whether the connection has ended. */
    CompletableFuture<Boolean> read() {
        if (isFinished) return CompletableFuture.completedFuture(true);
        return body.read().thenApply(pieces -> {
            if (!pieces.isEmpty()) {
                decoder.push(pieces);
                return false;
            }
            isFinished = true;
            try {
                decoder.finish();
            } catch (UnreadableException error) {
                // Half an event at the end of a broken connection comes again when resumed.
            }
            return false;
        });
    }

    /** Gives the rest up. */
    void close() {
        body.cancel(new CancellationException("the stream was closed"));
    }
}
