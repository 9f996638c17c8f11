package dev.osb;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Parts that need no server: event streams, archives, settings, results. */
class PartsTest {
    private static List<Object> decoded(String text, int size) {
        List<Object> seen = new ArrayList<>();
        EventDecoder decoder = new EventDecoder("test", reader -> seen.add(reader.value()));
        byte[] all = text.getBytes(StandardCharsets.UTF_8);
        for (int at = 0; at < all.length; at += size) {
            decoder.push(List.of(ByteBuffer.wrap(all, at, Math.min(size, all.length - at))));
        }
        decoder.finish();
        return seen;
    }

    @Test
    void eventStreamsAreReadInEveryFramingInEveryPieces() {
        List<String> texts = List.of("{\"type\":\"stdout\",\"text\":\"a\\n\u2028ü\"}", "{\"text\":\"}\\n\\n{\\\"\"}", "{\"n\":3}");
        List<Object> events = texts.stream().map(dev.osb.wire.Json::parse).toList();
        Map<String, String> framings = Map.of(
            "bare", String.join("\n\n", texts) + "\n\n",
            "lines", String.join("\n", texts),
            "data", "data: " + String.join("\n\ndata: ", texts) + "\n\n",
            "named", ":\n\nid: 1\nevent: x\ndata: " + String.join("\r\n\r\nid: 2\r\ndata:", texts) + "\r\n\r\n");
        framings.forEach((name, text) -> {
            for (int size = 1; size <= text.length(); size++) assertEquals(events, decoded(text, size), name + " in pieces of " + size);
        });
        assertEquals(List.of(List.of(1L, 2L)), decoded("data: [1,\ndata: 2]\n\n", 3));
    }

    @Test
    void whatIsNoEventStreamIsRefused() {
        for (String text : List.of("<html>\n", "{broken\n\n", "data: {\n\n")) {
            assertThrows(UnreadableException.class, () -> decoded(text, 100), text);
        }
        EventDecoder endless = new EventDecoder("test", reader -> {});
        byte[] piece = new byte[1024 * 1024];
        Arrays.fill(piece, (byte) 'x');
        assertThrows(UnreadableException.class, () -> {
            for (int at = 0; at < 20; at++) endless.push(List.of(ByteBuffer.wrap(piece)));
        });
    }

    private static byte[] archive(Object... entries) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (int at = 0; at < entries.length; at += 2) {
            byte[] contents = ((String) entries[at + 1]).getBytes(StandardCharsets.UTF_8);
            Tar.Entry entry = (Tar.Entry) entries[at];
            out.writeBytes(Tar.header(new Tar.Entry(entry.name(), entry.type(), entry.mode(), 0, contents.length, entry.target())));
            out.writeBytes(contents);
            out.writeBytes(new byte[Tar.padding(contents.length)]);
        }
        out.writeBytes(new byte[2 * Tar.BLOCK]);
        return out.toByteArray();
    }

    private static Tar.Entry file(String name) {
        return new Tar.Entry(name, Tar.Type.FILE, 0640, 0, 0, null);
    }

    private static Tar.Entry link(String name, String target) {
        return new Tar.Entry(name, Tar.Type.SYMLINK, 0777, 0, 0, target);
    }

    @Test
    void archivesAreReadAsTheyWereWritten() throws IOException {
        String longName = "ü".repeat(80) + "/" + "x".repeat(140);
        byte[] bytes = archive(new Tar.Entry("d", Tar.Type.DIRECTORY, 0755, 0, 0, null), "", file("d/f"), "text", file(longName), "A".repeat(1025), link("l", longName), "");
        Tar.Reader reader = new Tar.Reader(new ByteArrayInputStream(bytes));
        assertEquals("d", reader.next().name());
        assertEquals(0640, reader.next().mode());
        byte[] contents = new byte[10];
        assertEquals(4, reader.read(contents));
        assertEquals("text", new String(contents, 0, 4, StandardCharsets.UTF_8));
        assertEquals(longName, reader.next().name());
        // Its contents are passed over.
        assertEquals(longName, reader.next().target());
        assertNull(reader.next());
        for (int cut : List.of(100, 600, 1500)) {
            Tar.Reader torn = new Tar.Reader(new ByteArrayInputStream(bytes, 0, cut));
            assertThrows(UnreadableException.class, () -> {
                while (torn.next() != null) torn.read(contents);
            }, "cut at " + cut);
        }
        bytes[0] ^= 1;
        assertThrows(UnreadableException.class, () -> new Tar.Reader(new ByteArrayInputStream(bytes)).next());
    }

    @Test
    void anArchiveWritesNothingOutsideOfItsDirectory(@TempDir Path place) throws IOException {
        Path inside = place.resolve("in");
        for (String name : List.of("../out", "/out", "a/../../out")) {
            assertThrows(UnreadableException.class, () -> unpacked(inside, file(name), "x"), name);
        }
        DownloadedDirectory links = unpacked(inside, link("l0", "/etc/passwd"), "", link("l1", "../.."), "", link("l2", "a/../../.."), "", link("l3", ".."), "");
        assertEquals(List.of("l0", "l1", "l2", "l3"), links.skipped());
        assertThrows(UnreadableException.class, () -> unpacked(inside, link("s", "."), "", file("s/f"), "x"));
        Files.createSymbolicLink(inside.resolve("f"), place.resolve("out"));
        unpacked(inside, file("f"), "x");
        assertFalse(Files.exists(place.resolve("out")));
        assertEquals(0640, (int) Files.getAttribute(inside.resolve("f"), "unix:mode") & 07777);
        try (var names = Files.list(place)) {
            assertEquals(List.of(inside), names.toList());
        }
    }

    private static DownloadedDirectory unpacked(Path place, Object... entries) throws IOException {
        return Directories.unpack(new ByteArrayInputStream(archive(entries)), place);
    }

    @Test
    void settingsComeFromWhereTheyAreSaidTo() {
        String file = "# osb\n[connection]\ndomain = \"a:1\" # here\nrequest_timeout = 7.5\nuse_server_proxy = true\n[output]\nx = [1, \"2\"]\n";
        ConnectionConfig fromFile = ConnectionConfig.builder().readToml("f", file).build();
        assertEquals("http://a:1/v1", fromFile.baseUrl());
        assertEquals(Duration.ofMillis(7500), fromFile.requestTimeout());
        assertTrue(fromFile.useServerProxy());
        for (String wrong : List.of("connection = 3", "[connection]\ndomain = 3", "[connection\n", "[connection]\ndomain = a", "[connection]\nprotocol = 'ftp'")) {
            assertThrows(ConfigException.class, () -> ConnectionConfig.builder().readToml("f", wrong), wrong);
        }
        assertEquals(Map.of("a", Map.of("b", Map.of("c", "\\x")), "d e", "é\n", "f", 1000L), Toml.parse("a.b = {c = '\\x'}\n\"d e\" = \"\\u00e9\\n\"\nf = 1_000\n"));
        Map<String, String> senseless = Map.of("OPEN_SANDBOX_API_KEY", " ", "OPEN_SANDBOX_REQUEST_TIMEOUT", "soon", "OPEN_SANDBOX_USE_SERVER_PROXY", "perhaps");
        ConnectionConfig usual = ConnectionConfig.builder().readEnvironment(senseless::get).build();
        assertNull(usual.apiKey());
        assertEquals(ConnectionConfig.DEFAULT_REQUEST_TIMEOUT, usual.requestTimeout());
        Map<String, String> set = Map.of("OPEN_SANDBOX_PROTOCOL", "HTTPS", "OPEN_SANDBOX_USE_SERVER_PROXY", "on", "HOME", "/nonexistent");
        ConnectionConfig given = ConnectionConfig.load(builder -> builder.domain("b"), set::get);
        assertEquals(List.of("https://b/v1", "https", true), List.of(given.baseUrl(), given.scheme(), given.useServerProxy()));
        assertThrows(ConfigException.class, () -> ConnectionConfig.builder().readEnvironment(Map.of("OPEN_SANDBOX_PROTOCOL", "ftp")::get));
        assertEquals("https://example.com", ConnectionConfig.builder().domain("https://example.com/").build().rootUrl());
        ConfigException missing = assertThrows(ConfigException.class, () -> ConnectionConfig.fromFile(Path.of("/no/such/file")));
        assertEquals("/no/such/file", missing.origin());
        assertEquals("me/1", ConnectionConfig.builder().userAgent("me/1").build().userAgent());
        assertTrue(ConnectionConfig.defaultFile().endsWith("config.toml"));
        for (String domain : List.of("", "a b")) assertThrows(ConfigException.class, () -> ConnectionConfig.builder().domain(domain).build());
        var following = java.net.http.HttpClient.newBuilder().followRedirects(java.net.http.HttpClient.Redirect.ALWAYS).build();
        assertThrows(InvalidArgumentException.class, () -> ConnectionConfig.builder().httpClient(following));
    }

    @Test
    void whatASandboxShouldHaveIsInItsRequest() {
        CreateOptions options = new CreateOptions().renewOnAccess(Duration.ofSeconds(90)).resourceRequests(Map.of("cpu", "100m"))
            .volume(Volumes.host("code", "/srv/code", "/code")).healthCheckInterval(Duration.ofMillis(50));
        var request = options.copy().request(SandboxSource.image("private", "user", "secret"));
        assertEquals(Map.of("access.renew.extend.seconds", "90"), request.extensions());
        assertEquals(Map.of("cpu", "100m"), request.resourceRequests());
        assertEquals("/srv/code", request.volumes().get(0).host().path());
        assertEquals("user", request.image().auth().username());
        assertEquals(600L, request.timeout());
        assertEquals(Duration.ofMillis(50), new ReadyOptions().healthCheckInterval(Duration.ofMillis(50)).healthCheckInterval);
        assertThrows(InvalidArgumentException.class, () -> new CreateOptions().lifetime(Duration.ZERO).request(SandboxSource.image("x")));
        var template = new CreateOptions().request(SandboxSource.template("t"));
        assertNull(template.resourceLimits(), "a template says by itself what its sandboxes may use");
    }

    @Test
    void resultsHaveTheirForms() {
        RichResult svg = new RichResult(Map.of("image/svg+xml", "<svg/>", "text/plain", "f"), 2);
        assertEquals(RichResult.Kind.FIGURE, svg.kind());
        assertArrayEquals("<svg/>".getBytes(StandardCharsets.UTF_8), svg.figure().bytes());
        assertEquals(Map.of("a", 1L), new RichResult(Map.of("application/json", Map.of("a", 1L)), null).json());
        assertEquals(RichResult.Kind.OTHER, new RichResult(Map.of("text/latex", "x"), null).kind());
        assertEquals("*x*", new RichResult(Map.of("text/markdown", "*x*"), null).markdown());
        RichResult table = new RichResult(Map.of("text/html", "<TABLE><tr><th>a</th></tr><tr><td>1 &lt; &#50;&unknown;</td></tr></TABLE>"), null);
        assertEquals(List.of(List.of("a"), List.of("1 < 2&unknown;")), table.table());
        assertTrue(table.html().startsWith("<TABLE>"));
        assertEquals("x", new RichResult(Map.of("text/latex", "x"), null).get("text/latex"));
    }
}
