package dev.osb;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.Flow;
import java.util.function.Consumer;

/**
 * A blocking stream as what an {@code HttpRequest} sends. Reading it may take any time, so that it has threads of its
 * own, which are there only while a stream is read.
 */
final class Upload implements Flow.Publisher<ByteBuffer> {
    private static final int PIECE_BYTES = 64 * 1024;

    private final Contents.Source source;
    private final Consumer<Exception> failed;

    Upload(Contents.Source source, Consumer<Exception> failed) {
        this.source = source;
        this.failed = failed;
    }

    @Override
    public void subscribe(Flow.Subscriber<? super ByteBuffer> subscriber) {
        subscriber.onSubscribe(new Reading(subscriber));
    }

    private final class Reading implements Flow.Subscription {
        private final Flow.Subscriber<? super ByteBuffer> subscriber;
        private InputStream stream;
        private long wanted;
        private boolean isReading;
        private boolean isOver;

        Reading(Flow.Subscriber<? super ByteBuffer> subscriber) {
            this.subscriber = subscriber;
        }

        @Override
        public void request(long count) {
            synchronized (this) {
                if (isOver) return;
                wanted = wanted + count < 0 ? Long.MAX_VALUE : wanted + count;
                if (isReading) return;
                isReading = true;
            }
            Blocking.THREADS.execute(this::read);
        }

        @Override
        public void cancel() {
            synchronized (this) {
                if (isOver) return;
                isOver = true;
                // Whoever reads closes it.
                if (isReading) return;
            }
            Blocking.THREADS.execute(this::close);
        }

        private void read() {
            try {
                if (stream == null) stream = source.open();
                byte[] piece = new byte[PIECE_BYTES];
                while (takeTurn()) {
                    int length = stream.read(piece);
                    if (length < 0) {
                        finish();
                        subscriber.onComplete();
                        return;
                    }
                    subscriber.onNext(ByteBuffer.wrap(Arrays.copyOf(piece, length)));
                }
            } catch (IOException | RuntimeException error) {
                failed.accept(error);
                finish();
                subscriber.onError(error);
            }
        }

        private synchronized boolean takeTurn() {
            if (isOver) {
                close();
                return false;
            }
            if (wanted == 0) {
                isReading = false;
                return false;
            }
            wanted--;
            return true;
        }

        private void finish() {
            synchronized (this) {
                isOver = true;
            }
            close();
        }

        private void close() {
            try {
                if (stream != null) stream.close();
            } catch (IOException error) {
                // What was sent was sent.
            }
        }
    }
}
