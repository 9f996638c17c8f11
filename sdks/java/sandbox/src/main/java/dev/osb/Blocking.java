package dev.osb;

import java.util.concurrent.Executor;
import java.util.concurrent.Executors;

/** Threads for what cannot be done without blocking: reading a program's own stream, and opening a socket. */
final class Blocking {
    /** There are as many as block at the moment. */
    static final Executor THREADS = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "osb-blocking");
        thread.setDaemon(true);
        return thread;
    });

    private Blocking() {}
}
