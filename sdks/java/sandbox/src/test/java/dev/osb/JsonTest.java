package dev.osb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.osb.wire.ImageAuth;
import dev.osb.wire.Json;
import dev.osb.wire.JsonException;
import dev.osb.wire.SandboxInfo;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The JSON reader and writer, and the types of the protocol over them. */
class JsonTest {
    @Test
    void valuesAreReadAsTheyStand() {
        assertEquals(Map.of("a", List.of(1L, -2.5, true, false, "x"), "b", Map.of()), Json.parse(" {\"a\": [1,-2.5 ,true,false,\"x\"],\n\"b\":{}} "));
        assertEquals(Arrays.asList((Object) null), Json.parse("[null]"));
        assertEquals(List.of(), Json.parse("[]"));
        assertEquals(1e300, Json.parse("1e300"));
        assertEquals(Long.MAX_VALUE, Json.parse("9223372036854775807"));
        assertEquals(9.223372036854775808e18, Json.parse("9223372036854775808"));
        assertEquals("ü\u2028\ud83d\ude00\ufffd\"\\/\b\f\n\r\t\u0001", Json.parse("\"ü\u2028\\ud83d\\ude00\\ud83d\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\""));
        assertEquals(Map.of("nam\u00e9", 1L), Json.parse("{\"nam\\u00e9\":1}"));
    }

    @Test
    void whatIsWrittenIsReadBack() {
        String text = "a\"\\\n\t\u0000\u001f é \ud83d\ude00 </script>";
        assertEquals(text, Json.parse(Json.write(text)));
        assertEquals("{\"a\":[1,2.5,null,true],\"b\":{}}", Json.write(Shown.map("a", Arrays.asList(1, 2.5, null, true), "b", Map.of())));
        assertEquals("\"\\ud83d\"", Json.write("\ud83d"));
        assertThrows(JsonException.class, () -> Json.write(Double.NaN));
    }

    @Test
    void whatIsNoJsonIsRefused() {
        List<String> wrong = List.of("", " ", "{", "[1,]", "{\"a\"}", "{\"a\":1,}", "{,\"a\":1}", "nul", "01", "-", "1.", "+1", ".5", "\"a", "\"\\x\"",
            "\"\\u12\"", "\"\n\"", "1 2", "{\"a\":1}}", "\u0000", "[1 2]", "tru e", "--1", "'a'");
        for (String text : wrong) assertThrows(JsonException.class, () -> Json.parse(text), text);
        assertThrows(JsonException.class, () -> Json.parse("[".repeat(100_000)));
    }

    @Test
    void typesSayWhatIsMissing() {
        JsonException error = assertThrows(JsonException.class, () -> SandboxInfo.fromJson(Json.parse("{\"id\":\"x\"}")));
        assertTrue(error.getMessage().contains("createdAt"), error.getMessage());
        assertThrows(JsonException.class, () -> SandboxInfo.fromJson(Json.parse("{\"id\":7}")));
        assertThrows(JsonException.class, () -> SandboxInfo.fromJson(Json.parse("[]")));
    }

    @Test
    void secretsAreInNoLog() {
        assertEquals("ImageAuth[username=u]", new ImageAuth("very-secret", "u").toString());
        ConnectionConfig config = ConnectionConfig.builder().apiKey("very-secret").build();
        assertTrue(!config.toString().contains("very-secret"));
    }

    private static final class Shown {
        static Map<String, Object> map(Object... pairs) {
            Map<String, Object> map = new java.util.LinkedHashMap<>();
            for (int at = 0; at < pairs.length; at += 2) map.put((String) pairs[at], pairs[at + 1]);
            return map;
        }
    }
}
