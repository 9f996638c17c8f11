//! Files and directories, at the daemon's own paths and at those that name a user.

use std::borrow::Cow;

use super::super::operation::{BYTES, COUNT, Content, In, Operation, POSITIVE, Shape, TEXT};
use crate::exec::file::FILESYSTEM_ID_MAX;

const PATHS: Shape = Shape::ListOf(&Shape::Text);
const FILES: Shape = Shape::ListOf(&Shape::Named("FileInfo"));

pub(super) fn files() -> Vec<Operation> {
    let mut operations = file_contents();
    operations.extend(directories());
    operations
}

fn file_contents() -> Vec<Operation> {
    const PERMISSIONS: Shape = Shape::MapOf(&Shape::Named("Permission"));
    let new = Operation::new;
    vec![
        new(
            "GET",
            "/files/info",
            "getFilesInfo",
            "What is known of files.",
        )
        .required_query("path", PATHS, "Which files; may be repeated.")
        .answers_json(200, "By path.", Shape::MapOf(&Shape::Named("FileInfo")))
        .errors(&[403, 404]),
        new(
            "DELETE",
            "/files",
            "removeFiles",
            "Removes files; a missing one is no error.",
        )
        .required_query("path", PATHS, "Which files; may be repeated.")
        .answers(200, "They are gone.")
        .errors(&[403]),
        new(
            "POST",
            "/files/permissions",
            "chmodFiles",
            "Sets mode, owner and group.",
        )
        .takes(PERMISSIONS)
        .answers(200, "They are set.")
        .errors(&[403, 404]),
        new(
            "POST",
            "/files/mv",
            "renameFiles",
            "Moves files and directories, across mounts too.",
        )
        .takes(Shape::ListOf(&Shape::Named("RenameFileItem")))
        .answers(200, "They are moved.")
        .errors(&[403, 404, 409]),
        new(
            "GET",
            "/files/search",
            "searchFiles",
            "Finds files by a glob.",
        )
        .required_query("path", Shape::Text, "Where to begin.")
        .query(
            "pattern",
            Shape::Text,
            "The glob; nothing finds every file.",
        )
        .answers_json(200, "The files.", FILES)
        .errors(&[403, 404]),
        new(
            "POST",
            "/files/replace",
            "replaceContent",
            "Replaces text in files.",
        )
        .query(
            "verbose",
            Shape::Flag,
            "Answer how often each text was found.",
        )
        .takes(Shape::MapOf(&Shape::Named("ReplaceFileContentItem")))
        .answers_json(
            200,
            "It is replaced; with `verbose`, how often.",
            Shape::MapOf(&Shape::Named("ReplaceFileContentResult")),
        )
        .errors(&[403, 404]),
        new(
            "POST",
            "/files/upload",
            "uploadFile",
            "Writes files, each whole or not at all.",
        )
        .body("multipart/form-data", Shape::Upload, true)
        .answers(200, "They are written.")
        .errors(&[403, 404]),
        download(),
    ]
}

fn download() -> Operation {
    const FILE: Content = Content {
        media: BYTES,
        shape: Shape::Binary,
    };
    const LINES: Content = Content {
        media: TEXT,
        shape: Shape::Text,
    };
    Operation::new(
        "GET",
        "/files/download",
        "downloadFile",
        "Reads a file, or a part of it.",
    )
    .required_query("path", Shape::Text, "Which file.")
    .query(
        "offset",
        POSITIVE,
        "The first line, from 1. Excludes Range.",
    )
    .query("limit", POSITIVE, "How many lines. Excludes Range.")
    .header("Range", "Which bytes, as `bytes=0-1023`.")
    .answers_with(200, "The file, or the lines.", &[FILE, LINES])
    .with_header("Content-Disposition", Shape::Text)
    .with_header("Content-Length", COUNT)
    .answers_with(206, "The bytes.", &[FILE])
    .with_header("Content-Range", Shape::Text)
    .with_header("Content-Length", COUNT)
    .answers(304, "The file has not changed.")
    .errors(&[403, 404, 412, 416])
}

fn directories() -> Vec<Operation> {
    const TAR: Content = Content {
        media: "application/x-tar",
        shape: Shape::Binary,
    };
    let new = Operation::new;
    vec![
        new(
            "GET",
            "/directories/list",
            "listDirectory",
            "Lists a directory.",
        )
        .required_query("path", Shape::Text, "Which directory; not a symbolic link.")
        .query("depth", COUNT, "How many levels; nothing is 1.")
        .answers_json(
            200,
            "Its entries, each directory's in order of name.",
            FILES,
        )
        .errors(&[403, 404]),
        new(
            "POST",
            "/directories",
            "makeDirs",
            "Makes directories and their parents.",
        )
        .takes(Shape::MapOf(&Shape::Named("Permission")))
        .answers(200, "They are there.")
        .errors(&[403, 404]),
        new(
            "DELETE",
            "/directories",
            "removeDirs",
            "Removes directories and all they hold.",
        )
        .required_query("path", PATHS, "Which directories; may be repeated.")
        .answers(200, "They are gone.")
        .errors(&[403]),
        new(
            "GET",
            "/directories/archive",
            "packDirectory",
            "A directory as a tar stream.",
        )
        .extension()
        .required_query("path", Shape::Text, "Which directory.")
        .answers_with(200, "The tar stream.", &[TAR])
        .errors(&[403, 404]),
        new(
            "PUT",
            "/directories/archive",
            "unpackDirectory",
            "Unpacks a tar stream into a directory.",
        )
        .extension()
        .required_query("path", Shape::Text, "Which directory; made when missing.")
        .body(TAR.media, TAR.shape, true)
        .answers_json(200, "It is unpacked.", Shape::Named("ArchiveResponse"))
        .errors(&[403, 404]),
    ]
}

/// The same operations on files with the credentials of another user.
pub(super) fn files_as_someone() -> Vec<Operation> {
    const ID: Shape = Shape::Integer {
        minimum: 0,
        maximum: Some(FILESYSTEM_ID_MAX as i64),
    };
    below("/v1/filesystem/{uid}/{gid}", "As", files())
        .into_iter()
        .map(|operation| {
            operation
                .parameter("uid", In::Path, true, ID, "The user.")
                .parameter("gid", In::Path, true, ID, "The group.")
                .errors(&[501])
        })
        .collect()
}

/// The same operations below another path, under other ids.
pub(super) fn below(
    prefix: &'static str,
    suffix: &'static str,
    operations: Vec<Operation>,
) -> Vec<Operation> {
    let moved = |operation: Operation| Operation {
        path: Cow::Owned(format!("{prefix}{}", operation.path)),
        id: Cow::Owned(format!("{}{suffix}", operation.id)),
        ..operation
    };
    operations.into_iter().map(moved).collect()
}
