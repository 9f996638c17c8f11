package dev.osb.wire;

import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Reads the fields of one JSON object; what is not as the protocol says is a {@link JsonException}. */
final class Fields {
    private final Map<?, ?> json;
    private final String type;

    Fields(Object json, String type) {
        if (!(json instanceof Map<?, ?> map)) throw new JsonException(type + " is not a JSON object");
        this.json = map;
        this.type = type;
    }

    <T> T required(String name, Function<Object, T> read) {
        T value = optional(name, read);
        if (value == null) throw new JsonException("the field " + name + " of " + type + " is missing");
        return value;
    }

    <T> T optional(String name, Function<Object, T> read) {
        Object value = json.get(name);
        if (value == null) return null;
        try {
            return read.apply(value);
        } catch (ClassCastException | DateTimeParseException error) {
            throw new JsonException("the field " + name + " of " + type + " is something else: " + error.getMessage());
        }
    }

    static String text(Object value) {
        return (String) value;
    }

    static Long wide(Object value) {
        return ((Number) value).longValue();
    }

    static Integer integer(Object value) {
        return ((Number) value).intValue();
    }

    static Double number(Object value) {
        return ((Number) value).doubleValue();
    }

    static Boolean truth(Object value) {
        return (Boolean) value;
    }

    static Instant time(Object value) {
        return OffsetDateTime.parse((String) value).toInstant();
    }

    static Object any(Object value) {
        return value;
    }

    static <T> List<T> list(Object value, Function<Object, T> read) {
        List<T> items = new ArrayList<>();
        for (Object item : (List<?>) value) items.add(item == null ? null : read.apply(item));
        return items;
    }

    static <T> Map<String, T> map(Object value, Function<Object, T> read) {
        Map<String, T> entries = new LinkedHashMap<>();
        ((Map<?, ?>) value).forEach((name, item) -> entries.put((String) name, item == null ? null : read.apply(item)));
        return entries;
    }

    /** Puts a value that is there. */
    static void put(Map<String, Object> json, String name, Object value) {
        if (value != null) json.put(name, value);
    }
}
