package dev.osb;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** No public method is forgotten. */
class EveryMethodTest {
    /** Come with every record and object. */
    private static final Set<String> USUAL = Set.of("toString", "hashCode", "equals", "valueOf", "values", "iterator");

    private static Stream<Path> files(Path place, String ending) throws IOException {
        try (Stream<Path> walk = Files.walk(place)) {
            return walk.filter(path -> path.toString().endsWith(ending)).toList().stream();
        }
    }

    private static String texts(Path place) throws IOException {
        StringBuilder all = new StringBuilder();
        for (Path path : Stream.concat(files(place, ".java"), files(place, ".kt")).toList()) all.append(Files.readString(path));
        return all.toString();
    }

    @Test
    void everyPublicMethodIsCalledByATestARunnerOrTheKotlinModule() throws Exception {
        String calls = "";
        for (String place : List.of("src/test", "../conformance/src", "../kotlin/src", "../examples", "../bench/src")) calls += texts(Path.of(place));
        Set<String> missing = new TreeSet<>();
        for (Path source : files(Path.of("src/main/java/dev/osb"), ".java").filter(path -> path.getParent().endsWith("dev/osb")).toList()) {
            String name = source.getFileName().toString().replace(".java", "");
            if (name.equals("package-info")) continue;
            Class<?> type = Class.forName("dev.osb." + name);
            if (!Modifier.isPublic(type.getModifiers())) continue;
            for (Method method : type.getDeclaredMethods()) {
                if (!Modifier.isPublic(method.getModifiers()) || method.isSynthetic() || USUAL.contains(method.getName())) continue;
                if (!Pattern.compile("(\\.|::)" + method.getName() + "\\b|\\b" + method.getName() + "\\(").matcher(calls).find()) {
                    missing.add(name + "." + method.getName());
                }
            }
        }
        assertEquals(Set.of(), missing);
    }
}
