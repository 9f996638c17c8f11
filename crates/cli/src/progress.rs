//! A line at the terminal that says how far something is. Nothing where nobody looks.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::terminal;

/// A person sees no more than this many changes a second.
const REDRAW: Duration = Duration::from_millis(50);

/// The bar is this wide where there is room.
const BAR: usize = 24;

/// A line that says how far something is.
pub(crate) struct Progress {
    what: String,
    total: Option<u64>,
    done: u64,
    began: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
    /// Something changed since it was drawn.
    is_behind: bool,
}

impl Progress {
    /// A line about `what`, if there is a terminal to draw it on and it is wanted.
    pub(crate) fn new(what: impl Into<String>, total: Option<u64>, is_wanted: bool) -> Self {
        Self {
            what: what.into(),
            total,
            done: 0,
            began: Instant::now(),
            drawn: None,
            is_shown: is_wanted && io::stderr().is_terminal(),
            is_behind: false,
        }
    }

    /// So many bytes more.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.set(self.done + bytes);
    }

    /// So many bytes in all.
    pub(crate) fn set(&mut self, bytes: u64) {
        self.done = bytes;
        self.is_behind = true;
        if self.is_shown && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
            self.draw();
        }
    }

    /// Draws what came too soon after the last drawing, when its time has come; waits for ever where
    /// nothing is left to draw.
    pub(crate) async fn catch_up(&mut self) {
        match self.drawn {
            Some(at) if self.is_shown && self.is_behind => {
                tokio::time::sleep_until((at + REDRAW).into()).await;
                self.draw();
            }
            _ => std::future::pending().await,
        }
    }

    /// So many bytes there are.
    pub(crate) fn set_total(&mut self, total: u64) {
        self.total = Some(total);
        self.set(self.done);
    }

    fn draw(&mut self) {
        self.drawn = Some(Instant::now());
        self.is_behind = false;
        let width = terminal::size().map_or(80, |size| usize::from(size.columns));
        let rate = self.done as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let line = line(&self.what, self.done, self.total, rate, width);
        // A terminal that is gone is found out by whoever prints the result.
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>, rate: f64, width: usize) -> String {
    let amount = match total {
        Some(total) => format!("{}/{}", bytes(done), bytes(total)),
        None => bytes(done),
    };
    let tail = format!("{amount}  {}/s", bytes(rate as u64));
    let bar = match total.filter(|total| *total > 0) {
        Some(total) if width > BAR + tail.len() + 12 => {
            let full = ((done.min(total) as f64 / total as f64) * BAR as f64) as usize;
            format!("[{}{}] ", "━".repeat(full), " ".repeat(BAR - full))
        }
        _ => String::new(),
    };
    let bar_width = if bar.is_empty() { 0 } else { BAR + 3 };
    let room = width.saturating_sub(tail.len() + bar_width + 3);
    let what: String = what.chars().take(room).collect();
    format!("{what} {bar}{tail}")
}

/// A number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_terminal() {
        for width in [10, 30, 60, 120] {
            let line = line("a-long-name-of-a-file.tar", 512, Some(1024), 2048.0, width);
            assert!(line.chars().count() <= width.max(26), "{width}: {line}");
        }
        let wide = line("file", 512, Some(1024), 2048.0, 80);
        assert_eq!(
            wide,
            "file [━━━━━━━━━━━━            ] 512 B/1.0 KiB  2.0 KiB/s"
        );
    }
}
