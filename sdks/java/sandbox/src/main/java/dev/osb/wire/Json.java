package dev.osb.wire;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * JSON (RFC 8259) as plain values: {@code Map<String, Object>}, {@code List<Object>}, {@code String}, {@code Long},
 * {@code Double}, {@code Boolean} and null.
 */
public final class Json {
    private Json() {}

    /** Reads one value, and nothing else, from UTF-8 text. */
    public static Object parse(byte[] utf8) {
        JsonReader reader = new JsonReader();
        reader.begin(utf8, 0, utf8.length);
        Object value = reader.value();
        reader.end();
        return value;
    }

    /** Reads one value, and nothing else. */
    public static Object parse(String text) {
        return parse(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Writes a value: what {@link #parse} gives, other numbers, times, and types of the protocol. */
    public static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value instanceof String text) {
            writeText(out, text);
        } else if (value instanceof WireType type) {
            write(out, type.toJson());
        } else if (value instanceof Map<?, ?> map) {
            String before = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                out.append(before);
                writeText(out, (String) entry.getKey());
                write(out.append(':'), entry.getValue());
                before = ",";
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof List<?> list) {
            String before = "[";
            for (Object item : list) {
                write(out.append(before), item);
                before = ",";
            }
            out.append(list.isEmpty() ? "[]" : "]");
        } else if (value instanceof Instant time) {
            writeText(out, time.toString());
        } else if (value instanceof Double number && !Double.isFinite(number)) {
            throw new JsonException(number + " is no number of JSON");
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            throw new JsonException(value.getClass().getName() + " has no form in JSON");
        }
    }

    private static void writeText(StringBuilder out, String text) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            switch (c) {
                case '"', '\\' -> out.append('\\').append(c);
                case '\n' -> out.append("\\n");
                case '\r' -> out.append("\\r");
                case '\t' -> out.append("\\t");
                default -> {
                    // Half a pair of surrogates has no form in UTF-8.
                    boolean isHalf = Character.isSurrogate(c) && !isPaired(text, at);
                    if (c < 0x20 || isHalf) out.append(String.format("\\u%04x", (int) c));
                    else out.append(c);
                }
            }
        }
        out.append('"');
    }

    private static boolean isPaired(String text, int at) {
        char c = text.charAt(at);
        return Character.isHighSurrogate(c)
            ? at + 1 < text.length() && Character.isLowSurrogate(text.charAt(at + 1))
            : at > 0 && Character.isHighSurrogate(text.charAt(at - 1));
    }
}
