//! Tools for the contents of files; `trees` has those for directories and names.

mod trees;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opensandbox::wire::exec::file::Replace;
use opensandbox::wire::file_mode::FileMode;
use opensandbox::{Contents, Sandbox, WriteFile};
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Status, status};
use crate::tool::{Answer, Call, Effect, Entry, Outcome, ToolError, tool};

/// Text files longer than this are read in parts: a model cannot use more at once.
const READ_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
struct Read {
    /// The sandbox's id.
    sandbox_id: String,
    /// Absolute path.
    path: String,
    /// How the text is encoded: utf-8 or latin-1.
    #[serde(default = "utf8")]
    encoding: String,
    /// Only these bytes, for example "bytes=0-1023". For large files.
    range_header: Option<String>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
    /// Only from this line on, counted from 1; needs line_count. Not with range_header.
    first_line: Option<u64>,
    /// Only this many lines.
    line_count: Option<u64>,
}

fn utf8() -> String {
    "utf-8".to_owned()
}

/// A file's text.
#[derive(Debug, Serialize, JsonSchema)]
struct ReadAnswer {
    path: String,
    content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ReadBinary {
    /// The sandbox's id.
    sandbox_id: String,
    /// Absolute path.
    path: String,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

/// A file's bytes.
#[derive(Debug, Serialize, JsonSchema)]
struct BinaryAnswer {
    path: String,
    /// In bytes.
    size: u64,
    /// The bytes in base64; null for an image, which is answered as an image.
    content_base64: Option<String>,
    mime_type: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Write {
    /// The sandbox's id.
    sandbox_id: String,
    /// Absolute path; directories on the way are made.
    path: String,
    /// The whole new text of the file.
    content: String,
    /// How to encode it: utf-8 or latin-1.
    #[serde(default = "utf8")]
    encoding: String,
    /// The mode's octal digits as a number: 644 is rw-r--r--.
    #[serde(default = "mode")]
    mode: u64,
    /// Owner by name or number.
    owner: Option<String>,
    /// Group by name or number.
    group: Option<String>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

fn mode() -> u64 {
    755
}

#[derive(Debug, Deserialize, JsonSchema)]
struct WriteBinary {
    /// The sandbox's id.
    sandbox_id: String,
    /// Absolute path; directories on the way are made.
    path: String,
    /// The bytes in base64.
    content_base64: String,
    /// The mode's octal digits as a number: 644 is rw-r--r--.
    #[serde(default = "mode")]
    mode: u64,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ReplaceContents {
    /// The sandbox's id.
    sandbox_id: String,
    /// What to replace in which file; one entry for each file.
    entries: Vec<ContentReplaceEntry>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
struct ContentReplaceEntry {
    /// Absolute path.
    path: String,
    /// The exact text to look for; every occurrence is replaced.
    #[serde(alias = "oldContent")]
    old_content: String,
    /// The text to put in its place.
    #[serde(alias = "newContent")]
    new_content: String,
}

/// How often each text was found.
#[derive(Debug, Serialize, JsonSchema)]
struct Replaced {
    result: Vec<ReplacedEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReplacedEntry {
    path: String,
    /// 0 is not found: look at the file again.
    replaced_count: u64,
}

pub(crate) fn tools() -> Vec<Entry> {
    let mut tools = contents();
    tools.extend(trees::tools());
    tools
}

fn contents() -> Vec<Entry> {
    use Effect::{Changes, Reads};
    vec![
        tool::<Read, ReadAnswer, _, _>(
            "file_read",
            Reads,
            "Reads a text file of a sandbox. Read large files in parts, by lines or by \
             range_header.",
            read,
        ),
        tool::<ReadBinary, BinaryAnswer, _, _>(
            "file_read_binary",
            Reads,
            "Reads any file of a sandbox: images are answered as images to look at, anything \
             else as base64.",
            read_binary,
        ),
        tool::<Write, Status, _, _>(
            "file_write",
            Changes,
            "Writes a text file in a sandbox, over what was there. To change a part of a file \
             use file_replace_contents.",
            write,
        ),
        tool::<WriteBinary, Status, _, _>(
            "file_write_binary",
            Changes,
            "Writes a file of any bytes in a sandbox, given as base64.",
            write_binary,
        ),
        tool::<ReplaceContents, Replaced, _, _>(
            "file_replace_contents",
            Changes,
            "Replaces exact text in files of a sandbox and answers how often it was found.",
            replace,
        ),
    ]
}

async fn of(call: &Call, id: &str, connect: bool) -> Result<Sandbox, ToolError> {
    call.registry.get(id, connect).await
}

async fn read(call: Call, arguments: Read) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let files = sandbox.files();
    let path = &arguments.path;
    let stream = match (
        &arguments.range_header,
        arguments.first_line,
        arguments.line_count,
    ) {
        (Some(range), None, None) => files.read_range_header(path, range).await?,
        (None, None, None) => files.download(path).await?,
        (None, first, Some(count)) => {
            let content = files.read_lines(path, first.unwrap_or(1), count).await?;
            let path = arguments.path;
            return Ok(read_answer(path, content));
        }
        _ => {
            return Err(ToolError::new(
                "give range_header alone, or line_count with or without first_line",
            ));
        }
    };
    if stream
        .length()
        .is_some_and(|length| length > READ_BYTES_MAX as u64)
    {
        return Err(ToolError::new(format!(
            "{path} is longer than {READ_BYTES_MAX} bytes; read it in parts with first_line and \
             line_count, or with range_header"
        )));
    }
    let bytes = stream.bytes().await?;
    let content = decode(bytes, &arguments.encoding, path)?;
    let path = arguments.path;
    Ok(read_answer(path, content))
}

/// A file's text, which the model reads as it is.
fn read_answer(path: String, content: String) -> Answer {
    let text = content.clone();
    Answer::new(&ReadAnswer { path, content }).with_text(text)
}

fn decode(bytes: Vec<u8>, encoding: &str, path: &str) -> Result<String, ToolError> {
    match encoding.to_ascii_lowercase().as_str() {
        "utf-8" | "utf8" => String::from_utf8(bytes).map_err(|_| {
            ToolError::new(format!(
                "{path} is not UTF-8 text; read it with file_read_binary"
            ))
        }),
        "latin-1" | "latin1" | "iso-8859-1" => Ok(bytes.into_iter().map(char::from).collect()),
        "ascii" | "us-ascii" if bytes.is_ascii() => Ok(bytes.into_iter().map(char::from).collect()),
        other => Err(unknown_encoding(other)),
    }
}

fn encode(text: String, encoding: &str) -> Result<Vec<u8>, ToolError> {
    match encoding.to_ascii_lowercase().as_str() {
        "utf-8" | "utf8" => Ok(text.into_bytes()),
        "latin-1" | "latin1" | "iso-8859-1" => text
            .chars()
            .map(|c| u8::try_from(u32::from(c)).ok())
            .collect::<Option<_>>()
            .ok_or_else(|| ToolError::new("the content has characters that latin-1 does not have")),
        "ascii" | "us-ascii" if text.is_ascii() => Ok(text.into_bytes()),
        other => Err(unknown_encoding(other)),
    }
}

fn unknown_encoding(name: &str) -> ToolError {
    ToolError::new(format!(
        "encoding {name:?} does not fit; use utf-8, latin-1 or ascii, or the binary tools"
    ))
}

async fn read_binary(call: Call, arguments: ReadBinary) -> Outcome {
    /// As large as an answer in base64 may reasonably be.
    const BINARY_BYTES_MAX: u64 = 8 * 1024 * 1024;
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let stream = sandbox.files().download(&arguments.path).await?;
    if stream
        .length()
        .is_none_or(|length| length > BINARY_BYTES_MAX)
    {
        return Err(ToolError::new(format!(
            "{} is longer than {BINARY_BYTES_MAX} bytes; make it smaller with command_run first",
            arguments.path
        )));
    }
    let bytes = stream.bytes().await?;
    let mime_type = media_type(&bytes);
    let encoded = STANDARD.encode(&bytes);
    let is_image = mime_type.starts_with("image/");
    let answer = Answer::new(&BinaryAnswer {
        path: arguments.path,
        size: bytes.len() as u64,
        content_base64: (!is_image).then(|| encoded.clone()),
        mime_type: mime_type.to_owned(),
    });
    if is_image {
        return Ok(answer.with_pictures(vec![ContentBlock::image(encoded, mime_type)]));
    }
    Ok(answer)
}

/// By how the bytes begin: names of files say what their makers wanted.
pub(crate) fn media_type(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xFF, 0xD8, 0xFF, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "image/webp",
        [b'%', b'P', b'D', b'F', ..] => "application/pdf",
        _ => "application/octet-stream",
    }
}

fn file_mode(written: u64) -> Result<FileMode, ToolError> {
    FileMode::from_written(written).map_err(|error| ToolError::new(error.to_string()))
}

async fn write(call: Call, arguments: Write) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let bytes = encode(arguments.content, &arguments.encoding)?;
    let mut file = WriteFile::new(arguments.path, bytes).mode(file_mode(arguments.mode)?.bits());
    if let Some(owner) = arguments.owner {
        file = file.owner(owner);
    }
    if let Some(group) = arguments.group {
        file = file.group(group);
    }
    sandbox.files().write_all(vec![file]).await?;
    Ok(Answer::new(&status("written")))
}

async fn write_binary(call: Call, arguments: WriteBinary) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let bytes = STANDARD
        .decode(arguments.content_base64.trim())
        .map_err(|error| ToolError::new(format!("content_base64 is not base64: {error}")))?;
    let file = WriteFile::new(arguments.path, Contents::from(bytes))
        .mode(file_mode(arguments.mode)?.bits());
    sandbox.files().write_all(vec![file]).await?;
    Ok(Answer::new(&status("written")))
}

async fn replace(call: Call, arguments: ReplaceContents) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let mut result = Vec::new();
    // One after the other: the protocol takes one replacement for each file.
    for entry in arguments.entries {
        let change = Replace {
            old: entry.old_content,
            new: entry.new_content,
        };
        let changes = BTreeMap::from([(entry.path.clone(), change)]);
        let counts = sandbox.files().replace_all(&changes).await?;
        result.push(ReplacedEntry {
            replaced_count: counts.get(&entry.path).copied().unwrap_or(0),
            path: entry.path,
        });
    }
    Ok(Answer::new(&Replaced { result }))
}
