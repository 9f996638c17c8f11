//! What every command is given: the settings, a printer, and a client when it needs one.

use std::cell::OnceCell;

use opensandbox::{Client, Sandbox};

use crate::args::Globals;
use crate::config::Config;
use crate::error::Error;
use crate::find;
use crate::output::{Format, Printer};

/// What a command is given.
pub(crate) struct App {
    pub(crate) globals: Globals,
    config: Option<Config>,
    client: OnceCell<Client>,
}

/// Formats of whatever has fields or rows.
pub(crate) const DATA: [Format; 6] = [
    Format::Table,
    Format::Plain,
    Format::Json,
    Format::Yaml,
    Format::Raw,
    Format::Name,
];

impl App {
    pub(crate) fn new(globals: Globals, config: Option<Config>) -> Self {
        Self {
            globals,
            config,
            client: OnceCell::new(),
        }
    }

    /// The settings.
    pub(crate) fn config(&self) -> Result<&Config, Error> {
        match &self.config {
            Some(config) => Ok(config),
            // Told again, now that it matters.
            None => Err(Config::resolve(&self.globals).err().map_or_else(
                || Error::Usage("the settings could not be read".to_owned()),
                Error::from,
            )),
        }
    }

    /// A printer for what has fields or rows.
    pub(crate) fn printer(&self) -> Printer {
        let color = self
            .config
            .as_ref()
            .map_or(!self.globals.no_color, |c| c.color);
        Printer::new(self.globals.output, color)
    }

    /// A printer in this format, whatever was asked for.
    pub(crate) fn printer_as(&self, format: Format) -> Printer {
        Printer::new(Some(format), false)
    }

    /// A printer for a command that answers in these formats only; the first is its default.
    pub(crate) fn printer_of(&self, allowed: &[Format]) -> Result<Printer, Error> {
        let asked = self.globals.output;
        let color = self.config.as_ref().is_none_or(|config| config.color);
        let printer = Printer::new(asked.or(allowed.first().copied()), color);
        Ok(printer.allowing(asked, allowed)?)
    }

    /// The server.
    pub(crate) fn client(&self) -> Result<&Client, Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::new(self.config()?.connection()?)?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The sandbox that is meant; a whole id is taken as it is.
    pub(crate) async fn sandbox(&self, text: &str) -> Result<Sandbox, Error> {
        Ok(self.client()?.sandbox(self.find(text).await?))
    }

    /// The id of the sandbox that is meant: by its name, its id, or the beginning of that.
    pub(crate) async fn find(&self, text: &str) -> Result<String, Error> {
        if find::is_whole_id(text) {
            return Ok(text.to_owned());
        }
        find::sandbox(self.client()?, text).await
    }

    /// The same of several.
    pub(crate) async fn find_all(&self, texts: &[String]) -> Result<Vec<String>, Error> {
        let mut ids = Vec::with_capacity(texts.len());
        for text in texts {
            ids.push(self.find(text).await?);
        }
        Ok(ids)
    }
}
