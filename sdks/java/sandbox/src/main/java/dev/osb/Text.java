package dev.osb;

import dev.osb.wire.Json;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

/** Text in messages, paths, queries and settings. */
final class Text {
    private Text() {}

    /** As it stands in a message. */
    static String quoted(String text) {
        return Json.write(text);
    }

    /** An id as a segment of a path. What would lead to another path is refused. */
    static String segment(String id) {
        if (id.isEmpty() || id.equals(".") || id.equals("..")) throw new InvalidArgumentException(quoted(id) + " is not an id");
        return encoded(id);
    }

    /** A query from names and values, in turn; those without a value are left out. */
    static String query(Object... pairs) {
        StringBuilder query = new StringBuilder();
        for (int at = 0; at < pairs.length; at += 2) {
            if (pairs[at + 1] == null) continue;
            if (query.length() > 0) query.append('&');
            query.append(encoded(pairs[at].toString())).append('=').append(encoded(pairs[at + 1].toString()));
        }
        return query.toString();
    }

    /** Everything but letters, digits and {@code -_.~}, which RFC 3986 leaves alone, is encoded. */
    static String encoded(String text) {
        StringBuilder out = new StringBuilder(text.length());
        for (byte b : text.getBytes(StandardCharsets.UTF_8)) {
            boolean isPlain = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || "-_.~".indexOf(b) >= 0;
            if (isPlain) out.append((char) b);
            else out.append('%').append(String.format("%02X", b));
        }
        return out.toString();
    }

    /** A number; null for what is none. */
    static Double number(String text) {
        try {
            return text == null ? null : Double.valueOf(text);
        } catch (NumberFormatException error) {
            return null;
        }
    }

    /** Yes or no; null for what is neither. */
    static Boolean flag(String text) {
        return switch (text == null ? "" : text.toLowerCase(Locale.ROOT)) {
            case "1", "true", "yes", "on" -> true;
            case "0", "false", "no", "off" -> false;
            default -> null;
        };
    }
}
