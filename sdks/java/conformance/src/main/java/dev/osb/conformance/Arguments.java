package dev.osb.conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** What a call is made with. Absent and null are the same, except where {@link #has} is asked. */
public record Arguments(Map<?, ?> json) {
    public boolean has(String name) {
        return json.containsKey(name);
    }

    public Object get(String name) {
        return json.get(name);
    }

    public String text(String name) {
        return (String) json.get(name);
    }

    public Long wide(String name) {
        return json.get(name) instanceof Number number ? (Long) number.longValue() : null;
    }

    public Integer integer(String name) {
        return json.get(name) instanceof Number number ? (Integer) number.intValue() : null;
    }

    public boolean flag(String name) {
        return Boolean.TRUE.equals(json.get(name));
    }

    /** A number of milliseconds. */
    public Duration milliseconds(String name) {
        return json.get(name) instanceof Number number ? Duration.ofMillis(number.longValue()) : null;
    }

    /** A number of seconds. */
    public Duration seconds(String name) {
        return json.get(name) instanceof Number number ? Duration.ofMillis(Math.round(number.doubleValue() * 1000)) : null;
    }

    /** Octal digits. */
    public Integer octal(String name) {
        return text(name) == null ? null : Integer.valueOf(text(name), 8);
    }

    public List<String> texts(String name) {
        return list(name, String.class::cast);
    }

    public <T> List<T> list(String name, Function<Object, T> read) {
        List<T> items = new ArrayList<>();
        if (json.get(name) instanceof List<?> given) given.forEach(item -> items.add(read.apply(item)));
        return items;
    }

    /** Names and texts. */
    public Map<String, String> map(String name) {
        Map<String, String> entries = new LinkedHashMap<>();
        if (json.get(name) instanceof Map<?, ?> given) {
            given.forEach((key, value) -> entries.put((String) key, value == null ? null : value.toString()));
        }
        return entries;
    }

    /** A type of the protocol, or null. */
    public <T> T wire(String name, Function<Object, T> read) {
        return json.get(name) == null ? null : read.apply(json.get(name));
    }

    /** Text or base64, as what a file is to contain. */
    public byte[] contents() {
        if (text("base64") != null) return Base64.getDecoder().decode(text("base64"));
        return (text("text") == null ? "" : text("text")).getBytes(java.nio.charset.StandardCharsets.UTF_8);
    }
}
