//! Memory that was needed for a moment, back to the sandbox.

/// Gives freed memory back to the kernel. The allocator keeps what it once had, and the daemon
/// shares its sandbox's memory limit with the user's programs.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
