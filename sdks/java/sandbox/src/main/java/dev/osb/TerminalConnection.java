package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.Json;
import dev.osb.wire.JsonException;
import dev.osb.wire.PtyClientMessage;
import dev.osb.wire.PtyServerMessage;
import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

/** A connection to a terminal: its events one by one, its input by methods. It has one reader at a time. */
public final class TerminalConnection implements Iterator<TerminalEvent>, Iterable<TerminalEvent>, AutoCloseable {
    private static final int KIND_STDIN = 0;
    private static final int KIND_STDOUT = 1;
    private static final int KIND_STDERR = 2;
    private static final int KIND_REPLAY = 3;
    private static final int REPLAY_HEAD_BYTES = 9;

    /** Says that no close came over the wire (RFC 6455, section 7.1.5). */
    private static final int CLOSED_ABNORMALLY = 1006;

    /** Messages that may wait for a reader; the server is not read further while as many do. */
    private static final int WAITING_MAX = 64;

    /** Longer than any message of a terminal. */
    private static final int MESSAGE_BYTES_MAX = 16 * 1024 * 1024;

    /** A server that does not answer a close must not keep the connection. */
    private static final Duration CLOSE_TIME = Duration.ofSeconds(5);

    private final ArrayDeque<TerminalEvent> waiting = new ArrayDeque<>();
    private CompletableFuture<?> sent = CompletableFuture.completedFuture(null);
    private CompletableFuture<List<TerminalEvent>> reader;
    private WebSocket socket;
    private RuntimeException failure;
    private boolean isHeld;
    private boolean isOver;
    private boolean isClosing;
    private Runnable stopClosing = () -> {};
    private List<TerminalEvent> ready = List.of();
    private int readyAt;

    private TerminalConnection() {}

    /** Fails with what the JDK says where the handshake was refused. */
    static CompletableFuture<TerminalConnection> open(Target target, Call call) {
        return Task.start(task -> {
            Duration limit = target.config.requestTimeout();
            task.deadline(limit, () -> new TerminalException("no answer after " + Durations.text(limit), null));
            WebSocket.Builder builder = target.config.httpClient().newWebSocketBuilder();
            target.config.headers().forEach(builder::header);
            target.headers.forEach(builder::header);
            TerminalConnection connection = new TerminalConnection();
            URI address = URI.create(target.base.replaceFirst("^http", "ws") + call.path + "?" + call.query);
            CompletableFuture<WebSocket> opening = builder.buildAsync(address, connection.new Listener());
            // Too late for whoever asked.
            task.onEnd(() -> {
                if (task.isCompletedExceptionally()) opening.thenAccept(WebSocket::abort);
            });
            return opening.thenApply(socket -> connection);
        });
    }

    private final class Listener implements WebSocket.Listener {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final StringBuilder text = new StringBuilder();

        @Override
        public void onOpen(WebSocket opened) {
            socket = opened;
            opened.request(1);
        }

        @Override
        public CompletionStage<?> onBinary(WebSocket from, ByteBuffer data, boolean isLast) {
            byte[] piece = new byte[data.remaining()];
            data.get(piece);
            bytes.writeBytes(piece);
            if (isLast) {
                byte[] whole = bytes.toByteArray();
                bytes.reset();
                take(() -> binaryEvent(whole));
            } else {
                more(bytes.size());
            }
            return null;
        }

        @Override
        public CompletionStage<?> onText(WebSocket from, CharSequence data, boolean isLast) {
            text.append(data);
            if (isLast) {
                String whole = text.toString();
                text.setLength(0);
                take(() -> textEvent(whole));
            } else {
                more(text.length());
            }
            return null;
        }

        private void more(int length) {
            if (length > MESSAGE_BYTES_MAX) fail(new TerminalException("a message is longer than " + MESSAGE_BYTES_MAX + " bytes", null));
            else socket.request(1);
        }

        private void take(java.util.function.Supplier<TerminalEvent> read) {
            try {
                give(read.get());
            } catch (JsonException | TerminalException error) {
                fail(error instanceof TerminalException told ? told : new TerminalException("a message is not readable", error));
            }
        }

        @Override
        public CompletionStage<?> onClose(WebSocket from, int code, String reason) {
            stopClosing.run();
            if (code == CLOSED_ABNORMALLY) fail(new TerminalException("it broke off", null));
            else end(new TerminalEvent.Closed(code, reason), null);
            return null;
        }

        @Override
        public void onError(WebSocket from, Throwable error) {
            stopClosing.run();
            fail(new TerminalException("it broke off", error));
        }
    }

    /** Gives out an event, or passes over what is none, and reads on if the reader is not far behind. */
    private void give(TerminalEvent event) {
        CompletableFuture<List<TerminalEvent>> told = null;
        synchronized (this) {
            if (event != null && !isClosing) waiting.add(event);
            if (reader != null && !waiting.isEmpty()) {
                told = reader;
                reader = null;
            }
            isHeld = told == null && waiting.size() >= WAITING_MAX;
        }
        if (told != null) told.complete(drained());
        else if (!isHeld) socket.request(1);
    }

    /** Everything that waits, after which the server is read on. */
    private List<TerminalEvent> drained() {
        List<TerminalEvent> all;
        synchronized (this) {
            all = new ArrayList<>(waiting);
            waiting.clear();
            isHeld = false;
        }
        socket.request(1);
        return all;
    }

    private void fail(RuntimeException error) {
        end(null, error);
        socket.abort();
    }

    private void end(TerminalEvent last, RuntimeException error) {
        CompletableFuture<List<TerminalEvent>> told;
        synchronized (this) {
            if (isOver) return;
            isOver = true;
            if (last != null) waiting.add(last);
            failure = error;
            told = reader;
            reader = null;
        }
        if (told == null) return;
        if (error == null || !waiting.isEmpty()) told.complete(drained());
        else told.completeExceptionally(taken());
    }

    private synchronized RuntimeException taken() {
        RuntimeException error = failure;
        // Nothing comes after an error.
        failure = null;
        return error;
    }

    /** What has come since the last read, at least one event; an empty list after {@code Closed}. */
    public CompletableFuture<List<TerminalEvent>> readAsync() {
        synchronized (this) {
            if (waiting.isEmpty() && !isOver) {
                reader = new CompletableFuture<>();
                return reader;
            }
            if (waiting.isEmpty()) {
                RuntimeException error = taken();
                return error == null ? CompletableFuture.completedFuture(List.of()) : CompletableFuture.failedFuture(error);
            }
        }
        return CompletableFuture.completedFuture(drained());
    }

    @Override
    public Iterator<TerminalEvent> iterator() {
        return this;
    }

    /** Whether there is another event; waits for it. */
    @Override
    public boolean hasNext() {
        if (readyAt == ready.size()) {
            ready = await(readAsync());
            readyAt = 0;
        }
        return readyAt < ready.size();
    }

    /** What comes next; waits for it. */
    @Override
    public TerminalEvent next() {
        if (!hasNext()) throw new NoSuchElementException("the connection is closed");
        return ready.get(readyAt++);
    }

    /** Sends keystrokes. */
    public void write(String input) {
        write(input.getBytes(StandardCharsets.UTF_8));
    }

    /** Sends keystrokes. */
    public void write(byte[] input) {
        await(writeAsync(input));
    }

    /** {@link #write(byte[])} without blocking. */
    public CompletableFuture<Void> writeAsync(byte[] input) {
        byte[] frame = new byte[input.length + 1];
        frame[0] = KIND_STDIN;
        System.arraycopy(input, 0, frame, 1, input.length);
        return send(open -> open.sendBinary(ByteBuffer.wrap(frame), true));
    }

    /** Says that the window has a new size. */
    public void resize(int columns, int rows) {
        await(resizeAsync(columns, rows));
    }

    /** {@link #resize} without blocking. */
    public CompletableFuture<Void> resizeAsync(int columns, int rows) {
        return message(new PtyClientMessage("resize").withCols(columns).withRows(rows));
    }

    /** Sends one of the {@link dev.osb.wire.PtySignal signals} to what runs in front. */
    public void signal(String signal) {
        await(signalAsync(signal));
    }

    /** {@link #signal} without blocking. */
    public CompletableFuture<Void> signalAsync(String signal) {
        return message(new PtyClientMessage("signal").withSignal(signal));
    }

    /** Asks the daemon for a sign of life, which says in turn that this client lives. */
    public void ping() {
        await(pingAsync());
    }

    /** {@link #ping} without blocking. */
    public CompletableFuture<Void> pingAsync() {
        return message(new PtyClientMessage("ping"));
    }

    private CompletableFuture<Void> message(PtyClientMessage message) {
        return send(open -> open.sendText(Json.write(message), true));
    }

    /** A WebSocket sends one message after the other, and refuses a second at once. */
    private synchronized CompletableFuture<Void> send(Function<WebSocket, CompletableFuture<WebSocket>> act) {
        if (isOver || socket.isOutputClosed()) return CompletableFuture.failedFuture(new TerminalException("it is closed", null));
        CompletableFuture<WebSocket> next = sent.handle((before, error) -> null).thenCompose(nothing -> act.apply(socket));
        sent = next;
        return next.handle((done, error) -> {
            if (error != null) throw new TerminalException("nothing can be sent any more", Task.unwrapped(error));
            return null;
        });
    }

    /** Leaves the terminal, which goes on without a client. What comes until the server agrees is passed over. */
    @Override
    public synchronized void close() {
        if (isOver || isClosing) return;
        isClosing = true;
        stopClosing = Task.after(CLOSE_TIME, socket::abort);
        sent = sent.handle((before, error) -> null).thenCompose(nothing -> socket.sendClose(WebSocket.NORMAL_CLOSURE, ""));
        // A server whose messages were held up is read to its close.
        if (isHeld) {
            waiting.clear();
            isHeld = false;
            socket.request(1);
        }
    }

    private static TerminalEvent binaryEvent(byte[] frame) {
        int kind = frame.length == 0 ? -1 : frame[0];
        ByteBuffer rest = ByteBuffer.wrap(frame);
        switch (kind) {
            case KIND_STDOUT:
                return new TerminalEvent.Output(java.util.Arrays.copyOfRange(frame, 1, frame.length));
            case KIND_STDERR:
                return new TerminalEvent.ErrorOutput(java.util.Arrays.copyOfRange(frame, 1, frame.length));
            case KIND_REPLAY:
                if (frame.length < REPLAY_HEAD_BYTES) break;
                return new TerminalEvent.Replay(rest.getLong(1), java.util.Arrays.copyOfRange(frame, REPLAY_HEAD_BYTES, frame.length));
            default:
                break;
        }
        throw new TerminalException("a frame begins with byte " + kind + ", which is no kind of frame", null);
    }

    private static TerminalEvent textEvent(String text) {
        PtyServerMessage message = PtyServerMessage.fromJson(Json.parse(text));
        return switch (message.type()) {
            case "connected" -> new TerminalEvent.Connected();
            case "error" -> new TerminalEvent.Refused(message.code(), message.error());
            case "exit" -> new TerminalEvent.Exit(message.exitCode(), message.signal());
            default -> null;
        };
    }
}
