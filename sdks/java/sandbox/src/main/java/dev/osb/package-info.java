/**
 * Sandboxes for AI agents: run commands, edit files, execute code that remembers, open terminals and ports, in a place that
 * is thrown away afterwards. {@link dev.osb.Sandbox} is where to begin; {@link dev.osb.Client} is the control plane.
 */
package dev.osb;
