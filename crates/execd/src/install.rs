//! Putting the program, and what is handed over, where a container that starts later finds both: the part
//! of an init container. An image with nothing but this program suffices, because nothing else runs.
//!
//! Starts no sandbox and reads no token.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Everybody may run it, nobody may write it.
const PROGRAM_MODE: u32 = 0o555;

/// Read by the user of another image, who may be anybody, and removed then. Nobody else sees the directory.
const HANDOFF_MODE: u32 = 0o444;

pub(crate) fn install(to: &Path, handoff: Option<&Path>) -> io::Result<()> {
    copy(
        Path::new("/proc/self/exe"),
        &to.join("bin/execd"),
        PROGRAM_MODE,
    )?;
    if let Some(handoff) = handoff {
        copy(handoff, &to.join("handoff/handoff"), HANDOFF_MODE)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    // One that a killed container left half written.
    if let Err(error) = fs::remove_file(to)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = File::create_new(to)?;
    io::copy(&mut File::open(from)?, &mut file)?;
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_where_the_next_container_looks() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::create_dir(at.join("bin")).unwrap();
        fs::create_dir(at.join("handoff")).unwrap();
        fs::write(at.join("secret"), "token").unwrap();
        for _ in 0..2 {
            install(at, Some(&at.join("secret"))).unwrap();
        }
        let program = fs::metadata(at.join("bin/execd")).unwrap();
        assert_eq!(program.permissions().mode() & 0o777, PROGRAM_MODE);
        assert_eq!(program.len(), fs::metadata("/proc/self/exe").unwrap().len());
        assert_eq!(fs::read(at.join("handoff/handoff")).unwrap(), b"token");
        assert!(install(&at.join("nowhere"), None).is_err());
    }
}
