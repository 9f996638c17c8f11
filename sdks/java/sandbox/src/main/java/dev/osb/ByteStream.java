package dev.osb;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;

/** Bytes as they arrive: an {@link InputStream}, or pieces by {@link #readAsync}. Closing it gives the rest up. */
public final class ByteStream extends InputStream {
    private final Body body;
    private final String what;
    private final Long length;
    private final ArrayDeque<ByteBuffer> pieces = new ArrayDeque<>();
    private boolean isOver;

    ByteStream(Target.Answer answer, String what) {
        this.body = answer.body();
        this.what = what;
        // A length counts what was sent, which is not what arrives when a proxy has compressed it.
        boolean isPlain = Target.header(answer.headers(), "Content-Encoding") == null;
        String given = Target.header(answer.headers(), "Content-Length");
        this.length = given == null || !isPlain ? null : Long.valueOf(given.strip());
    }

    /** How many bytes there are in all; null if that is not known. */
    public Long length() {
        return length;
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    /** Reads what has come; a broken connection is a {@link ConnectionException}. */
    @Override
    public int read(byte[] into, int offset, int most) {
        Objects.checkFromIndexSize(offset, most, into.length);
        if (most == 0) return 0;
        while (pieces.isEmpty() || !pieces.peek().hasRemaining()) {
            pieces.poll();
            if (!pieces.isEmpty()) continue;
            if (isOver) return -1;
            List<ByteBuffer> more = Task.await(readAsync());
            isOver = more.isEmpty();
            pieces.addAll(more);
        }
        int size = Math.min(most, pieces.peek().remaining());
        pieces.peek().get(into, offset, size);
        return size;
    }

    /** The pieces that come next; an empty list at the end. Not to be mixed with the other ways of reading. */
    public CompletableFuture<List<ByteBuffer>> readAsync() {
        return Task.start(task -> {
            task.onEnd(() -> {
                if (task.isCancelled()) close();
            });
            return task.link(body::read);
        });
    }

    /** Everything from here on, at most 2 GiB. */
    public CompletableFuture<byte[]> readAllAsync() {
        return Task.start(task -> {
            task.onEnd(() -> {
                if (task.isCompletedExceptionally()) close();
            });
            return Target.whole(body, what, Integer.MAX_VALUE - 8);
        });
    }

    @Override
    public void close() {
        isOver = true;
        pieces.clear();
        body.cancel(new CancellationException("the stream was closed"));
    }
}
