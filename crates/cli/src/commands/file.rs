//! `osb file …`: the files of a sandbox, one by one.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use api::exec::file::Permission;
use api::file_mode::FileMode;
use opensandbox::{Contents, WriteFile};

use super::{DONE, Outcome, copy};
use crate::app::App;
use crate::args::file::{File, Owner, Paths, Write};
use crate::error::Error;
use crate::model;
use crate::output::{Format, Message, Record};

const COLUMNS: [&str; 7] = [
    "path",
    "size",
    "mode",
    "owner",
    "group",
    "created_at",
    "modified_at",
];

pub(super) async fn run(app: &App, command: File) -> Outcome {
    match command {
        File::Cat {
            sandbox_id,
            path,
            encoding,
        } => {
            app.printer_of(&[Format::Raw])?;
            let bytes = app.sandbox(&sandbox_id).await?.files().read(&path).await?;
            io::stdout().write_all(&decoded(bytes, &encoding)?)?;
        }
        File::Write(args) => return write(app, &args).await,
        File::Upload {
            sandbox_id,
            local_path,
            remote_path,
        } => {
            let sandbox = app.sandbox(&sandbox_id).await?;
            copy::upload_file(&sandbox, &local_path, &remote_path, false).await?;
            let text = format!("Uploaded: {} → {remote_path}", local_path.display());
            app.printer().message(Message::Ok, &text)?;
        }
        File::Download {
            sandbox_id,
            remote_path,
            local_path,
        } => {
            let sandbox = app.sandbox(&sandbox_id).await?;
            if copy::download_file(&sandbox, &remote_path, &local_path, false).await? {
                let text = format!("Downloaded: {remote_path} → {}", local_path.display());
                app.printer().message(Message::Ok, &text)?;
            }
        }
        File::Replace {
            sandbox_id,
            path,
            old,
            new,
        } => {
            let files = app.sandbox(&sandbox_id).await?.files();
            let count = files.replace(&path, old, new).await?;
            if count == Some(0) {
                app.printer()
                    .note(Message::Warning, "the text does not occur in the file")?;
            }
            app.printer()
                .message(Message::Ok, &format!("Replaced in: {path}"))?;
        }
        File::Ls { .. } | File::Search { .. } | File::Info(_) => show(app, command).await?,
        File::Rm(_)
        | File::Mv { .. }
        | File::Mkdir { .. }
        | File::Rmdir(_)
        | File::Chmod { .. } => {
            change(app, command).await?;
        }
    }
    Ok(DONE)
}

/// What files there are.
async fn show(app: &App, command: File) -> Result<(), Error> {
    match command {
        File::Ls {
            sandbox_id,
            path,
            depth,
        } => {
            let found = app
                .sandbox(&sandbox_id)
                .await?
                .files()
                .list(&path, depth)
                .await?;
            let rows: Vec<Record> = found.iter().map(model::file).collect();
            let columns = [
                "path",
                "entry_type",
                "size",
                "mode",
                "owner",
                "group",
                "modified_at",
            ];
            app.printer().rows("Files", &columns, &rows)?;
        }
        File::Search {
            sandbox_id,
            path,
            pattern,
        } => {
            let found = app
                .sandbox(&sandbox_id)
                .await?
                .files()
                .search(&path, &pattern)
                .await?;
            let rows: Vec<Record> = found.iter().map(model::file).collect();
            app.printer()
                .rows("Files", &["path", "size", "owner"], &rows)?;
        }
        File::Info(args) => {
            let found = app
                .sandbox(&args.sandbox_id)
                .await?
                .files()
                .info(&args.paths)
                .await?;
            let rows: Vec<Record> = found
                .iter()
                .map(|(path, info)| {
                    let mut record = model::file(info);
                    record.set("path", path);
                    record
                })
                .collect();
            app.printer().rows("Paths", &COLUMNS, &rows)?;
        }
        _ => unreachable!("`run` hands on what shows files"),
    }
    Ok(())
}

/// Names, places and permissions of files, but not what is in them.
async fn change(app: &App, command: File) -> Result<(), Error> {
    match command {
        File::Rm(args) => {
            app.sandbox(&args.sandbox_id)
                .await?
                .files()
                .delete(&args.paths)
                .await?;
            each(app, "Deleted files", &args, "deleted")?;
        }
        File::Mv {
            sandbox_id,
            source,
            destination,
        } => {
            app.sandbox(&sandbox_id)
                .await?
                .files()
                .rename(&source, &destination)
                .await?;
            let text = format!("Moved: {source} → {destination}");
            app.printer().message(Message::Ok, &text)?;
        }
        File::Mkdir { paths, owner, mode } => {
            let permission = permission(mode.as_deref(), &owner)?;
            let all = paths
                .paths
                .iter()
                .map(|path| (path.clone(), permission.clone()));
            let files = app.sandbox(&paths.sandbox_id).await?.files();
            files.create_directories_with(&all.collect()).await?;
            each(app, "Created directories", &paths, "created")?;
        }
        File::Rmdir(args) => {
            let files = app.sandbox(&args.sandbox_id).await?.files();
            files.delete_directories(&args.paths).await?;
            each(app, "Removed directories", &args, "removed")?;
        }
        File::Chmod {
            sandbox_id,
            path,
            mode,
            owner,
        } => {
            let permission = permission(Some(&mode), &owner)?;
            let files = app.sandbox(&sandbox_id).await?.files();
            files
                .set_permissions(&[(path.clone(), permission)].into())
                .await?;
            app.printer()
                .message(Message::Ok, &format!("Permissions set: {path}"))?;
        }
        _ => unreachable!("`run` hands on what changes names and permissions"),
    }
    Ok(())
}

async fn write(app: &App, args: &Write) -> Outcome {
    let text = match &args.content {
        Some(text) => text.clone().into_bytes(),
        None => {
            if io::stdin().is_terminal() {
                app.printer()
                    .note(Message::Info, "reading standard input; Ctrl-D ends it")?;
            }
            let mut bytes = Vec::new();
            io::stdin()
                .read_to_end(&mut bytes)
                .map_err(|error| Error::file("read", Path::new("standard input"), error))?;
            bytes
        }
    };
    let contents = Contents::from(encoded(text, &args.encoding)?);
    let mut file = WriteFile::new(&args.path, contents);
    if let Some(mode) = &args.mode {
        file = file.mode(bits(mode)?);
    }
    if let Some(owner) = &args.owner.owner {
        file = file.owner(owner);
    }
    if let Some(group) = &args.owner.group {
        file = file.group(group);
    }
    app.sandbox(&args.sandbox_id)
        .await?
        .files()
        .write_all(vec![file])
        .await?;
    app.printer()
        .message(Message::Ok, &format!("Written: {}", args.path))?;
    Ok(DONE)
}

fn each(app: &App, title: &str, args: &Paths, status: &str) -> Result<(), Error> {
    let row = |path: &String| Record::new().with("path", path).with("status", status);
    let rows: Vec<Record> = args.paths.iter().map(row).collect();
    Ok(app.printer().rows(title, &["path", "status"], &rows)?)
}

fn permission(mode: Option<&str>, owner: &Owner) -> Result<Permission, Error> {
    Ok(Permission {
        owner: owner.owner.clone(),
        group: owner.group.clone(),
        mode: mode.map(bits).transpose()?.map(FileMode::from_bits),
    })
}

/// A mode as octal digits, with or without a zero before them.
fn bits(text: &str) -> Result<u32, Error> {
    u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8)
        .ok()
        .filter(|bits| *bits <= 0o7777)
        .ok_or_else(|| Error::Usage(format!("'{text}' is not a mode; write it like 644 or 0755")))
}

/// The bytes of a file in `encoding` as UTF-8.
fn decoded(bytes: Vec<u8>, encoding: &str) -> Result<Vec<u8>, Error> {
    match charset(encoding)? {
        Charset::Utf8 => Ok(bytes),
        Charset::Ascii if bytes.is_ascii() => Ok(bytes),
        Charset::Ascii => Err(Error::Failed {
            message: "the file is not ASCII".to_owned(),
            next: Some("leave out --encoding".to_owned()),
        }),
        Charset::Latin1 => Ok(bytes
            .iter()
            .map(|byte| char::from(*byte))
            .collect::<String>()
            .into()),
    }
}

/// UTF-8 text as the bytes of a file in `encoding`.
fn encoded(text: Vec<u8>, encoding: &str) -> Result<Vec<u8>, Error> {
    let charset = charset(encoding)?;
    if charset == Charset::Utf8 {
        return Ok(text);
    }
    let wrong = || Error::Failed {
        message: format!("the text cannot be written in {encoding}"),
        next: Some("leave out --encoding".to_owned()),
    };
    let text = String::from_utf8(text).map_err(|_| wrong())?;
    let most = if charset == Charset::Ascii {
        0x7f
    } else {
        0xff
    };
    text.chars()
        .map(|letter| {
            u8::try_from(u32::from(letter))
                .ok()
                .filter(|byte| *byte <= most)
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(wrong)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf8,
    Latin1,
    Ascii,
}

fn charset(name: &str) -> Result<Charset, Error> {
    match name.to_ascii_lowercase().replace('_', "-").as_str() {
        "utf-8" | "utf8" => Ok(Charset::Utf8),
        "latin-1" | "latin1" | "iso-8859-1" => Ok(Charset::Latin1),
        "ascii" | "us-ascii" => Ok(Charset::Ascii),
        _ => Err(Error::Usage(format!(
            "'{name}' is not an encoding; there are utf-8, latin-1 and ascii"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits() {
        assert_eq!(bits("0644").unwrap(), 0o644);
        assert_eq!(bits("755").unwrap(), 0o755);
        for text in ["", "9", "rwx", "77777"] {
            assert!(bits(text).is_err(), "{text}");
        }
    }

    #[test]
    fn encodings_go_both_ways() {
        let latin = encoded("é".into(), "latin-1").unwrap();
        assert_eq!(latin, [0xe9]);
        assert_eq!(decoded(latin, "latin_1").unwrap(), "é".as_bytes());
        assert!(encoded("é".into(), "ascii").is_err());
        assert!(charset("ebcdic").is_err());
    }
}
