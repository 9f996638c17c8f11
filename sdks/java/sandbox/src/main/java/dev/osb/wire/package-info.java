/**
 * The words of the protocol, as records. What may be absent is null there. Values of a type with a class of
 * constants, as {@link dev.osb.wire.SandboxState}, are text, because a server may know more of them.
 */
package dev.osb.wire;
