//! Which commands are known: the running ones, the finished ones with their output, and
//! those of which only the status is left.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use api::exec::command::CommandStatus;
use tokio::time::Instant;

use super::Command;
use crate::limits;

/// At most this many commands are listed, the newest first.
const LISTED_MAX: usize = 1000;

#[derive(Default)]
pub(super) struct CommandHistory {
    commands: HashMap<Box<str>, Entry>,
    /// Finished commands, oldest first.
    finished: VecDeque<FinishedCommand>,
    /// The first entries of `finished` have no output any more.
    without_output: usize,
    memory_bytes: u64,
    file_bytes: u64,
}

enum Entry {
    Whole(Arc<Command>),
    /// The output is gone.
    Status(Box<CommandStatus>),
}

struct FinishedCommand {
    id: Box<str>,
    at: Instant,
    memory_bytes: u64,
    file_bytes: u64,
}

impl CommandHistory {
    pub(super) fn find(&self, id: &str) -> Option<Arc<Command>> {
        match self.commands.get(id)? {
            Entry::Whole(command) => Some(Arc::clone(command)),
            Entry::Status(_) => None,
        }
    }

    pub(super) fn status(&self, id: &str) -> Option<CommandStatus> {
        self.commands.get(id).map(Entry::status)
    }

    pub(super) fn list(&self) -> Vec<CommandStatus> {
        let mut list: Vec<_> = self.commands.values().map(Entry::status).collect();
        list.sort_by(|a, b| {
            b.started_at
                .cmp(&a.started_at)
                .then_with(|| a.id.cmp(&b.id))
        });
        list.truncate(LISTED_MAX);
        list
    }

    pub(super) fn add(&mut self, command: &Arc<Command>) {
        self.commands.insert(
            command.id.as_str().into(),
            Entry::Whole(Arc::clone(command)),
        );
    }

    /// Counts a finished command's output against the limits and drops what is over them.
    pub(super) fn finished(&mut self, command: &Command) {
        let held = command.journal.held();
        self.memory_bytes += held.memory;
        self.file_bytes += held.file;
        let (memory_bytes, file_bytes) = (held.memory, held.file);
        let id = command.id.as_str().into();
        self.finished.push_back(FinishedCommand {
            id,
            at: Instant::now(),
            memory_bytes,
            file_bytes,
        });
        self.forget_old();
        self.drop_output();
    }

    fn forget_old(&mut self) {
        while let Some(oldest) = self.finished.front()
            && (self.finished.len() > limits::FINISHED_COMMANDS
                || oldest.at.elapsed() > limits::KEEP_FINISHED)
        {
            self.commands.remove(&oldest.id);
            if self.without_output == 0 {
                self.memory_bytes -= oldest.memory_bytes;
                self.file_bytes -= oldest.file_bytes;
            }
            self.without_output = self.without_output.saturating_sub(1);
            self.finished.pop_front();
        }
    }

    fn drop_output(&mut self) {
        while self.memory_bytes > limits::KEPT_MEMORY_BYTES
            || self.file_bytes > limits::KEPT_FILE_BYTES
        {
            let Some(oldest) = self.finished.get(self.without_output) else {
                return;
            };
            self.memory_bytes -= oldest.memory_bytes;
            self.file_bytes -= oldest.file_bytes;
            self.without_output += 1;
            if let Some(entry) = self.commands.get_mut(&oldest.id) {
                entry.drop_output();
            }
        }
    }
}

impl Entry {
    fn status(&self) -> CommandStatus {
        match self {
            Self::Whole(command) => command.status(),
            Self::Status(status) => (**status).clone(),
        }
    }

    fn drop_output(&mut self) {
        let Self::Whole(command) = self else { return };
        command.journal.discard();
        let mut status = command.status();
        if let Some((end, _)) = status
            .content
            .char_indices()
            .nth(limits::KEPT_CONTENT_CHARS)
        {
            status.content.truncate(end);
            status.content.push('…');
            status.content.shrink_to_fit();
        }
        *self = Self::Status(Box::new(status));
    }
}
