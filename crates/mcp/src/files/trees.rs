//! Tools for directories and names: listing, searching, moving, making and deleting.

use opensandbox::wire::exec::file::{Permission, PermissionMap, Rename};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{file_mode, mode, of};
use crate::answer::{Entries, Status, status};
use crate::arguments::Paths;
use crate::tool::{Answer, Call, Effect, Entry, Outcome, tool};

#[derive(Debug, Deserialize, JsonSchema)]
struct ListDirectory {
    /// The sandbox's id.
    sandbox_id: String,
    /// The directory.
    path: String,
    /// How many levels deep.
    #[serde(default = "one_level")]
    depth: u32,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

fn one_level() -> u32 {
    1
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Search {
    /// The sandbox's id.
    sandbox_id: String,
    /// The directory to search below.
    path: String,
    /// A glob such as "*.py" or "**/*.rs".
    pattern: String,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct CreateDirectories {
    /// The sandbox's id.
    sandbox_id: String,
    /// The directories; parents are made too.
    entries: Vec<DirectoryEntryInput>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

/// A directory to make.
#[derive(Debug, Deserialize, JsonSchema)]
struct DirectoryEntryInput {
    /// Absolute path.
    path: String,
    /// The mode's octal digits as a number.
    #[serde(default = "mode")]
    mode: u64,
    /// Owner by name or number.
    owner: Option<String>,
    /// Group by name or number.
    group: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Move {
    /// The sandbox's id.
    sandbox_id: String,
    /// What to move where.
    entries: Vec<MoveEntry>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

/// One move.
#[derive(Debug, Deserialize, JsonSchema)]
struct MoveEntry {
    /// From this path.
    #[serde(alias = "src")]
    source: String,
    /// To this path, which must not exist.
    #[serde(alias = "dest")]
    destination: String,
}

pub(super) fn tools() -> Vec<Entry> {
    use Effect::{Changes, Destroys, Reads};
    vec![
        tool::<ListDirectory, Entries, _, _>(
            "file_list_directory",
            Reads,
            "Lists a directory of a sandbox with sizes, modes and times.",
            list,
        ),
        tool::<Search, Entries, _, _>(
            "file_search",
            Reads,
            "Finds files of a sandbox by a glob on their names. To search in contents use \
             command_run with grep.",
            search,
        ),
        tool::<Move, Status, _, _>(
            "file_move",
            Changes,
            "Moves or renames files and directories of a sandbox.",
            rename,
        ),
        tool::<Paths, Status, _, _>(
            "file_delete",
            Destroys,
            "Deletes files of a sandbox.",
            delete,
        ),
        tool::<CreateDirectories, Status, _, _>(
            "file_create_directories",
            Changes,
            "Makes directories in a sandbox, with their parents.",
            create_directories,
        ),
        tool::<Paths, Status, _, _>(
            "file_delete_directories",
            Destroys,
            "Deletes directories of a sandbox with everything in them.",
            delete_directories,
        ),
    ]
}

async fn list(call: Call, arguments: ListDirectory) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let files = sandbox.files();
    let found = files.list(&arguments.path, arguments.depth).await?;
    Ok(Answer::new(&Entries::of(found)))
}

async fn search(call: Call, arguments: Search) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let files = sandbox.files();
    let found = files.search(&arguments.path, &arguments.pattern).await?;
    Ok(Answer::new(&Entries::of(found)))
}

async fn rename(call: Call, arguments: Move) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let moves = arguments.entries.into_iter().map(|entry| Rename {
        src: entry.source,
        dest: entry.destination,
    });
    let moves: Vec<Rename> = moves.collect();
    sandbox.files().rename_all(&moves).await?;
    Ok(Answer::new(&status("moved")))
}

async fn delete(call: Call, arguments: Paths) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    sandbox.files().delete(&arguments.paths).await?;
    Ok(Answer::new(&status("deleted")))
}

async fn create_directories(call: Call, arguments: CreateDirectories) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let mut directories = PermissionMap::new();
    for entry in arguments.entries {
        let permission = Permission {
            owner: entry.owner,
            group: entry.group,
            mode: Some(file_mode(entry.mode)?),
        };
        directories.insert(entry.path, permission);
    }
    let files = sandbox.files();
    files.create_directories_with(&directories).await?;
    Ok(Answer::new(&status("created")))
}

async fn delete_directories(call: Call, arguments: Paths) -> Outcome {
    let sandbox = of(&call, &arguments.sandbox_id, arguments.connect_if_missing).await?;
    let files = sandbox.files();
    files.delete_directories(&arguments.paths).await?;
    Ok(Answer::new(&status("deleted")))
}
