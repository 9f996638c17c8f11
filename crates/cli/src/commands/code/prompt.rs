//! The prompt of an interpreter: lines with editing and history, gathered into whole blocks.
//!
//! The history lives as long as the conversation: what people type at an interpreter holds keys
//! and passwords, and nobody has asked for those on disk. A terminal that cannot move its cursor
//! gets lines as its own line discipline gives them.

use std::collections::VecDeque;
use std::io::{self, Write as _};

use tokio::sync::mpsc;

use super::line::{Drawn, Key, Keys, Line};
use super::whole::is_whole;
use crate::output::paint::{Paint, Style};
use crate::terminal::{self, Raw};

const FIRST: &str = ">>> ";
const FURTHER: &str = "... ";

/// For a terminal that does not say how wide it is.
const COLUMNS: usize = 80;

/// What came of asking.
pub(super) enum Asked {
    /// Something to run.
    Block(String),
    /// There is no more.
    End,
}

/// A prompt at the terminal.
pub(super) struct Prompt {
    language: String,
    paint: Paint,
    typed: mpsc::Receiver<Vec<u8>>,
    keys: Keys,
    /// Typed ahead.
    waiting: VecDeque<Key>,
    line: Line,
    drawn: Drawn,
    /// Lines that are to be run with what comes.
    block: String,
    /// The terminal, where its cursor can be moved.
    raw: Option<Raw>,
}

impl Prompt {
    pub(super) fn new(language: &str, paint: Paint) -> io::Result<Self> {
        let can_edit = std::env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        let raw = can_edit.then(Raw::keys).transpose()?;
        Ok(Self {
            language: language.to_owned(),
            paint,
            typed: terminal::input(),
            keys: Keys::default(),
            waiting: VecDeque::new(),
            line: Line::default(),
            drawn: Drawn::default(),
            block: String::new(),
            raw,
        })
    }

    /// The next block. Waiting for it may be given up and taken up again.
    pub(super) async fn next(&mut self) -> io::Result<Asked> {
        self.draw()?;
        loop {
            let Some(key) = self.waiting.pop_front() else {
                let Some(bytes) = self.typed.recv().await else {
                    return Ok(Asked::End);
                };
                self.waiting.extend(self.keys.feed(&bytes));
                continue;
            };
            match key {
                Key::Enter => {
                    if let Some(block) = self.enter()? {
                        return Ok(Asked::Block(block));
                    }
                }
                Key::Interrupt => {
                    self.throw_away()?;
                    self.draw()?;
                }
                Key::EndOfInput if self.line.is_empty() => {
                    self.below("")?;
                    return Ok(Asked::End);
                }
                Key::ClearScreen => {
                    self.drawn.leave();
                    write("\x1b[H")?;
                    self.draw()?;
                }
                key => {
                    self.line.press(key);
                    // Keys that come together are drawn together.
                    if self.raw.is_some() && self.waiting.is_empty() {
                        self.draw()?;
                    }
                }
            }
        }
    }

    /// Throws away what was typed.
    pub(super) fn throw_away(&mut self) -> io::Result<()> {
        self.line.clear();
        self.block.clear();
        self.below("^C")
    }

    /// Takes the line; gives the block that it completes.
    fn enter(&mut self) -> io::Result<Option<String>> {
        if self.raw.is_some() {
            self.line.press(Key::End);
            self.draw()?;
            self.below("")?;
        }
        self.block.push_str(&self.line.take());
        self.block.push('\n');
        if self.block.trim().is_empty() {
            self.block.clear();
        } else if is_whole(&self.language, &self.block) {
            return Ok(Some(std::mem::take(&mut self.block)));
        }
        self.draw()?;
        Ok(None)
    }

    fn draw(&mut self) -> io::Result<()> {
        let plain = if self.block.is_empty() {
            FIRST
        } else {
            FURTHER
        };
        let prompt = self.paint.apply(Style::Id, plain);
        if self.raw.is_none() {
            return write(&prompt);
        }
        let columns = terminal::size().map_or(COLUMNS, |size| usize::from(size.columns));
        let text = self
            .drawn
            .again(&self.line, (&prompt, plain.len()), columns);
        write(&text)
    }

    /// Goes on below the line, behind a last word.
    fn below(&mut self, word: &str) -> io::Result<()> {
        self.drawn.leave();
        write(&format!("{word}\r\n"))
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stderr().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
