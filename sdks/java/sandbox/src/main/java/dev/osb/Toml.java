package dev.osb;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** As much of TOML 1.0 as the command line's file has: tables, dotted keys, text of one line, numbers, truths, arrays. */
final class Toml {
    private static final Pattern BLANK = Pattern.compile("[ \\t]*");
    private static final Pattern BLANK_LINES = Pattern.compile("(?:[ \\t\\r\\n]|#[^\\n]*)*");
    private static final Pattern LINE_END = Pattern.compile("[ \\t]*(?:#[^\\n]*)?(?:\\r?\\n|$)");
    private static final Pattern BARE_KEY = Pattern.compile("[A-Za-z0-9_-]+");
    private static final Pattern WORD = Pattern.compile("[A-Za-z0-9+\\-_.:]+");
    private static final Pattern LITERAL = Pattern.compile("'[^'\\n]*'");
    private static final Pattern BASIC = Pattern.compile("\"(?:[^\"\\\\\\n]|\\\\.)*\"");
    private static final Pattern ESCAPE = Pattern.compile("\\\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)");

    private final String text;
    private int at;

    private Toml(String text) {
        this.text = text;
    }

    /** Text is not TOML, or more of it than is read here. */
    static final class TomlException extends RuntimeException {
        private static final long serialVersionUID = 1;

        TomlException(String message) {
            super(message);
        }
    }

    static Map<String, Object> parse(String text) {
        Toml toml = new Toml(text);
        Map<String, Object> root = new LinkedHashMap<>();
        Map<String, Object> table = root;
        for (toml.match(BLANK_LINES); toml.at < text.length(); toml.match(BLANK_LINES)) {
            if (text.startsWith("[[", toml.at)) throw toml.wrong("arrays of tables are not supported here");
            if (toml.take("[")) {
                table = toml.descend(root, toml.keys());
                toml.expect("]");
            } else {
                toml.entry(table);
            }
            if (toml.match(LINE_END) == null) throw toml.wrong("expected the end of the line");
        }
        return root;
    }

    private void entry(Map<String, Object> table) {
        List<String> keys = keys();
        expect("=");
        String last = keys.remove(keys.size() - 1);
        Map<String, Object> place = descend(table, keys);
        if (place.containsKey(last)) throw wrong(last + " is set twice");
        place.put(last, value());
    }

    @SuppressWarnings("unchecked") // Every map in the tree was made here.
    private Map<String, Object> descend(Map<String, Object> table, List<String> keys) {
        Map<String, Object> place = table;
        for (String key : keys) {
            Object next = place.computeIfAbsent(key, name -> new LinkedHashMap<String, Object>());
            if (!(next instanceof Map)) throw wrong(key + " is not a table");
            place = (Map<String, Object>) next;
        }
        return place;
    }

    private List<String> keys() {
        List<String> keys = new ArrayList<>();
        do {
            match(BLANK);
            String bare = match(BARE_KEY);
            keys.add(bare == null ? string() : bare);
            match(BLANK);
        } while (take("."));
        return keys;
    }

    private Object value() {
        match(BLANK);
        if (take("[")) return array();
        if (take("{")) return inlineTable();
        String word = match(WORD);
        if (word == null) return string();
        if (word.equals("true") || word.equals("false")) return word.equals("true");
        String digits = word.replace("_", "");
        try {
            if (digits.startsWith("0x")) return Long.parseLong(digits.substring(2), 16);
            if (digits.startsWith("0o")) return Long.parseLong(digits.substring(2), 8);
            if (digits.startsWith("0b")) return Long.parseLong(digits.substring(2), 2);
            if (digits.matches("[+-]?\\d+")) return Long.parseLong(digits);
            if (digits.matches("[+-]?\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?")) return Double.parseDouble(digits);
        } catch (NumberFormatException error) {
            // Told below.
        }
        throw wrong(Text.quoted(word) + " is not a value; text stands in quotes");
    }

    private List<Object> array() {
        List<Object> items = new ArrayList<>();
        for (;;) {
            match(BLANK_LINES);
            if (take("]")) return items;
            items.add(value());
            match(BLANK_LINES);
            if (take("]")) return items;
            expect(",");
        }
    }

    private Map<String, Object> inlineTable() {
        Map<String, Object> table = new LinkedHashMap<>();
        match(BLANK);
        if (take("}")) return table;
        do {
            entry(table);
            match(BLANK);
        } while (take(","));
        expect("}");
        return table;
    }

    private String string() {
        if (text.startsWith("\"\"\"", at) || text.startsWith("'''", at)) {
            throw wrong("text of several lines is not supported here");
        }
        String literal = match(LITERAL);
        if (literal != null) return literal.substring(1, literal.length() - 1);
        String basic = match(BASIC);
        if (basic == null) throw wrong("expected text in quotes");
        return ESCAPE.matcher(basic.substring(1, basic.length() - 1))
            .replaceAll(found -> Matcher.quoteReplacement(escaped(found.group(1))));
    }

    private String escaped(String escape) {
        if (escape.length() > 1) return Character.toString(Integer.parseInt(escape.substring(1), 16));
        return switch (escape) {
            case "b" -> "\b";
            case "t" -> "\t";
            case "n" -> "\n";
            case "f" -> "\f";
            case "r" -> "\r";
            case "\"", "\\" -> escape;
            default -> throw wrong("\\" + escape + " is not an escape");
        };
    }

    private boolean take(String sign) {
        if (!text.startsWith(sign, at)) return false;
        at += sign.length();
        return true;
    }

    private void expect(String sign) {
        match(BLANK);
        if (!take(sign)) throw wrong("expected " + Text.quoted(sign));
    }

    private String match(Pattern pattern) {
        Matcher matcher = pattern.matcher(text).region(at, text.length());
        if (!matcher.lookingAt()) return null;
        at = matcher.end();
        return matcher.group();
    }

    private TomlException wrong(String message) {
        long line = text.substring(0, at).chars().filter(c -> c == '\n').count() + 1;
        return new TomlException("line " + line + ": " + message);
    }
}
