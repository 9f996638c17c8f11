package dev.osb;

import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/** The body of one answer, which is read piece by piece and never runs far ahead of its reader. */
final class Body implements HttpResponse.BodySubscriber<Void> {
    /** Pieces, of some 16 KiB each, that may wait for the reader. */
    private static final int PIECES_AHEAD = 8;

    private final String url;
    private final ArrayDeque<List<ByteBuffer>> pieces = new ArrayDeque<>();
    private Flow.Subscription subscription;
    private CompletableFuture<List<ByteBuffer>> waiting;
    private boolean isOver;
    private boolean isCancelled;
    private Throwable failure;

    Body(String url) {
        this.url = url;
    }

    /** What comes next; an empty list at the end. One read at a time. */
    CompletableFuture<List<ByteBuffer>> read() {
        CompletableFuture<List<ByteBuffer>> next = new CompletableFuture<>();
        List<ByteBuffer> piece;
        synchronized (this) {
            piece = pieces.poll();
            if (piece == null) {
                if (!isOver) {
                    waiting = next;
                    return next;
                }
                if (failure == null) return CompletableFuture.completedFuture(List.of());
                return CompletableFuture.failedFuture(failure);
            }
        }
        subscription.request(1);
        next.complete(piece);
        return next;
    }

    /** Gives the rest up, which ends the connection; a reader that waits fails with this. */
    void cancel(Throwable reason) {
        CompletableFuture<List<ByteBuffer>> reader;
        Flow.Subscription given;
        synchronized (this) {
            if (isOver && failure == null && pieces.isEmpty()) return;
            isOver = true;
            isCancelled = true;
            failure = reason;
            pieces.clear();
            reader = waiting;
            waiting = null;
            given = subscription;
        }
        if (given != null) given.cancel();
        if (reader != null) reader.completeExceptionally(reason);
    }

    @Override
    public CompletionStage<Void> getBody() {
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
        boolean isLate;
        synchronized (this) {
            subscription = given;
            isLate = isCancelled;
        }
        if (isLate) given.cancel();
        else given.request(PIECES_AHEAD);
    }

    @Override
    public void onNext(List<ByteBuffer> piece) {
        CompletableFuture<List<ByteBuffer>> reader;
        synchronized (this) {
            if (isOver) return;
            reader = waiting;
            waiting = null;
            if (reader == null) pieces.add(piece);
        }
        if (reader != null) {
            subscription.request(1);
            reader.complete(piece);
        }
    }

    @Override
    public void onError(Throwable error) {
        end(new ConnectionException(url, false, error));
    }

    @Override
    public void onComplete() {
        end(null);
    }

    private void end(Throwable error) {
        CompletableFuture<List<ByteBuffer>> reader;
        synchronized (this) {
            if (isOver) return;
            isOver = true;
            failure = error;
            reader = waiting;
            waiting = null;
        }
        if (reader == null) return;
        if (error == null) reader.complete(List.of());
        else reader.completeExceptionally(error);
    }
}
