//! `osb code`: an interpreter in a sandbox, line by line at a terminal, or a whole program.

mod figures;
mod graphics;
mod line;
mod prompt;
mod whole;

use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use opensandbox::{Event, Output, RunCode, Sandbox};

use super::lifetime::Lifetime;
use super::{DONE, Outcome, create};
use crate::app::App;
use crate::args::exec::Code;
use crate::args::sandbox::Create;
use crate::error::Error;
use crate::interrupts::{INTERRUPTED, Interrupts};
use crate::model;
use crate::output::{Format, Message, Printer, Record, Value};

use figures::Figures;
pub use graphics::Choice;
use graphics::Graphics;
use prompt::{Asked, Prompt};

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
    in_sandbox(app, args, &app.sandbox(id).await?).await
}

async fn in_sandbox(app: &App, args: &Code, sandbox: &Sandbox) -> Outcome {
    let program = program(args)?;
    let (context, is_own) = match &args.context {
        Some(id) => (id.clone(), false),
        None => {
            let made = sandbox.code().create_context(&args.language, None).await?;
            (made.id.to_string(), true)
        }
    };
    let mut interrupts = Interrupts::listen()?;
    let evaluator = Evaluator {
        sandbox,
        context: &context,
        printer: app.printer(),
        figures: Figures::new(
            args.figures.as_deref(),
            Graphics::of(args.graphics),
            app.printer(),
        ),
    };
    let work = async {
        match program {
            Some(code) if matches!(evaluator.printer.format(), Format::Json | Format::Yaml) => {
                evaluator.data(&code, &mut interrupts).await
            }
            Some(code) => evaluator.run(&code, &mut interrupts).await,
            None => evaluator.converse(&args.language, &mut interrupts).await,
        }
    };
    let lifetime = Lifetime::new(sandbox, true);
    let tell = |text: &str| drop(evaluator.printer.note(Message::Warning, text));
    let outcome = lifetime.during(tell, work).await;
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

/// Runs code in one context and prints its results.
struct Evaluator<'a> {
    sandbox: &'a Sandbox,
    context: &'a str,
    printer: Printer,
    figures: Figures,
}

impl Evaluator<'_> {
    fn cell(&self, code: &str) -> RunCode {
        self.sandbox.code().run(code).context(self.context)
    }

    /// Runs code and prints what it gives. Ctrl-C goes to the code; another request to stop goes
    /// there too, and is answered.
    async fn run(&self, code: &str, interrupts: &mut Interrupts) -> Outcome {
        let mut execution = self.cell(code).stream().await?;
        let mut exit = DONE;
        loop {
            let event = tokio::select! {
                event = execution.next() => event,
                code = interrupts.next() => {
                    // Code that has ended by now needs no interrupt.
                    let _ = self.sandbox.code().interrupt(self.context).await;
                    match code {
                        INTERRUPTED => continue,
                        code => return Ok(code),
                    }
                }
            };
            match event.transpose()? {
                Some(Event::Stdout(text)) => self.printed(print(io::stdout(), &text)).await?,
                Some(Event::Stderr(text)) => self.printed(print(io::stderr(), &text)).await?,
                Some(Event::Result(result)) => self.figures.show(&result)?,
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

    /// Whoever reads what the code prints is gone: it would run on for nobody.
    async fn printed(&self, printed: io::Result<()>) -> io::Result<()> {
        if printed.is_err() {
            let _ = self.sandbox.code().interrupt(self.context).await;
        }
        printed
    }

    /// Runs code to its end and prints everything that it gave, for programs.
    async fn data(&self, code: &str, interrupts: &mut Interrupts) -> Outcome {
        let mut execution = self.cell(code).stream().await?;
        let mut output = Output::default();
        loop {
            let event = tokio::select! {
                event = execution.next() => event,
                code = interrupts.next() => {
                    // Code that has ended by now needs no interrupt.
                    let _ = self.sandbox.code().interrupt(self.context).await;
                    return Ok(code);
                }
            };
            match event.transpose()? {
                Some(event) => output.push(event),
                None => break,
            }
        }
        let exit = if output.error.is_some() {
            EXCEPTION
        } else {
            DONE
        };
        let results = output.results.iter().map(|result| {
            let forms = result.by_type.iter();
            forms.fold(Record::new(), |record, (form, content)| {
                record.with(form, content)
            })
        });
        let record = Record::new()
            .with("stdout", output.stdout)
            .with("stderr", output.stderr)
            .with("results", results.collect::<Vec<Record>>())
            .with("error", output.error.as_ref().map(model::snake))
            .with("execution_count", output.count);
        self.printer.data(Value::Record(record))?;
        Ok(exit)
    }

    /// Reads and runs until the input ends, or this program is told to.
    async fn converse(&self, language: &str, interrupts: &mut Interrupts) -> Outcome {
        let hello = format!(
            "{language} in sandbox {}; Ctrl-C interrupts, Ctrl-D leaves",
            self.sandbox.id()
        );
        self.printer.note(Message::Info, &hello)?;
        let mut prompt = Prompt::new(language, self.printer.paint())?;
        loop {
            let asked = tokio::select! {
                asked = prompt.next() => asked,
                code = interrupts.next() => match code {
                    INTERRUPTED => {
                        prompt.throw_away()?;
                        continue;
                    }
                    code => return Ok(code),
                },
            };
            match asked? {
                Asked::Block(block) => {
                    // What fails is shown; the conversation goes on.
                    let code = self.run(&block, interrupts).await?;
                    if !matches!(code, DONE | EXCEPTION) {
                        return Ok(code);
                    }
                }
                Asked::End => return Ok(DONE),
            }
        }
    }
}

fn print(mut out: impl io::Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}
