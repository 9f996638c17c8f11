package dev.osb.conformance;

import dev.osb.CancelledException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** The runner of the Java SDK: each call blocks a thread, and is given up by interrupting it. */
public final class JavaRunner extends Protocol {
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private JavaRunner() {}

    public static void main(String[] arguments) throws Exception {
        new JavaRunner().serve();
    }

    @Override
    protected Runnable start(long id, String name, Object on, Arguments with) {
        Future<?> call = threads.submit(() -> {
            try {
                if (name.equals("runner.reset")) {
                    reset();
                    done(id, null);
                } else {
                    done(id, JavaCalls.make(name, on, with));
                }
            } catch (Exception | Error error) {
                failed(id, error, error instanceof CancelledException || error instanceof InterruptedException);
            }
        });
        return () -> call.cancel(true);
    }
}
