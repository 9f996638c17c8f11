package dev.osb.kotlin

import dev.osb.PoolOptions
import dev.osb.PoolStatus
import dev.osb.SandboxSource
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.future.await
import kotlinx.coroutines.withContext
import kotlin.time.Duration
import kotlin.time.toJavaDuration

/** Sandboxes that are kept ready on the client's side, so that taking one costs one request. It ends with [shutdown], or when its [use] block is left. */
public class Pool(private val client: Client, source: SandboxSource, options: PoolOptions) {
    private val java = dev.osb.Pool(client.java, source, options)

    /** Begins to keep sandboxes of an image ready. */
    public constructor(client: Client, image: String, maxIdle: Int, options: PoolOptions.() -> Unit = {}) :
        this(client, SandboxSource.image(image), PoolOptions(maxIdle).apply(options))

    /** How it stands. */
    public val status: PoolStatus get() = java.status()

    /** Takes a sandbox that is ready; it then lives for so long and belongs to the caller. */
    public suspend fun acquire(lifetime: Duration): Sandbox = Sandbox(client, java.acquireAsync(lifetime.toJavaDuration()).await())

    /** Keeps this many ready from now on; what is too much is ended. */
    public suspend fun resize(maxIdle: Int) {
        java.resizeAsync(maxIdle).await()
    }

    /** Waits until as many are ready as should be, or making them failed. */
    public suspend fun waitUntilWarm(timeout: Duration) {
        java.waitUntilWarmAsync(timeout.toJavaDuration()).await()
    }

    /** Stops, and ends every sandbox that is ready. */
    public suspend fun shutdown() {
        java.shutdownAsync().await()
    }

    /** Runs the block and shuts the pool down. */
    public suspend fun <R> use(block: suspend (Pool) -> R): R =
        try {
            block(this)
        } finally {
            withContext(NonCancellable) { shutdown() }
        }
}
