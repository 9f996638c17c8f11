//! Values of code beyond text: figures and tables are saved and said where; where the terminal can
//! show pictures, they are shown as well.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opensandbox::RichResult;

use super::graphics::Graphics;
use crate::error::Error;
use crate::output::{Message, Printer};

/// Where figures go when no directory is named.
const DIRECTORY: &str = "figures";

/// Files of one kind in one directory; more are a program that runs wild.
const FILES_MAX: u32 = 10_000;

/// Saves and shows what code gives.
pub(super) struct Figures {
    directory: PathBuf,
    graphics: Graphics,
    printer: Printer,
}

/// How a form of a value is kept.
struct Form {
    kind: &'static str,
    extension: &'static str,
    is_base64: bool,
}

impl Figures {
    pub(super) fn new(directory: Option<&Path>, graphics: Graphics, printer: Printer) -> Self {
        Self {
            directory: directory.unwrap_or(Path::new(DIRECTORY)).to_owned(),
            graphics,
            printer,
        }
    }

    /// Prints a value's text, saves its other forms, and shows it.
    pub(super) fn show(&self, result: &RichResult) -> Result<(), Error> {
        if let Some(text) = result.text() {
            self.printer.text(text)?;
        }
        if let Some(png) = result.get("image/png")
            && let Ok(png) = decoded(png)
        {
            self.graphics.show(&png)?;
        }
        for (media_type, content) in &result.by_type {
            let Some(form) = form(media_type) else {
                continue;
            };
            let bytes = match form.is_base64 {
                true => decoded(content).map_err(|error| Error::Failed {
                    message: format!("the code gave {media_type} that is not base64: {error}"),
                    next: None,
                })?,
                false => content.clone().into_bytes(),
            };
            let path = self.save(&form, &bytes)?;
            let text = format!("{} saved: {}", form.kind, path.display());
            self.printer.note(Message::Info, &text)?;
        }
        Ok(())
    }

    /// Writes a file under the next free number; nothing is ever replaced.
    fn save(&self, form: &Form, bytes: &[u8]) -> Result<PathBuf, Error> {
        std::fs::create_dir_all(&self.directory)
            .map_err(|error| Error::file("made", &self.directory, error))?;
        for number in 1..=FILES_MAX {
            let name = format!("{}-{number}.{}", form.kind, form.extension);
            let path = self.directory.join(name);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    let written = file.write_all(bytes);
                    written.map_err(|error| Error::file("written", &path, error))?;
                    return Ok(path);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file("written", &path, error)),
            }
        }
        Err(Error::Failed {
            message: format!("{} has {FILES_MAX} of them", self.directory.display()),
            next: Some("name another directory with --figures".to_owned()),
        })
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    // Encoders break base64 into lines.
    let text: String = text.split_whitespace().collect();
    STANDARD.decode(text)
}

/// How a form of a value is kept; nothing for plain text, which was printed.
fn form(media_type: &str) -> Option<Form> {
    let (kind, extension, is_base64) = match media_type {
        "image/png" => ("figure", "png", true),
        "image/jpeg" => ("figure", "jpg", true),
        "image/gif" => ("figure", "gif", true),
        "image/webp" => ("figure", "webp", true),
        "application/pdf" => ("figure", "pdf", true),
        "image/svg+xml" => ("figure", "svg", false),
        "text/html" => ("table", "html", false),
        "text/csv" => ("table", "csv", false),
        "text/latex" => ("table", "tex", false),
        "text/markdown" => ("table", "md", false),
        "application/json" => ("value", "json", false),
        other if other.ends_with("+json") => ("value", "json", false),
        _ => return None,
    };
    Some(Form {
        kind,
        extension,
        is_base64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_never_replace_anything() {
        let place = tempfile::tempdir().unwrap();
        let printer = Printer::new(Some(crate::output::Format::Raw), false);
        let figures = Figures::new(Some(place.path()), Graphics::None, printer);
        let result = RichResult {
            by_type: [
                ("image/png".to_owned(), STANDARD.encode("png")),
                ("text/html".to_owned(), "<table>".to_owned()),
            ]
            .into(),
            count: None,
        };
        figures.show(&result).unwrap();
        figures.show(&result).unwrap();
        let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(read("figure-2.png"), "png");
        assert_eq!(read("table-1.html"), "<table>");
    }
}
