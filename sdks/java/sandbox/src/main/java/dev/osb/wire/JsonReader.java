package dev.osb.wire;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * Reads JSON from UTF-8 bytes, value by value, for streams of hundreds of thousands of objects a second: an object
 * is {@link #object}, then {@link #name} until it answers null, each followed by one of {@link #text}, {@link #wide},
 * {@link #value} and {@link #skip}. One reader serves many texts, and keeps the names it has seen.
 */
public final class JsonReader {
    /** Deeper is a fault or an attack, and would end in an overflow of the stack. */
    private static final int DEPTH_MAX = 512;

    /** A power of two, several times as many as the names of the protocol. */
    private static final int NAMES = 256;

    private static final Pattern NUMBER = Pattern.compile("-?\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?");

    private final String[] names = new String[NAMES];
    private byte[] bytes = {};
    private byte[] scratch = new byte[256];
    private int at;
    private int limit;
    private int depth;
    private boolean isFirst;

    /** At no text yet. */
    public JsonReader() {}

    /** Begins a text: these bytes, which are read and not kept. */
    public void begin(byte[] utf8, int start, int end) {
        bytes = utf8;
        at = start;
        limit = end;
        depth = 0;
    }

    /** Sees to it that nothing follows. */
    public void end() {
        if (next() != 0) throw wrong("something follows the value");
    }

    /** Enters an object. */
    public void object() {
        if (next() != '{') throw wrong("an object should begin");
        at++;
        isFirst = true;
    }

    /** The next name in an object; null at its end. */
    public String name() {
        int c = next();
        if (c == '}') {
            at++;
            isFirst = false;
            return null;
        }
        if (!isFirst) {
            if (c != ',') throw wrong("a comma or the object's end is missing");
            at++;
            c = next();
        }
        if (c != '"') throw wrong("a name should begin");
        isFirst = false;
        String name = knownName();
        if (next() != ':') throw wrong("a colon is missing");
        at++;
        return name;
    }

    /** A name without making its text anew each time. */
    private String knownName() {
        int start = at + 1;
        int hash = 0;
        int end = start;
        while (end < limit && bytes[end] != '"') {
            if (bytes[end] == '\\' || bytes[end] < 0x20) return text();
            hash = 31 * hash + bytes[end++];
        }
        if (end >= limit) throw wrong("a name does not end");
        int slot = (hash ^ hash >>> 8) & NAMES - 1;
        String known = names[slot];
        at = end + 1;
        if (known != null && known.length() == end - start) {
            int same = 0;
            while (same < known.length() && known.charAt(same) == bytes[start + same]) same++;
            if (same == known.length()) return known;
        }
        known = new String(bytes, start, end - start, StandardCharsets.UTF_8);
        if (known.length() == end - start) names[slot] = known;
        return known;
    }

    /** A text; null for null. */
    public String text() {
        int c = next();
        if (c == 'n') return (String) word("null", null);
        if (c != '"') throw wrong("a text should begin");
        int start = ++at;
        while (at < limit) {
            byte b = bytes[at];
            if (b == '"') return new String(bytes, start, at++ - start, StandardCharsets.UTF_8);
            if (b == '\\') return escaped(start);
            if (b >= 0 && b < 0x20) throw wrong("a control character is not escaped");
            at++;
        }
        throw wrong("a text does not end");
    }

    private String escaped(int start) {
        int length = at - start;
        if (scratch.length < length + 4) scratch = new byte[length + 256];
        System.arraycopy(bytes, start, scratch, 0, length);
        while (at < limit) {
            if (scratch.length < length + 4) scratch = Arrays.copyOf(scratch, scratch.length * 2);
            byte b = bytes[at++];
            if (b == '"') return new String(scratch, 0, length, StandardCharsets.UTF_8);
            if (b >= 0 && b < 0x20) throw wrong("a control character is not escaped");
            if (b != '\\') scratch[length++] = b;
            else length = escape(length);
        }
        throw wrong("a text does not end");
    }

    private int escape(int length) {
        if (at >= limit) throw wrong("a text does not end");
        byte b = bytes[at++];
        switch (b) {
            case '"', '\\', '/' -> scratch[length] = b;
            case 'n' -> scratch[length] = '\n';
            case 't' -> scratch[length] = '\t';
            case 'r' -> scratch[length] = '\r';
            case 'b' -> scratch[length] = '\b';
            case 'f' -> scratch[length] = '\f';
            case 'u' -> {
                return unicode(length);
            }
            default -> throw wrong("an escape is unknown");
        }
        return length + 1;
    }

    private int unicode(int length) {
        int code = hex();
        if (Character.isHighSurrogate((char) code) && at + 1 < limit && bytes[at] == '\\' && bytes[at + 1] == 'u') {
            int before = at;
            at += 2;
            int low = hex();
            if (Character.isLowSurrogate((char) low)) code = Character.toCodePoint((char) code, (char) low);
            else at = before;
        }
        // Half a pair is no character.
        if (code >= Character.MIN_SURROGATE && code <= Character.MAX_SURROGATE) code = 0xFFFD;
        if (code < 0x80) {
            scratch[length++] = (byte) code;
        } else {
            int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
            int head = more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0;
            scratch[length++] = (byte) (head | code >> 6 * more);
            while (more-- > 0) scratch[length++] = (byte) (0x80 | code >> 6 * more & 0x3F);
        }
        return length;
    }

    private int hex() {
        if (at + 4 > limit) throw wrong("a text does not end");
        int code = 0;
        for (int end = at + 4; at < end; at++) {
            int digit = Character.digit(bytes[at], 16);
            if (digit < 0) throw wrong("an escape is unknown");
            code = code << 4 | digit;
        }
        return code;
    }

    /** A whole number; null for null. */
    public Long wide() {
        Object value = value();
        if (value == null || value instanceof Long) return (Long) value;
        throw wrong("a whole number should stand here");
    }

    /** Passes over a value. */
    public void skip() {
        value();
    }

    /** Any value. */
    public Object value() {
        int c = next();
        return switch (c) {
            case '"' -> text();
            case '{' -> map();
            case '[' -> list();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            case 0 -> throw wrong("a value is missing");
            default -> number();
        };
    }

    private Map<String, Object> map() {
        deeper();
        object();
        Map<String, Object> map = new LinkedHashMap<>();
        for (String name = name(); name != null; name = name()) map.put(name, value());
        depth--;
        return map;
    }

    private List<Object> list() {
        deeper();
        at++;
        List<Object> list = new ArrayList<>();
        if (next() == ']') {
            at++;
        } else {
            for (int c = ','; c == ','; at++) {
                list.add(value());
                c = next();
                if (c != ',' && c != ']') throw wrong("a comma or the list's end is missing");
            }
        }
        depth--;
        return list;
    }

    private void deeper() {
        if (++depth > DEPTH_MAX) throw wrong("it is deeper than " + DEPTH_MAX + " levels");
    }

    private Object word(String word, Object value) {
        for (int i = 0; i < word.length(); i++, at++) {
            if (at >= limit || bytes[at] != word.charAt(i)) throw wrong("a value is unknown");
        }
        return value;
    }

    private Object number() {
        int start = at;
        boolean isWhole = true;
        if (at < limit && bytes[at] == '-') at++;
        int digits = at;
        long whole = 0;
        while (at < limit) {
            byte b = bytes[at];
            if (b >= '0' && b <= '9') whole = 10 * whole + b - '0';
            else if (b == '.' || b == 'e' || b == 'E' || b == '+' || b == '-') isWhole = false;
            else break;
            at++;
        }
        int length = at - digits;
        boolean isPadded = length > 1 && bytes[digits] == '0' && bytes[digits + 1] >= '0' && bytes[digits + 1] <= '9';
        if (length == 0 || isPadded || bytes[digits] < '0') throw wrong("a value is unknown");
        if (isWhole && length <= 18) return digits > start ? -whole : whole;
        String text = new String(bytes, start, at - start, StandardCharsets.ISO_8859_1);
        if (!NUMBER.matcher(text).matches()) throw wrong("a number is not one");
        // More digits than a long holds are a number all the same.
        return isWhole && new BigInteger(text).bitLength() < 64 ? (Object) Long.parseLong(text) : Double.parseDouble(text);
    }

    /** The next byte that is not blank, without passing it; 0 at the end. */
    private int next() {
        while (at < limit) {
            byte b = bytes[at];
            if (b != ' ' && b != '\n' && b != '\r' && b != '\t') return b == 0 ? -1 : b;
            at++;
        }
        return 0;
    }

    private JsonException wrong(String message) {
        return new JsonException(message + ", at byte " + at);
    }
}
