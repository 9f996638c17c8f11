//! The terminal this program stands at: its size, its keys one by one, and the keys that mean
//! "leave it running".
//!
//! Does not know what is at the other end.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr,
    tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

/// A key for nothing, as Linux has it.
const DISABLED: u8 = 0;

/// Columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// Pieces of input that wait to be sent: a person types slower, and a file that is piped in waits.
const PIECES: usize = 16;

/// Input is read in pieces of at most this: what a pipe holds.
const PIECE_BYTES: usize = 64 * 1024;

/// The size of the terminal that results go to, where they go to one.
pub fn size() -> Option<Size> {
    let stdout = io::stdout();
    let stderr = io::stderr();
    let stdin = io::stdin();
    [stdout.as_fd(), stderr.as_fd(), stdin.as_fd()]
        .into_iter()
        .find_map(|fd| tcgetwinsize(fd).ok())
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)
        .map(|size| Size {
            columns: size.ws_col,
            rows: size.ws_row,
        })
}

/// Whether both ends of this program are at a terminal, as a shell needs it.
pub fn is_interactive() -> bool {
    isatty(io::stdin()) && isatty(io::stdout())
}

/// The terminal with every key handed on as it is; as it was before, when dropped.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Hands every key on from now.
    pub fn enter() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(stdin.as_fd())?;
        let mut raw = before.clone();
        raw.make_raw();
        // Not flushed: what was typed ahead is meant for the other end.
        tcsetattr(stdin.as_fd(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Raw {
    /// Hands keys on one by one and unshown from now, except those that interrupt; output is as it
    /// was. Nothing changes between what is typed ahead and what is typed when asked.
    pub fn keys() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(stdin.as_fd())?;
        let mut keys = before.clone();
        keys.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        keys.input_modes
            .remove(InputModes::ICRNL | InputModes::IXON);
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Nobody would put the terminal back: they stop or end the program at once.
        keys.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
        keys.special_codes[SpecialCodeIndex::VQUIT] = DISABLED;
        tcsetattr(stdin.as_fd(), OptionalActions::Drain, &keys)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // What was typed ahead belongs to whoever reads next.
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Drain, &self.before);
    }
}

/// Standard input, piece by piece; the end of the channel is the end of the input.
///
/// A thread of its own, since a terminal and a file can only be read by waiting. It ends with the
/// program: nobody waits for it.
pub fn input() -> mpsc::Receiver<Vec<u8>> {
    let (pieces, receiver) = mpsc::channel(PIECES);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    if pieces.blocking_send(buffer[..count].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receiver
}

/// Keys that leave a terminal running, such as `ctrl-p,ctrl-q`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachKeys(Vec<u8>);

/// Keys that cannot be typed like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a key; write single characters or ctrl-a to ctrl-z, set apart by commas")]
pub struct NotAKey(String);

impl std::str::FromStr for DetachKeys {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let key = |word: &str| {
            let wrong = || NotAKey(word.to_owned());
            match word.strip_prefix("ctrl-").map(str::as_bytes) {
                Some([letter @ (b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')]) => {
                    Ok(letter & 0x1f)
                }
                Some(_) => Err(wrong()),
                None => match word.as_bytes() {
                    [letter] if letter.is_ascii_graphic() => Ok(*letter),
                    _ => Err(wrong()),
                },
            }
        };
        let keys: Result<Vec<u8>, NotAKey> = text.split(',').map(key).collect();
        keys.map(Self)
    }
}

impl std::fmt::Display for DetachKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, key) in self.0.iter().enumerate() {
            let gap = if index > 0 { " " } else { "" };
            match key {
                0..0x20 => write!(f, "{gap}Ctrl-{}", char::from(key | 0x40))?,
                key => write!(f, "{gap}{}", char::from(*key))?,
            }
        }
        Ok(())
    }
}

/// Looks for the keys in what is typed. Those that may be their beginning are held back until it
/// is known.
#[derive(Debug)]
pub struct Watcher {
    keys: Vec<u8>,
    seen: usize,
}

impl Watcher {
    /// A watcher for these keys.
    pub fn new(keys: &DetachKeys) -> Self {
        Self {
            keys: keys.0.clone(),
            seen: 0,
        }
    }

    /// What of the typed bytes goes to the other end, and whether the keys were complete; what
    /// follows them is dropped.
    pub fn feed(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Vec::with_capacity(typed.len());
        for byte in typed {
            if *byte != self.keys[self.seen] {
                out.extend_from_slice(&self.keys[..self.seen]);
                self.seen = 0;
            }
            if *byte == self.keys[self.seen] {
                self.seen += 1;
                if self.seen == self.keys.len() {
                    self.seen = 0;
                    return (out, true);
                }
            } else {
                out.push(*byte);
            }
        }
        (out, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watcher() -> Watcher {
        Watcher::new(&"ctrl-p,ctrl-q".parse().unwrap())
    }

    #[test]
    fn keys_are_read_as_written() {
        assert_eq!("ctrl-p,ctrl-q".parse(), Ok(DetachKeys(vec![16, 17])));
        assert_eq!("ctrl-],x".parse(), Ok(DetachKeys(vec![29, b'x'])));
        let keys: DetachKeys = "ctrl-p,q".parse().unwrap();
        assert_eq!(keys.to_string(), "Ctrl-P q");
        for text in ["", "ctrl-", "ctrl-pp", "ab", "ctrl-p,"] {
            assert!(text.parse::<DetachKeys>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_whole_sequence_leaves() {
        let mut keys = watcher();
        assert_eq!(keys.feed(b"ls\x10"), (b"ls".to_vec(), false));
        assert_eq!(keys.feed(b"x"), (b"\x10x".to_vec(), false));
        assert_eq!(keys.feed(b"\x10\x10\x11z"), (b"\x10".to_vec(), true));
        assert_eq!(keys.feed(b"\x11"), (b"\x11".to_vec(), false));
    }
}
