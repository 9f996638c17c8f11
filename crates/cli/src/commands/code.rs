//! `osb code`: an interpreter in a sandbox, line by line at a terminal, or a whole program.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use opensandbox::{Event, RunCode, Sandbox};
use tokio::sync::mpsc;

use super::{DONE, Outcome, create};
use crate::app::App;
use crate::args::exec::Code;
use crate::args::sandbox::Create;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::paint::Style;
use crate::output::{Message, Printer};
use crate::terminal;

/// The code ended with an exception.
const EXCEPTION: u8 = 1;

pub(super) async fn run(app: &App, args: &Code) -> Outcome {
    let Some(id) = &args.sandbox_id else {
        let order = Create {
            image: args.image.clone(),
            ..Create::default()
        };
        let sandbox = create::make(app, &order).await?;
        let outcome = in_sandbox(app, args, &sandbox).await;
        sandbox.kill().await?;
        return outcome;
    };
    in_sandbox(app, args, &app.sandbox(id)?).await
}

async fn in_sandbox(app: &App, args: &Code, sandbox: &Sandbox) -> Outcome {
    let program = program(args)?;
    let (context, is_own) = match &args.context {
        Some(id) => (id.clone(), false),
        None => {
            let made = sandbox
                .code()
                .create_context(args.language.as_str(), None)
                .await?;
            (made.id.to_string(), true)
        }
    };
    let mut interrupts = Interrupts::listen()?;
    let place = Place {
        sandbox,
        context: &context,
        printer: app.printer(),
    };
    let outcome = match program {
        Some(code) => place.run(&code, &mut interrupts).await,
        None => {
            place
                .converse(args.language.as_str(), &mut interrupts)
                .await
        }
    };
    if is_own {
        // The context goes with its sandbox at the latest.
        let _ = sandbox.code().delete_context(&context).await;
    }
    outcome
}

/// The whole program, where there is one: from a flag, a file, or a pipe.
fn program(args: &Code) -> Result<Option<String>, Error> {
    if let Some(code) = &args.code {
        return Ok(Some(code.clone()));
    }
    let is_piped = args.file.is_none() && !io::stdin().is_terminal();
    match &args.file {
        Some(path) if path != Path::new("-") => std::fs::read_to_string(path)
            .map(Some)
            .map_err(|error| Error::file("read", path, error)),
        Some(_) => read_input().map(Some),
        None if is_piped => read_input().map(Some),
        None => Ok(None),
    }
}

fn read_input() -> Result<String, Error> {
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Error::file("read", Path::new("standard input"), error))?;
    Ok(text)
}

/// A context, and where its results go.
struct Place<'a> {
    sandbox: &'a Sandbox,
    context: &'a str,
    printer: Printer,
}

impl Place<'_> {
    fn cell(&self, code: &str) -> RunCode {
        self.sandbox.code().run(code).context(self.context)
    }

    /// Runs code and prints what it gives; interrupts are handed on.
    async fn run(&self, code: &str, interrupts: &mut Interrupts) -> Outcome {
        let mut execution = self.cell(code).stream().await?;
        let mut exit = DONE;
        loop {
            let event = tokio::select! {
                event = execution.next() => event,
                _ = interrupts.next() => {
                    // Code that has ended by now needs no interrupt.
                    let _ = self.sandbox.code().interrupt(self.context).await;
                    continue;
                }
            };
            match event.transpose()? {
                Some(Event::Stdout(text)) => print(io::stdout(), &text)?,
                Some(Event::Stderr(text)) => print(io::stderr(), &text)?,
                Some(Event::Result(result)) => {
                    let forms: Vec<&str> = result.by_type.keys().map(String::as_str).collect();
                    match result.text() {
                        Some(text) => self.printer.text(text)?,
                        None => self.printer.text(&format!("<{}>", forms.join(", ")))?,
                    }
                }
                Some(Event::Error(error)) => {
                    exit = EXCEPTION;
                    let text = if error.traceback.is_empty() {
                        format!("{}: {}", error.ename, error.evalue)
                    } else {
                        error.traceback.join("\n")
                    };
                    print(io::stderr(), &(text + "\n"))?;
                }
                Some(_) => {}
                None => return Ok(exit),
            }
        }
    }

    /// Reads and runs until the input ends.
    async fn converse(&self, language: &str, interrupts: &mut Interrupts) -> Outcome {
        let hello = format!(
            "{language} in sandbox {}; Ctrl-D ends it",
            self.sandbox.id()
        );
        self.printer.note(Message::Info, &hello)?;
        let mut lines = Lines::new();
        let mut block = String::new();
        loop {
            let prompt = if block.is_empty() { ">>> " } else { "... " };
            print(io::stderr(), &self.printer.paint().apply(Style::Id, prompt))?;
            let line = tokio::select! {
                line = lines.next() => line,
                _ = interrupts.next() => {
                    block.clear();
                    print(io::stderr(), "\n")?;
                    continue;
                }
            };
            let Some(line) = line else {
                print(io::stderr(), "\n")?;
                return Ok(DONE);
            };
            block.push_str(&line);
            block.push('\n');
            if block.trim().is_empty() {
                block.clear();
            } else if is_whole(language, &block) {
                // What fails is shown; the conversation goes on.
                self.run(&block, interrupts).await?;
                block.clear();
            }
        }
    }
}

fn print(mut out: impl io::Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Standard input line by line.
struct Lines {
    pieces: mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Lines {
    fn new() -> Self {
        Self {
            pieces: terminal::input(),
            rest: Vec::new(),
        }
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            match self.pieces.recv().await {
                Some(piece) => self.rest.extend(piece),
                None if self.rest.is_empty() => return None,
                None => {
                    let line = std::mem::take(&mut self.rest);
                    return Some(String::from_utf8_lossy(&line).into_owned());
                }
            }
        }
    }
}

/// Whether a block can be run as it is, judged as a person at a prompt would: brackets and long
/// texts are closed, and in Python a block that was opened ends with an empty line.
fn is_whole(language: &str, block: &str) -> bool {
    let hashes = matches!(language, "python" | "bash");
    if is_open(block, hashes) || block.trim_end().ends_with('\\') {
        return false;
    }
    if language != "python" {
        return true;
    }
    let has_block = block
        .lines()
        .any(|line| line.trim_end().ends_with(':') || line.starts_with([' ', '\t', '@']));
    !has_block || block.ends_with("\n\n")
}

/// Whether a bracket or a text is still open.
fn is_open(block: &str, hashes: bool) -> bool {
    let mut depth = 0_i32;
    let mut rest = block;
    while let Some(letter) = rest.chars().next() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '#' if hashes => {
                rest = rest.split_once('\n').map_or("", |(_, after)| after);
                continue;
            }
            '"' | '\'' => {
                let triple = letter.to_string().repeat(3);
                if let Some(inside) = rest.strip_prefix(triple.as_str()) {
                    match inside.find(triple.as_str()) {
                        Some(end) => rest = &inside[end + 3..],
                        None => return true,
                    }
                } else {
                    rest = after_text(&rest[1..], letter);
                }
                continue;
            }
            _ => {}
        }
        rest = &rest[letter.len_utf8()..];
    }
    depth > 0
}

/// What follows a text of one line.
fn after_text(inside: &str, quote: char) -> &str {
    let mut is_escaped = false;
    for (at, letter) in inside.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\n' => return &inside[at..],
            _ if letter == quote => return &inside[at + 1..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_to_their_end() {
        for whole in [
            "1 + 1\n",
            "x = {'a': 1}\n",
            "print(':')\n",
            "f('it\\'s (')\n",
            "# (\n",
        ] {
            assert!(is_whole("python", whole), "{whole}");
        }
        for half in [
            "def f():\n",
            "for i in x:\n  pass\n",
            "f(1,\n",
            "\"\"\"a\n",
            "a = \\\n",
            "@x\n",
        ] {
            assert!(!is_whole("python", half), "{half}");
        }
        assert!(is_whole("python", "def f():\n  pass\n\n"));
        assert!(!is_whole("javascript", "function f() {\n"));
        assert!(is_whole("javascript", "function f() { return 1 }\n"));
    }
}
