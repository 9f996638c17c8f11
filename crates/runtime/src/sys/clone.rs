//! Cloning the spawner into new namespaces.
//!
//! A copy of the spawner costs more than the rest of the clone: page tables are copied, every page
//! the child writes is copied again, and all of it is thrown away when the child executes the next
//! program (together 0.35 ms of 0.5 measured). So the child borrows the spawner's memory, as after
//! vfork(2), and the spawner stands still until the child has executed or ended.
//!
//! What the child does to memory it does to the spawner's. It runs on a stack of its own, and may
//! allocate and free like any function that the spawner calls; what it has not freed by the time
//! it executes the next program the spawner keeps for ever.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use super::process::{check, exit_now};

/// Ten times what setting up a sandbox needs in a build without optimisation.
const STACK_BYTES: usize = 1 << 20;

/// Overrunning the stack must fault and not reach other memory.
const GUARD_BYTES: usize = 1 << 16;

/// What a child gets of the memory of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// All of it until it executes a program; the parent waits until then.
    Borrowed,
    /// A copy; both go on.
    Copied,
}

/// Where children run that borrow their parent's memory.
#[derive(Debug)]
pub(crate) struct Stack {
    lowest: *mut c_void,
}

impl Stack {
    /// Reserves it for good: there is one in a spawner's life.
    pub(crate) fn new() -> Result<Self> {
        let size = GUARD_BYTES + STACK_BYTES;
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
        );
        // SAFETY: a new mapping at an address of the kernel's choice, of which the lowest part
        // is then made inaccessible before anybody knows of it.
        let (mapped, guarded) = unsafe {
            let mapped = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
            if mapped == libc::MAP_FAILED {
                return Err(check(-1).err().unwrap_or(Errno::NOMEM));
            }
            (mapped, libc::mprotect(mapped, GUARD_BYTES, libc::PROT_NONE))
        };
        check(guarded.into())?;
        Ok(Self { lowest: mapped })
    }
}

/// Clones the calling process into new namespaces (`CLONE_NEW*` in `namespaces`) and, on cgroup
/// v2, into `cgroup`, has the child run `child` and then exit with 1. Returns the child's id here
/// and a descriptor of it, close-on-exec.
///
/// Only for a process with one thread: another thread's locks would stay held in the child for
/// ever. That cannot lead to undefined behaviour, only to a child that hangs, so the function is
/// safe and the rule is the spawner's to keep.
pub(crate) fn clone_process(
    namespaces: c_int,
    cgroup: Option<BorrowedFd<'_>>,
    memory: Memory,
    stack: &mut Stack,
    mut child: impl FnMut(),
) -> Result<(Pid, OwnedFd)> {
    // linux/sched.h; libc's constant of this name is an int and so comes out as zero.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: RawFd = -1;
    // SAFETY: all-zero is a valid `clone_args`.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(namespaces.cast_unsigned()) | libc::CLONE_PIDFD as u64;
    arguments.pidfd = (&raw mut pidfd).addr() as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::try_from(cgroup.as_raw_fd()).map_err(|_| Errno::BADF)?;
    }
    let outcome = match memory {
        Memory::Borrowed => clone_borrowing(&mut arguments, stack, &mut child),
        Memory::Copied => clone_copying(&mut arguments, &mut child),
    };
    let pid = i32::try_from(outcome?).ok().and_then(Pid::from_raw);
    let pid = pid.expect("clone3 returns a positive process id");
    // SAFETY: on success the kernel stored a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pid, pidfd))
}

fn clone_copying(arguments: &mut libc::clone_args, child: &mut impl FnMut()) -> Result<i64> {
    // SAFETY: without CLONE_VM and with no new stack this is fork(2) with more flags; the kernel
    // writes one descriptor where `arguments` says, which outlives the call.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_mut(arguments),
            size_of::<libc::clone_args>(),
        )
    };
    if check(outcome)? == 0 {
        child();
        exit_now(1)
    }
    Ok(outcome)
}

#[cfg(target_arch = "x86_64")]
fn clone_borrowing<F: FnMut()>(
    arguments: &mut libc::clone_args,
    stack: &mut Stack,
    child: &mut F,
) -> Result<i64> {
    /// Where the child begins. A panic cannot leave a function of C: it ends the child.
    extern "C" fn begin<F: FnMut()>(child: *mut F) -> ! {
        // SAFETY: `child` is the caller's, who stands still until this process is gone.
        unsafe { (*child)() };
        exit_now(1)
    }
    let begin: extern "C" fn(*mut F) -> ! = begin::<F>;
    arguments.flags |= (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
    arguments.stack = stack.lowest.addr() as u64 + GUARD_BYTES as u64;
    arguments.stack_size = STACK_BYTES as u64;
    let outcome: i64;
    // SAFETY: the child never comes back into this function: it starts on the empty stack given
    // in `arguments`, which is aligned to a page, and calls a function that does not return. Every
    // register it needs is preserved by the kernel. The parent goes on after the call with its
    // own stack untouched. All that the child writes to outlives it, because the parent waits.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => outcome,
            in("rdi") std::ptr::from_mut(arguments),
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") begin,
            in("r13") std::ptr::from_mut(child),
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    match i32::try_from(-outcome) {
        Ok(errno) if outcome < 0 => Err(Errno::from_raw_os_error(errno)),
        _ => Ok(outcome),
    }
}

/// Elsewhere the child gets a copy, which is slower and otherwise the same.
#[cfg(not(target_arch = "x86_64"))]
fn clone_borrowing<F: FnMut()>(
    arguments: &mut libc::clone_args,
    _stack: &mut Stack,
    child: &mut F,
) -> Result<i64> {
    clone_copying(arguments, child)
}

/// The texts a program is executed with, made before the clone so that the child need not
/// allocate them.
#[derive(Debug)]
pub(crate) struct ProgramText {
    arguments: Strings,
    environment: Strings,
}

/// Strings of C and the list of them that ends with a null pointer.
#[derive(Debug)]
struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    fn new(texts: &[String]) -> std::result::Result<Self, String> {
        let text = |text: &String| CString::new(text.as_bytes()).map_err(|_| text.clone());
        let owned = texts
            .iter()
            .map(text)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let ends = std::iter::once(std::ptr::null());
        Ok(Self {
            pointers: owned.iter().map(|text| text.as_ptr()).chain(ends).collect(),
            _owned: owned,
        })
    }
}

impl ProgramText {
    /// Refuses a text with a zero byte in it, and says which.
    pub(crate) fn new(
        arguments: &[String],
        environment: &[String],
    ) -> std::result::Result<Self, String> {
        Ok(Self {
            arguments: Strings::new(arguments)?,
            environment: Strings::new(environment)?,
        })
    }
}

/// Turns this process into the program behind `program`. Returns only when that failed.
pub(crate) fn execute(program: BorrowedFd<'_>, text: &ProgramText) -> Errno {
    // SAFETY: both arrays end with a null pointer and hold pointers to NUL-terminated strings
    // that outlive the call.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            text.arguments.pointers.as_ptr(),
            text.environment.pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    check(outcome).err().unwrap_or(Errno::NOEXEC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_borrows_memory_ends_before_its_parent_goes_on() {
        let mut stack = Stack::new().unwrap();
        let mut seen = Vec::new();
        let mine = std::process::id();
        let (pid, pidfd) = clone_process(0, None, Memory::Borrowed, &mut stack, || {
            // Not `std::process::id`, which may be remembered.
            seen.push(
                rustix::process::getpid()
                    .as_raw_nonzero()
                    .get()
                    .cast_unsigned(),
            );
        })
        .unwrap();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(seen, [pid.as_raw_nonzero().get().cast_unsigned()]);
        }
        assert_ne!(pid.as_raw_nonzero().get().cast_unsigned(), mine);
        let ended = rustix::process::waitid(
            rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
            rustix::process::WaitIdOptions::EXITED,
        );
        assert_eq!(ended.unwrap().unwrap().exit_status(), Some(1));
    }

    #[test]
    fn a_zero_byte_in_an_argument_is_refused_by_name() {
        let error = ProgramText::new(&["a\0b".to_owned()], &[]).unwrap_err();
        assert_eq!(error, "a\0b");
    }
}
