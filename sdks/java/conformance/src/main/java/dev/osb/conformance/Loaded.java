package dev.osb.conformance;

import dev.osb.ConnectionConfig;
import dev.osb.OpenSandboxException;
import dev.osb.wire.Json;
import java.util.Map;

/** Loads settings from this process's environment and prints them, or the error. */
public final class Loaded {
    /** What a process that failed to load its settings told. */
    static final class Told extends RuntimeException {
        private static final long serialVersionUID = 1;
        final transient Map<?, ?> error;

        Told(Map<?, ?> error) {
            super(String.valueOf(error));
            this.error = error;
        }
    }

    private Loaded() {}

    public static void main(String[] arguments) {
        try {
            ConnectionConfig config = ConnectionConfig.load();
            System.out.println(Json.write(Shapes.map("result", Shapes.map("base_url", config.baseUrl(),
                "request_timeout_ms", config.requestTimeout().toMillis(), "use_server_proxy", config.useServerProxy(),
                "has_api_key", config.apiKey() != null))));
        } catch (OpenSandboxException error) {
            System.out.println(Json.write(Shapes.map("error", Shapes.error(error))));
        }
    }

    static Object result(String printed) {
        Map<?, ?> answer = (Map<?, ?>) Json.parse(printed);
        if (answer.get("error") instanceof Map<?, ?> error) throw new Told(error);
        return answer.get("result");
    }
}
