package dev.osb;

import dev.osb.wire.JsonException;
import dev.osb.wire.JsonReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/**
 * The events of one stream: bare JSON lines, {@code data:} lines, and plain server-sent events, in whatever pieces they
 * arrive. Holds at most one event.
 */
final class EventDecoder {
    /** Longer than any event we send; the published daemon sends whole lines, however long. */
    private static final int EVENT_BYTES_MAX = 16 * 1024 * 1024;

    /** As much of a line as goes into an error. */
    private static final int EXCERPT_BYTES = 80;

    private final String what;
    private final Consumer<JsonReader> take;
    private final JsonReader reader = new JsonReader();
    /** The line that is arriving, from {@code begin} up to {@code end}. */
    private byte[] bytes = new byte[32 * 1024];
    private int begin;
    private int end;
    /** The {@code data:} lines of the event that is arriving. */
    private byte[] data = {};
    private boolean hasData;

    /** The events go to {@code take} as text that a reader is at the beginning of. */
    EventDecoder(String what, Consumer<JsonReader> take) {
        this.what = what;
        this.take = take;
    }

    /** Gives out the events that these pieces complete. */
    void push(List<ByteBuffer> pieces) {
        for (ByteBuffer piece : pieces) {
            int searched = append(piece);
            for (int at = searched; at < end; at++) {
                if (bytes[at] != '\n') continue;
                line(begin, at > begin && bytes[at - 1] == '\r' ? at - 1 : at);
                begin = at + 1;
            }
            if (end - begin > EVENT_BYTES_MAX) throw tooLong();
        }
    }

    /**
     * Ends the stream: an event that lacks its empty line or even its line end counts, as clients of the published
     * daemon take such an event too.
     */
    void finish() {
        if (end > begin) line(begin, end);
        begin = end;
        line(end, end);
    }

    /** Keeps the line that is arriving at the front, and answers where the new bytes begin. */
    private int append(ByteBuffer piece) {
        int kept = end - begin;
        int needed = kept + piece.remaining();
        byte[] place = needed > bytes.length ? new byte[Math.max(needed, 2 * bytes.length)] : bytes;
        System.arraycopy(bytes, begin, place, 0, kept);
        bytes = place;
        piece.get(bytes, kept, needed - kept);
        begin = 0;
        end = needed;
        return kept;
    }

    private void line(int from, int to) {
        if (from == to) {
            if (!hasData) return;
            hasData = false;
            byte[] whole = data;
            data = new byte[0];
            event(whole, 0, whole.length);
            return;
        }
        int first = from;
        while (first < to && (bytes[first] == ' ' || bytes[first] == '\t')) first++;
        if (first < to && (bytes[first] == '{' || bytes[first] == '[')) event(bytes, first, to);
        else field(from, to);
    }

    /** A field of server-sent events, of which only data says anything here. */
    private void field(int from, int to) {
        int colon = from;
        while (colon < to && isNamePart(bytes[colon])) colon++;
        if (colon == to || bytes[colon] != ':') {
            String excerpt = new String(bytes, from, Math.min(to - from, EXCERPT_BYTES), StandardCharsets.UTF_8);
            throw new UnreadableException(what, "a line is neither JSON nor a field of server-sent events: " + Text.quoted(excerpt), null);
        }
        if (colon - from != 4 || !new String(bytes, from, 4, StandardCharsets.US_ASCII).equals("data")) return;
        int value = colon + 1 < to && bytes[colon + 1] == ' ' ? colon + 2 : colon + 1;
        int before = hasData ? data.length + 1 : 0;
        if (before + to - value > EVENT_BYTES_MAX) throw tooLong();
        byte[] more = Arrays.copyOf(data, before + to - value);
        if (hasData) more[before - 1] = '\n';
        System.arraycopy(bytes, value, more, before, to - value);
        data = more;
        hasData = true;
    }

    private static boolean isNamePart(byte b) {
        return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-';
    }

    private void event(byte[] text, int from, int to) {
        try {
            reader.begin(text, from, to);
            take.accept(reader);
            reader.end();
        } catch (JsonException error) {
            throw new UnreadableException(what, "an event is not JSON: " + error.getMessage(), error);
        }
    }

    private UnreadableException tooLong() {
        return new UnreadableException(what, "an event is longer than " + EVENT_BYTES_MAX + " bytes", null);
    }
}
