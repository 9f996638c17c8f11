//! `osb man`: pages made from the command line itself, so that they never lag.

use std::io::{self, Write as _};
use std::path::Path;

use clap_mangen::Man as Page;

use super::{DONE, Outcome};
use crate::args::local::Man;
use crate::error::Error;
use crate::tree;

pub(super) fn pages(args: &Man) -> Outcome {
    let mut tree = tree();
    tree.build();
    if let Some(directory) = &args.directory {
        std::fs::create_dir_all(directory).map_err(|e| Error::file("made", directory, e))?;
        write_all(&tree, "osb", directory)?;
        return Ok(DONE);
    }
    let mut command = &tree;
    for word in &args.command {
        command = command.find_subcommand(word).ok_or_else(|| {
            Error::Usage(format!(
                "there is no command `osb {}`",
                args.command.join(" ")
            ))
        })?;
    }
    let mut name = vec!["osb"];
    name.extend(args.command.iter().map(String::as_str));
    io::stdout().write_all(&render(command, &name.join("-"))?)?;
    Ok(DONE)
}

fn write_all(command: &clap::Command, name: &str, directory: &Path) -> Result<(), Error> {
    let path = directory.join(format!("{name}.1"));
    let text = render(command, name)?;
    std::fs::write(&path, text).map_err(|error| Error::file("written", &path, error))?;
    for inner in command
        .get_subcommands()
        .filter(|inner| inner.get_name() != "help")
    {
        write_all(inner, &format!("{name}-{}", inner.get_name()), directory)?;
    }
    Ok(())
}

fn render(command: &clap::Command, name: &str) -> Result<Vec<u8>, Error> {
    let command = command
        .clone()
        .name(name.to_owned())
        .display_name(name.to_owned());
    let mut text = Vec::new();
    Page::new(command).render(&mut text)?;
    Ok(text)
}
