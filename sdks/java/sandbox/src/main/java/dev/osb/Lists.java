package dev.osb;

import dev.osb.wire.JsonException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Answers that are lists and maps of types of the protocol. */
final class Lists {
    private Lists() {}

    /** Reads a list. */
    static <T> Function<Object, List<T>> of(Function<Object, T> read) {
        return json -> {
            if (!(json instanceof List<?> items)) throw new JsonException("it is not a list");
            List<T> list = new ArrayList<>();
            items.forEach(item -> list.add(read.apply(item)));
            return list;
        };
    }

    /** Reads a map. */
    static <T> Function<Object, Map<String, T>> byName(Function<Object, T> read) {
        return json -> {
            if (!(json instanceof Map<?, ?> entries)) throw new JsonException("it is not an object");
            Map<String, T> map = new LinkedHashMap<>();
            entries.forEach((name, value) -> map.put((String) name, read.apply(value)));
            return map;
        };
    }
}
