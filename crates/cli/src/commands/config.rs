//! `osb config …`: the settings of the command line.

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::local::Config as Command;
use crate::config;
use crate::output::Message;

pub(super) fn run(app: &App, command: Command) -> Outcome {
    let printer = app.printer();
    match command {
        Command::Init { force } => {
            let (path, is_new) = config::init(&app.globals, force)?;
            let path = path.display();
            if is_new {
                printer.message(Message::Ok, &format!("Config file created: {path}"))?;
            } else {
                let text = format!("there is a config file at {path}; --force replaces it");
                printer.message(Message::Warning, &text)?;
            }
        }
        Command::Show => printer.record("Settings", &app.config()?.shown())?,
        Command::Set { key, value } => {
            config::set(&app.globals, &key, &value)?;
            let shown = if key.ends_with("api_key") {
                "***"
            } else {
                &value
            };
            printer.message(Message::Ok, &format!("Set {key} = {shown}"))?;
        }
    }
    Ok(DONE)
}
