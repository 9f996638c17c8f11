//! What clients ask of a sandbox and what the backend tells of it, as events of the machine.

use jiff::Timestamp;

use super::Owner;
use super::command::{Command, Message, PendingPolicy, PendingSnapshot};
use crate::caller::AuditContext;
use crate::error::Error;
use crate::event::EventKind;
use crate::machine::{Event, after};
use crate::metadata::{Asked, Patch};
use crate::sandbox::State;

impl Owner {
    pub(super) fn on_message(&mut self, message: Message) {
        let Message { command, request } = message;
        request.in_scope(|| self.on_command(command));
    }

    pub(super) fn on_command(&mut self, command: Command) {
        if self.is_forgotten {
            return command.refuse(Error::NotFound(self.machine_state.id.clone().into()));
        }
        let must_wait = |ask| self.machine_state.must_wait(ask);
        match self.waiting.hold(command, must_wait) {
            Some(Ok(command)) => self.handle(command),
            Some(Err(command)) => command.refuse(Error::Busy(self.machine_state.id.clone())),
            None => {}
        }
    }

    pub(super) fn handle(&mut self, command: Command) {
        match command {
            Command::Pause(reply) => {
                self.waiting.pause.push(reply);
                self.feed(Event::Pause);
            }
            Command::Resume(reply) => {
                self.waiting.resume.push(reply);
                self.feed(Event::Resume);
            }
            Command::Snapshot { snapshot, reply } => {
                self.waiting.snapshot = Some(PendingSnapshot {
                    id: snapshot,
                    reply,
                    details: None,
                });
                self.feed(Event::Snapshot);
            }
            Command::ChangePolicy { change, by, reply } => {
                self.waiting.policy = Some(PendingPolicy {
                    change: Some(change),
                    by,
                    reply,
                    outcome: None,
                });
                self.feed(Event::ChangePolicy);
            }
            Command::Delete { reply, by } => {
                self.waiting.delete.push(reply);
                // A second wish writes nothing more.
                if self.machine_state.state != State::Stopping {
                    self.record_writer.record(by);
                }
                self.feed(Event::Delete);
                self.shorten_deadline();
            }
            Command::Renew { to, by, reply } => {
                self.waiting.renew = Some(reply);
                self.record_writer.record(by.clone());
                self.renew(to, "Renewed");
                if let Some(by) = by {
                    self.record_writer.unrecord(&by);
                }
            }
            Command::Touch => self.touch(),
            Command::PatchMetadata {
                patch,
                by,
                reply,
                name,
            } => self.patch(patch, by, (reply, name)),
            Command::Exited(exit) => self.feed(Event::Exited(exit)),
            Command::OutOfMemory => {
                let message = "A process was killed because the sandbox ran out of memory";
                self.note(EventKind::OutOfMemory, "OUT_OF_MEMORY", message);
                self.audit("sandbox.oom", "OUT_OF_MEMORY", message.to_owned());
                self.record_writer.save(self.published.record());
            }
        }
    }

    fn renew(&mut self, to: Timestamp, message: &str) {
        let before = self.machine_state.expires_at;
        let now = self.shared.clock.now();
        self.feed(Event::Renew { to, now });
        if self.machine_state.expires_at != before {
            let message = format!("{message} until {to}");
            self.note(EventKind::Renewed, "RENEWED", message);
            // The write of the new expiration is under way without the event.
            self.record_writer.save(self.published.record());
        }
    }

    /// Begins the idle timeout anew, where the sandbox has one.
    fn touch(&mut self) {
        let now = self.shared.clock.now();
        let idle_timeout = self.published.record().renew_on_access;
        let until = idle_timeout.and_then(|idle_timeout| after(now, idle_timeout));
        if let (Some(until), Some(expires_at)) = (until, self.machine_state.expires_at)
            && until > expires_at
        {
            self.renew(until, "Renewed by access");
        }
    }

    fn patch(&mut self, patch: Patch, by: Option<AuditContext>, asked: Asked) {
        if self.machine_state.state == State::Stopping {
            let _ = asked
                .0
                .send(Err(Error::NotFound(self.machine_state.id.clone().into())));
            return;
        }
        let message = "Metadata changed";
        self.note(EventKind::MetadataChanged, "METADATA_CHANGED", message);
        self.record_writer.record(by);
        let version = self.record_writer.next_version();
        self.published.patch_metadata(version, patch, asked);
        self.record_writer.save(self.published.record());
    }
}
