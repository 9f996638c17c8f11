package dev.osb;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * POSIX tar (IEEE Std 1003.1-2017, pax) written and read as streams: files, directories and links; devices and sparse
 * files are passed over when read.
 */
final class Tar {
    static final int BLOCK = 512;

    /** Names and links longer than a header holds, and sizes above 8 GiB, go into a pax record. */
    private static final int NAME_BYTES_MAX = 100;
    private static final long SIZE_MAX = (1L << 33) - 1;

    /** A pax record of a name is at most this long; more is a fault or an attack. */
    private static final int PAX_BYTES_MAX = 1024 * 1024;

    private Tar() {}

    /** What an entry is. */
    enum Type { FILE, DIRECTORY, SYMLINK, LINK }

    /** An entry: its relative path without a slash at the end, its permission bits, its size, and where a link leads. */
    record Entry(String name, Type type, int mode, long modifiedSeconds, long size, String target) {}

    /** What pads contents to whole blocks. */
    static int padding(long size) {
        return (int) ((BLOCK - size % BLOCK) % BLOCK);
    }

    /** The header of an entry, with its pax record where one is needed. */
    static byte[] header(Entry entry) {
        String name = entry.type == Type.DIRECTORY ? entry.name + "/" : entry.name;
        String target = entry.target == null ? "" : entry.target;
        StringBuilder records = new StringBuilder();
        if (utf8(name).length > NAME_BYTES_MAX) records.append(record("path", name));
        if (utf8(target).length > NAME_BYTES_MAX) records.append(record("linkpath", target));
        if (entry.size > SIZE_MAX) records.append(record("size", String.valueOf(entry.size)));
        char flag = switch (entry.type) {
            case FILE -> '0';
            case LINK -> '1';
            case SYMLINK -> '2';
            case DIRECTORY -> '5';
        };
        byte[] own = block(name, entry.mode, entry.size > SIZE_MAX ? 0 : entry.size, entry.modifiedSeconds, flag, target);
        if (records.length() == 0) return own;
        byte[] text = utf8(records.toString());
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        whole.writeBytes(block("PaxHeader", 0644, text.length, 0, 'x', ""));
        whole.writeBytes(text);
        whole.writeBytes(new byte[padding(text.length)]);
        whole.writeBytes(own);
        return whole.toByteArray();
    }

    /** {@code length key=value}, where the length counts its own digits. */
    private static String record(String key, String value) {
        int rest = utf8(" " + key + "=" + value + "\n").length;
        int length = rest + String.valueOf(rest).length();
        length = rest + String.valueOf(length).length();
        return length + " " + key + "=" + value + "\n";
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] block(String name, int mode, long size, long modified, char flag, String target) {
        byte[] bytes = new byte[BLOCK];
        put(bytes, 0, name, NAME_BYTES_MAX);
        put(bytes, 100, octal(mode & 07777, 8), 8);
        put(bytes, 108, octal(0, 8), 8);
        put(bytes, 116, octal(0, 8), 8);
        put(bytes, 124, octal(size, 12), 12);
        put(bytes, 136, octal(Math.max(0, modified), 12), 12);
        put(bytes, 148, "        ", 8);
        bytes[156] = (byte) flag;
        put(bytes, 157, target, NAME_BYTES_MAX);
        put(bytes, 257, "ustar\00000", 8);
        int sum = 0;
        for (byte b : bytes) sum += b & 0xff;
        put(bytes, 148, String.format("%06o\0 ", sum), 8);
        return bytes;
    }

    private static void put(byte[] bytes, int at, String text, int most) {
        byte[] encoded = utf8(text);
        System.arraycopy(encoded, 0, bytes, at, Math.min(encoded.length, most));
    }

    private static String octal(long value, int width) {
        return String.format("%0" + (width - 1) + "o\0", value);
    }

    /** Reads an archive, entry by entry. */
    static final class Reader {
        private final InputStream source;
        private long left;
        private int pad;

        Reader(InputStream source) {
            this.source = source;
        }

        /** The next entry; null at the end. What was not read of the one before is passed over. */
        Entry next() throws IOException {
            pass();
            Map<String, String> extra = new HashMap<>();
            for (;;) {
                byte[] head = source.readNBytes(BLOCK);
                if (head.length == 0 || head.length == BLOCK && isEmpty(head)) return null;
                if (head.length < BLOCK) throw torn("it ends in the middle of a block");
                check(head);
                char flag = (char) head[156];
                long size = extra.containsKey("size") ? Long.parseLong(extra.get("size")) : size(head);
                if (flag == 'x' || flag == 'g' || flag == 'L' || flag == 'K') {
                    // A record for all entries may name none of what is read here but by mistake.
                    Map<String, String> found = extension(flag, record(size));
                    if (flag != 'g') extra.putAll(found);
                    continue;
                }
                Type type = type(flag);
                boolean hasContents = type == Type.FILE || type == null;
                left = hasContents ? size : 0;
                pad = hasContents ? padding(size) : 0;
                if (type == null) {
                    pass();
                    extra.clear();
                    continue;
                }
                String name = extra.getOrDefault("path", name(head)).replaceAll("/+$", "");
                String target = type == Type.FILE || type == Type.DIRECTORY ? null : extra.getOrDefault("linkpath", text(head, 157, NAME_BYTES_MAX));
                return new Entry(name, type, (int) octal(head, 100, 8) & 07777, octal(head, 136, 12), left, target);
            }
        }

        /** Reads on in the contents of the entry; -1 at their end. */
        int read(byte[] into) throws IOException {
            if (left == 0) return -1;
            int length = source.read(into, 0, (int) Math.min(into.length, left));
            if (length < 0) throw torn("it ends in the middle of a file");
            left -= length;
            return length;
        }

        private void pass() throws IOException {
            try {
                source.skipNBytes(left);
                source.skipNBytes(pad);
            } catch (EOFException error) {
                throw torn("it ends in the middle of a file");
            }
            left = 0;
            pad = 0;
        }

        private byte[] record(long size) throws IOException {
            if (size > PAX_BYTES_MAX) throw torn("a name is longer than " + PAX_BYTES_MAX + " bytes");
            byte[] bytes = source.readNBytes((int) size);
            if (bytes.length < size) throw torn("it ends in the middle of a name");
            source.skipNBytes(padding(size));
            return bytes;
        }
    }

    private static UnreadableException torn(String message) {
        return new UnreadableException("an archive", message, "read it again", null);
    }

    private static boolean isEmpty(byte[] head) {
        for (byte b : head) if (b != 0) return false;
        return true;
    }

    private static void check(byte[] head) {
        long sum = 0;
        for (int at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? ' ' : head[at] & 0xff;
        if (sum != octal(head, 148, 8)) throw torn("a header's checksum is wrong");
    }

    private static String text(byte[] head, int at, int length) {
        int end = at;
        while (end < at + length && head[end] != 0) end++;
        return new String(head, at, end - at, StandardCharsets.UTF_8);
    }

    private static long octal(byte[] head, int at, int length) {
        String text = text(head, at, length).strip();
        try {
            return text.isEmpty() ? 0 : Long.parseLong(text, 8);
        } catch (NumberFormatException error) {
            throw torn("a header has a number that is none");
        }
    }

    private static long size(byte[] head) {
        // GNU writes sizes above 8 GiB in base 256, marked by the first bit.
        if ((head[124] & 0x80) == 0) return octal(head, 124, 12);
        long size = 0;
        for (int at = 128; at < 136; at++) size = size << 8 | head[at] & 0xff;
        if (size < 0) throw torn("a file is larger than any disk");
        return size;
    }

    private static String name(byte[] head) {
        String prefix = text(head, 257, 6).equals("ustar") ? text(head, 345, 155) : "";
        String name = text(head, 0, NAME_BYTES_MAX);
        return prefix.isEmpty() ? name : prefix + "/" + name;
    }

    private static Type type(char flag) {
        return switch (flag) {
            case '0', '\0', '7' -> Type.FILE;
            case '1' -> Type.LINK;
            case '2' -> Type.SYMLINK;
            case '5' -> Type.DIRECTORY;
            default -> null;
        };
    }

    private static Map<String, String> extension(char flag, byte[] bytes) {
        Map<String, String> found = new HashMap<>();
        if (flag == 'L' || flag == 'K') {
            found.put(flag == 'L' ? "path" : "linkpath", text(bytes, 0, bytes.length));
            return found;
        }
        for (int at = 0; at < bytes.length;) {
            int blank = at;
            while (blank < bytes.length && bytes[blank] != ' ') blank++;
            String digits = new String(bytes, at, blank - at, StandardCharsets.US_ASCII);
            int length = digits.matches("\\d{1,8}") ? Integer.parseInt(digits) : 0;
            if (length <= blank - at || at + length > bytes.length) throw torn("a record has a length that is none");
            String record = new String(Arrays.copyOfRange(bytes, blank + 1, at + length - 1), StandardCharsets.UTF_8);
            int equals = record.indexOf('=');
            if (equals > 0) found.put(record.substring(0, equals), record.substring(equals + 1));
            at += length;
        }
        return found;
    }
}
