//! Printing: one description of what a command found out, in whichever format was asked for.
//!
//! At a terminal that is a table; in a pipe the same columns without lines or colours, so that
//! `cut` and `awk` can read them; `-o` asks for any format anywhere. Results go to standard
//! output, everything about them to standard error.

mod human;
pub(crate) mod paint;
pub mod record;
mod table;
pub(crate) mod template;
mod yaml;

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;

use crate::terminal;
use human::human;
use paint::{Paint, Style, of_state};
pub use record::{Record, Value};
use table::Cell;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Format {
    /// A table with lines and colours.
    Table,
    /// The table's columns without lines and colours.
    Plain,
    /// Indented JSON.
    Json,
    /// YAML.
    Yaml,
    /// The bare content: a text as it is, of a table its cells set apart by tabs.
    Raw,
    /// Ids or names only, one a line.
    Name,
}

impl Format {
    fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Plain => "plain",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Raw => "raw",
            Self::Name => "name",
        }
    }
}

/// A format that a command cannot answer in.
#[derive(Debug, thiserror::Error)]
#[error("this command does not support `-o {asked}`; it can answer as {allowed}")]
pub struct UnsupportedFormat {
    asked: &'static str,
    allowed: String,
}

/// What kind of message is printed, with the words of the published command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    Ok,
    Info,
    Warning,
    Error,
}

/// Prints results in one format.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    format: Format,
    paint: Paint,
    width: Option<usize>,
    is_terminal: bool,
    /// Ids and times of tables are not cut for people.
    is_whole: bool,
}

/// Fields by which a record is named, most telling first.
const NAMES: [&str; 8] = [
    "id",
    "sandbox_id",
    "template_id",
    "execution_id",
    "session_id",
    "reference",
    "path",
    "name",
];
const STATES: [&str; 3] = ["status", "state", "healthy"];
const TIMES: [&str; 4] = ["created_at", "expires_at", "modified_at", "updated_at"];

impl Printer {
    /// A printer for what was asked for; without that, tables at a terminal and plain columns
    /// elsewhere. Colours only at a terminal that wants them.
    pub fn new(asked: Option<Format>, wants_color: bool) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let fallback = if is_terminal {
            Format::Table
        } else {
            Format::Plain
        };
        let is_calm = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            format: asked.unwrap_or(fallback),
            paint: Paint::new(wants_color && is_terminal && !is_calm),
            width: terminal::size().map(|size| usize::from(size.columns)),
            is_terminal,
            is_whole: false,
        }
    }

    /// The same printer, with ids and times of tables in full.
    pub(crate) fn whole(self, is_whole: bool) -> Self {
        Self { is_whole, ..self }
    }

    /// The same printer, if the command can answer in its format. `Table` allows `Plain` too,
    /// and what has rows also has names.
    pub fn allowing(
        self,
        asked: Option<Format>,
        allowed: &[Format],
    ) -> Result<Self, UnsupportedFormat> {
        match asked {
            Some(asked) if !allowed.contains(&asked) => Err(UnsupportedFormat {
                asked: asked.word(),
                allowed: allowed
                    .iter()
                    .map(|format| format.word())
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
            _ => Ok(self),
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn paint(&self) -> Paint {
        self.paint
    }

    /// Whether results go to a person who may be shown progress.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// One thing, field by field.
    pub fn record(&self, title: &str, record: &Record) -> io::Result<()> {
        match self.format {
            Format::Json | Format::Yaml => self.data(Value::Record(record.clone())),
            Format::Name => self.names(std::slice::from_ref(record)),
            Format::Raw => {
                let cells: Vec<String> = record.fields().map(|(_, value)| value.cell()).collect();
                line(&cells.join("\t"))
            }
            Format::Plain => {
                let rows: Vec<Vec<Cell>> = record.fields().map(|field| self.pair(field)).collect();
                write(&table::plain(
                    &["KEY".to_owned(), "VALUE".to_owned()],
                    &rows,
                ))
            }
            Format::Table => {
                let rows: Vec<Vec<Cell>> = record.fields().map(|field| self.pair(field)).collect();
                let header = ["Key".to_owned(), "Value".to_owned()];
                self.boxed(Some(title), &header, &rows)
            }
        }
    }

    /// Many things, each a row of the named columns.
    pub fn rows(&self, title: &str, columns: &[&str], rows: &[Record]) -> io::Result<()> {
        match self.format {
            Format::Json | Format::Yaml => self.data(Value::List(
                rows.iter().cloned().map(Value::Record).collect(),
            )),
            Format::Name => self.names(rows),
            Format::Raw => rows.iter().try_for_each(|row| {
                let cells: Vec<String> = columns.iter().map(|name| cell(row, name)).collect();
                line(&cells.join("\t"))
            }),
            Format::Plain | Format::Table => {
                let header = self.header(columns);
                let rows = self.cells(columns, rows);
                if self.format == Format::Plain {
                    write(&table::plain(&header, &rows))
                } else {
                    self.boxed(Some(title), &header, &rows)
                }
            }
        }
    }

    /// Many things that come page by page: the first page gives the columns their widths, and each
    /// is printed when it comes.
    pub(crate) fn paged<'a>(&self, title: &'a str, columns: &'a [&'a str]) -> Paged<'a> {
        Paged {
            printer: *self,
            title,
            columns,
            table: None,
            rows: Vec::new(),
        }
    }

    /// A page of things: rows as [`Printer::rows`] has them, with where the page stands.
    pub fn page(
        &self,
        title: &str,
        columns: &[&str],
        rows: &[Record],
        pagination: Record,
    ) -> io::Result<()> {
        match self.format {
            Format::Json | Format::Yaml => {
                let items = rows.iter().cloned().map(Value::Record).collect();
                let page = Record::new()
                    .with("items", Value::List(items))
                    .with("pagination", pagination);
                self.data(Value::Record(page))
            }
            _ if rows.is_empty() => self.note(
                Message::Info,
                &format!("No {} found.", title.to_lowercase()),
            ),
            _ => self.rows(title, columns, rows),
        }
    }

    /// What was made or changed.
    pub fn done(&self, title: &str, record: &Record) -> io::Result<()> {
        if self.format != Format::Table {
            return self.record(title, record);
        }
        let mut text = format!("{} {title}\n", self.paint.apply(Style::Good, "✓"));
        for (name, value) in record.fields() {
            let name = self.paint.apply(Style::Header, name);
            text += &format!("  {name}: {}\n", value.cell());
        }
        write(&text)
    }

    /// A sentence about what was done.
    pub(crate) fn message(&self, kind: Message, text: &str) -> io::Result<()> {
        let (status, word) = match kind {
            Message::Ok => ("ok", "OK"),
            Message::Info => ("info", "INFO"),
            Message::Warning => ("warning", "WARN"),
            Message::Error => ("error", "ERROR"),
        };
        match self.format {
            Format::Json | Format::Yaml => {
                let record = Record::new().with("status", status).with("message", text);
                self.data(Value::Record(record))
            }
            Format::Table if kind == Message::Ok => {
                line(&format!("{} {text}", self.paint.apply(Style::Good, "✓")))
            }
            Format::Table => self.note(kind, text),
            _ if matches!(kind, Message::Ok | Message::Info) => line(&format!("{word}: {text}")),
            _ => self.note(kind, text),
        }
    }

    /// A sentence beside the result, for people only: on standard error.
    pub(crate) fn note(&self, kind: Message, text: &str) -> io::Result<()> {
        let (style, word) = match kind {
            Message::Ok => (Style::Good, "OK"),
            Message::Info => (Style::Still, "INFO"),
            Message::Warning => (Style::Busy, "WARN"),
            Message::Error => (Style::Bad, "ERROR"),
        };
        let paint = if io::stderr().is_terminal() {
            self.paint
        } else {
            Paint::PLAIN
        };
        writeln!(io::stderr(), "{}: {text}", paint.apply(style, word))
    }

    /// Text as it is, with a newline at its end.
    pub(crate) fn text(&self, text: &str) -> io::Result<()> {
        if text.ends_with('\n') {
            write(text)
        } else {
            line(text)
        }
    }

    /// JSON or YAML.
    pub(crate) fn data(&self, value: Value) -> io::Result<()> {
        if self.format == Format::Yaml {
            write(&yaml::document(&value.sorted()))
        } else {
            line(&serde_json::to_string_pretty(&value)?)
        }
    }

    /// One of a stream of records: a line of JSON, a document of YAML, or a line of cells.
    pub(crate) fn streamed(&self, record: &Record, text: &str) -> io::Result<()> {
        match self.format {
            Format::Json => line(&serde_json::to_string(record)?),
            Format::Yaml => {
                write("---\n")?;
                self.data(Value::Record(record.clone()))
            }
            Format::Name => self.names(std::slice::from_ref(record)),
            _ => line(text),
        }
    }

    /// Rows as a table in a string, cut to the terminal.
    pub(crate) fn table_text(&self, columns: &[&str], rows: &[Record]) -> String {
        let header = self.header(columns);
        let rows = self.cells(columns, rows);
        match self.width {
            Some(width) if width < table::WIDTH_MIN => table::plain(&header, &rows),
            width => table::boxed(None, &header, &rows, width, self.paint),
        }
    }

    fn boxed(&self, title: Option<&str>, header: &[String], rows: &[Vec<Cell>]) -> io::Result<()> {
        match self.width {
            Some(width) if width < table::WIDTH_MIN => write(&table::plain(header, rows)),
            width => write(&table::boxed(title, header, rows, width, self.paint)),
        }
    }

    /// Whether this is read by people, who want to know how long ago rather than when.
    fn is_human(&self) -> bool {
        self.format == Format::Table && !self.is_whole
    }

    fn header(&self, columns: &[&str]) -> Vec<String> {
        let name = |name: &&str| match name.strip_suffix("_at") {
            Some(short) if self.is_human() => short.to_uppercase(),
            _ => name.to_uppercase(),
        };
        columns.iter().map(name).collect()
    }

    fn cells(&self, columns: &[&str], rows: &[Record]) -> Vec<Vec<Cell>> {
        let now = jiff::Timestamp::now();
        let row = |record: &Record| {
            let text = |name: &str| match cell(record, name) {
                text if self.is_human() => human(name, text, now),
                text => text,
            };
            columns
                .iter()
                .map(|name| self.cell(name, text(name)))
                .collect()
        };
        rows.iter().map(row).collect()
    }

    fn pair(&self, (name, value): (&str, &Value)) -> Vec<Cell> {
        let name_cell = Cell {
            text: name.to_owned(),
            style: Style::Id,
        };
        vec![name_cell, self.cell(name, value.cell())]
    }

    fn cell(&self, name: &str, text: String) -> Cell {
        if STATES.contains(&name)
            && let Some((style, mark)) = of_state(&text)
        {
            let text = if self.format == Format::Plain {
                text
            } else {
                format!("{mark} {text}")
            };
            return Cell { text, style };
        }
        let style = if TIMES.contains(&name) {
            Style::Dim
        } else if NAMES[..5].contains(&name) {
            Style::Id
        } else {
            Style::None
        };
        Cell { text, style }
    }

    fn names(&self, rows: &[Record]) -> io::Result<()> {
        rows.iter().try_for_each(|row| {
            let name = NAMES.iter().find_map(|name| row.get(name));
            line(&name.map_or_else(|| "-".to_owned(), Value::cell))
        })
    }
}

/// Rows that are printed as they come. JSON and YAML are one document, which is printed at the end.
pub(crate) struct Paged<'a> {
    printer: Printer,
    title: &'a str,
    columns: &'a [&'a str],
    table: Option<table::Streamed>,
    rows: Vec<Record>,
}

impl Paged<'_> {
    /// More rows.
    pub(crate) fn more(&mut self, rows: Vec<Record>) -> io::Result<()> {
        let printer = self.printer;
        match printer.format {
            Format::Json | Format::Yaml => {
                self.rows.extend(rows);
                Ok(())
            }
            Format::Name | Format::Raw => printer.rows(self.title, self.columns, &rows),
            Format::Plain | Format::Table if rows.is_empty() => Ok(()),
            Format::Plain | Format::Table => {
                let cells = printer.cells(self.columns, &rows);
                let table = self.table.get_or_insert_with(|| {
                    let header = printer.header(self.columns);
                    let is_plain = printer.format == Format::Plain
                        || printer.width.is_some_and(|width| width < table::WIDTH_MIN);
                    table::Streamed::new(header, &cells, is_plain, printer.width)
                });
                write(&table.rows(&cells, self.title, printer.paint))
            }
        }
    }

    /// There are no more; in all there were so many, as JSON says it.
    pub(crate) fn end(mut self, pagination: Record) -> io::Result<()> {
        let printer = self.printer;
        match (printer.format, self.table.as_mut()) {
            (Format::Json | Format::Yaml, _) => {
                printer.page(self.title, self.columns, &self.rows, pagination)
            }
            (Format::Name | Format::Raw, _) => Ok(()),
            (_, Some(table)) => write(&table.end(printer.paint)),
            (_, None) => printer.page(self.title, self.columns, &[], pagination),
        }
    }
}

fn cell(row: &Record, name: &str) -> String {
    row.get(name).unwrap_or(&Value::Null).cell()
}

/// Lines whose cells are set apart by tabs, in columns.
pub(crate) fn aligned(header: Option<&str>, lines: &[String]) -> String {
    let cells = |line: &str| -> Vec<Cell> {
        let cell = |text: &str| Cell {
            text: text.to_owned(),
            style: Style::None,
        };
        line.split('\t').map(cell).collect()
    };
    let rows: Vec<Vec<Cell>> = lines.iter().map(|line| cells(line)).collect();
    let names: Vec<String> = header
        .unwrap_or_default()
        .split('\t')
        .map(str::to_owned)
        .collect();
    let text = table::plain(&names, &rows);
    match header {
        Some(_) => text,
        None => text
            .split_once('\n')
            .map_or("", |(_, rest)| rest)
            .to_owned(),
    }
}

pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
