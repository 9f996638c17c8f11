//! Claims on slot numbers, so that a range of ids and an address belong to one sandbox at a time
//! whichever server on this host made it, and across restarts.
//!
//! A claim is a symbolic link named after the slot whose target is the owner's data directory:
//! making one is atomic, carries its content, and fails when the slot is taken. Nothing needs a
//! lock but taking over the claim of an owner that no longer exists.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FlockOperation;

use super::{Error, SlotIndex};

pub(super) struct Claims {
    dir: PathBuf,
    owner: PathBuf,
    limit: u32,
    /// Locked together with every other server that uses these claims.
    users: fs::File,
    /// Where the next search starts. Numbers go round so that one just freed, whose namespace
    /// and connections may still be on their way out, is used last.
    cursor: AtomicU32,
}

impl Claims {
    pub(super) fn open(dir: &Path, owner: &Path, limit: u32) -> Result<Self, Error> {
        fs::create_dir_all(dir)
            .map_err(|e| Error::kernel(format!("making the directory {}", dir.display()), e))?;
        let users = fs::File::create(dir.join(".users"))
            .map_err(|e| Error::kernel("opening the lock of the claims' users", e))?;
        rustix::fs::flock(&users, FlockOperation::LockShared)
            .map_err(|e| Error::kernel("locking the claims' users", e))?;
        // Another server's ready slots, or those of our own last life, cluster where its cursor
        // was: start elsewhere.
        let mut seed = [0_u8; 4];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Error::kernel("getting a random number", e))?;
        Ok(Self {
            dir: dir.to_owned(),
            owner: owner.to_owned(),
            limit,
            users,
            cursor: AtomicU32::new(u32::from_ne_bytes(seed) % limit.max(1)),
        })
    }

    /// Whether no other server uses these claims. One that wants to begin waits from then on
    /// until this value is dropped.
    pub(super) fn is_only_user(&self) -> bool {
        rustix::fs::flock(&self.users, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Claims a slot nobody has.
    pub(super) fn next(&self) -> Result<SlotIndex, Error> {
        for _ in 0..self.limit {
            let index = self.cursor.fetch_add(1, Ordering::Relaxed) % self.limit;
            if self.take(index)? {
                return Ok(index);
            }
        }
        Err(Error::Exhausted(self.limit))
    }

    /// Claims this slot; `false` when somebody else has it.
    pub(super) fn take(&self, index: SlotIndex) -> Result<bool, Error> {
        match rustix::fs::symlink(&self.owner, self.path(index)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => self.take_over(index),
            Err(e) => Err(Error::kernel(format!("claiming slot {index}"), e)),
        }
    }

    /// Claims this slot unless it is ours already; `false` when it is somebody else's.
    pub(super) fn hold(&self, index: SlotIndex) -> Result<bool, Error> {
        Ok(self.take(index)? || self.owner_of(index)?.as_deref() == Some(&self.owner))
    }

    /// Gives a slot of ours back. Not an error when it is not ours.
    pub(super) fn release(&self, index: SlotIndex) {
        if self
            .owner_of(index)
            .is_ok_and(|owner| owner.as_deref() == Some(&self.owner))
        {
            let _ = fs::remove_file(self.path(index));
        }
    }

    /// The slots of this owner.
    pub(super) fn ours(&self) -> Result<Vec<SlotIndex>, Error> {
        let mut ours = Vec::new();
        for index in self.all()? {
            if self.owner_of(index)?.as_deref() == Some(&self.owner) {
                ours.push(index);
            }
        }
        Ok(ours)
    }

    /// Every claimed slot, whoever owns it, but those whose owner is gone.
    pub(super) fn live(&self) -> Result<Vec<SlotIndex>, Error> {
        let mut live = self.all()?;
        live.retain(|&index| {
            self.owner_of(index)
                .is_ok_and(|o| o.is_some_and(|o| o.exists()))
        });
        Ok(live)
    }

    fn all(&self) -> Result<Vec<SlotIndex>, Error> {
        let entries = fs::read_dir(&self.dir)
            .map_err(|e| Error::kernel(format!("reading {}", self.dir.display()), e))?;
        Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect())
    }

    fn take_over(&self, index: SlotIndex) -> Result<bool, Error> {
        match self.owner_of(index)? {
            Some(owner) if owner.exists() => return Ok(false),
            _ => {}
        }
        let lock = fs::File::create(self.dir.join(".lock"))
            .map_err(|e| Error::kernel("opening the lock of the claims", e))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|e| Error::kernel("locking the claims", e))?;
        // Somebody may have taken it over before we had the lock.
        match self.owner_of(index)? {
            Some(owner) if owner.exists() => return Ok(false),
            Some(_) => {
                fs::remove_file(self.path(index))
                    .map_err(|e| Error::kernel(format!("freeing slot {index}"), e))?;
            }
            None => {}
        }
        match rustix::fs::symlink(&self.owner, self.path(index)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(e) => Err(Error::kernel(format!("claiming slot {index}"), e)),
        }
    }

    fn owner_of(&self, index: SlotIndex) -> Result<Option<PathBuf>, Error> {
        match fs::read_link(self.path(index)) {
            Ok(owner) => Ok(Some(owner)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::kernel(
                format!("reading the claim on slot {index}"),
                e,
            )),
        }
    }

    fn path(&self, index: SlotIndex) -> PathBuf {
        self.dir.join(index.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_owner_and_can_be_taken_over_only_when_the_owner_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, first, second) = (
            temp.path().join("claims"),
            temp.path().join("first"),
            temp.path().join("second"),
        );
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        let a = Claims::open(&dir, &first, 2).unwrap();
        let b = Claims::open(&dir, &second, 2).unwrap();
        let mut taken = [a.next().unwrap(), b.next().unwrap()];
        let theirs = taken[1];
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        assert!(matches!(a.next(), Err(Error::Exhausted(2))));

        b.release(a.ours().unwrap()[0]);
        assert_eq!(a.ours().unwrap().len(), 1, "only the owner releases");

        fs::remove_dir(&second).unwrap();
        assert_eq!(a.live().unwrap().len(), 1);
        assert_eq!(a.next().unwrap(), theirs);
        assert_eq!(a.ours().unwrap().len(), 2);
    }
}
