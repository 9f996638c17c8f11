package dev.osb;

import dev.osb.wire.Json;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A value of code in every form it has, and the forms that programs use as types. */
public final class RichResult {
    /** The richest form of a result. */
    public enum Kind {
        /** A picture. */
        FIGURE,
        /** Rows of cells. */
        TABLE,
        /** Plain text. */
        TEXT,
        /** Something else. */
        OTHER
    }

    /**
     * A picture that code made.
     *
     * @param mediaType {@code image/png}, {@code image/svg+xml}
     * @param bytes the picture's own bytes
     */
    public record Figure(String mediaType, byte[] bytes) {}

    /** Forms of pictures, the sharpest first. */
    private static final List<String> FIGURE_TYPES = List.of("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp");

    private static final Pattern TABLE = Pattern.compile("<table[\\s>]", Pattern.CASE_INSENSITIVE);
    private static final Pattern ROW = Pattern.compile("<tr[\\s>].*?</tr>", Pattern.CASE_INSENSITIVE | Pattern.DOTALL);
    private static final Pattern CELL = Pattern.compile("<t[hd][\\s>].*?</t[hd]>", Pattern.CASE_INSENSITIVE | Pattern.DOTALL);
    private static final Pattern ENTITY = Pattern.compile("&(#x?[0-9a-f]+|[a-z]+);", Pattern.CASE_INSENSITIVE);
    private static final Map<String, String> ENTITIES =
        Map.of("amp", "&", "lt", "<", "gt", ">", "quot", "\"", "apos", "'", "nbsp", "\u00a0");

    private final Map<String, String> byType;
    private final Integer count;

    RichResult(Map<?, ?> forms, Integer count) {
        Map<String, String> texts = new LinkedHashMap<>();
        // What arrives as another JSON value is kept as its text.
        forms.forEach((type, value) -> texts.put((String) type, value instanceof String text ? text : Json.write(value)));
        byType = java.util.Collections.unmodifiableMap(texts);
        this.count = count;
    }

    /** By media type: text as it is, images as base64. */
    public Map<String, String> byType() {
        return byType;
    }

    /** Which cell it is the value of; null for a display. */
    public Integer count() {
        return count;
    }

    /** The richest form it has. */
    public Kind kind() {
        if (figureType() != null) return Kind.FIGURE;
        if (hasTable()) return Kind.TABLE;
        return text() == null ? Kind.OTHER : Kind.TEXT;
    }

    private String figureType() {
        return FIGURE_TYPES.stream().filter(byType::containsKey).findFirst().orElse(null);
    }

    private boolean hasTable() {
        return html() != null && TABLE.matcher(html()).find();
    }

    /** The value as plain text, or null. */
    public String text() {
        return byType.getOrDefault("text/plain", byType.get("text"));
    }

    /** The value as HTML, or null. */
    public String html() {
        return byType.get("text/html");
    }

    /** The value as Markdown, or null. */
    public String markdown() {
        return byType.get("text/markdown");
    }

    /** The value as JSON: maps, lists, text, numbers; null if it has no such form. */
    public Object json() {
        String text = byType.get("application/json");
        return text == null ? null : Json.parse(text);
    }

    /** The value in this form, or null. */
    public String get(String mediaType) {
        return byType.get(mediaType);
    }

    /** The value as a picture, or null. */
    public Figure figure() {
        String type = figureType();
        if (type == null) return null;
        String text = byType.get(type);
        // SVG is text; whatever is not, comes as base64.
        boolean isText = type.equals("image/svg+xml");
        return new Figure(type, isText ? text.getBytes(StandardCharsets.UTF_8) : Base64.getMimeDecoder().decode(text));
    }

    /** The value as a table, where its HTML has one, as data frames have: rows of cells, the head first. Else null. */
    public List<List<String>> table() {
        if (!hasTable()) return null;
        List<List<String>> rows = new ArrayList<>();
        for (Matcher row = ROW.matcher(html()); row.find();) {
            List<String> cells = new ArrayList<>();
            for (Matcher cell = CELL.matcher(row.group()); cell.find();) cells.add(plainText(cell.group()).strip());
            rows.add(cells);
        }
        return rows;
    }

    private static String plainText(String html) {
        return ENTITY.matcher(html.replaceAll("<[^>]*>", "")).replaceAll(found -> Matcher.quoteReplacement(entity(found.group(1), found.group())));
    }

    private static String entity(String name, String whole) {
        if (!name.startsWith("#")) return ENTITIES.getOrDefault(name.toLowerCase(Locale.ROOT), whole);
        boolean isHex = name.startsWith("#x") || name.startsWith("#X");
        try {
            int code = Integer.parseInt(name.substring(isHex ? 2 : 1), isHex ? 16 : 10);
            return Character.isValidCodePoint(code) ? Character.toString(code) : whole;
        } catch (NumberFormatException error) {
            return whole;
        }
    }

    @Override
    public String toString() {
        return "RichResult[" + kind() + ", " + byType.keySet() + "]";
    }
}
