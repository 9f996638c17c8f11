//! The world around a machine: what is asked, what is under way in the backend and the store, who
//! waits for an answer. Plays the part of the owner task with a backend and a store that answer
//! anything, and checks after every step what must hold.

use super::*;

#[derive(Debug, Clone, Copy)]
pub(super) enum Move {
    Ask(Ask),
    Delete,
    Exit(i32),
    Check,
    Alarm { is_current: bool },
    Shift,
    Finish { is_ok: bool },
    TimeOut,
    Look(u8),
    Record { is_ok: bool },
    PullNeeded,
    PullProgress(u64),
    AnswerDue,
    Retry,
}

pub(super) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        1 => Just(Move::Ask(Ask::Pause)),
        1 => Just(Move::Ask(Ask::Resume)),
        1 => Just(Move::Ask(Ask::Snapshot)),
        1 => Just(Move::Ask(Ask::ChangePolicy)),
        1 => Just(Move::Ask(Ask::Renew)),
        1 => Just(Move::Delete),
        1 => (0..2).prop_map(Move::Exit),
        1 => Just(Move::Check),
        1 => any::<bool>().prop_map(|is_current| Move::Alarm { is_current }),
        1 => Just(Move::Shift),
        5 => any::<bool>().prop_map(|is_ok| Move::Finish { is_ok }),
        1 => Just(Move::TimeOut),
        3 => any::<u8>().prop_map(Move::Look),
        3 => prop::bool::weighted(0.7).prop_map(|is_ok| Move::Record { is_ok }),
        2 => Just(Move::PullNeeded),
        1 => (0_u64..=100).prop_map(Move::PullProgress),
        2 => Just(Move::AnswerDue),
        1 => Just(Move::Retry),
    ];
    prop::collection::vec(one, 1..60)
}

/// The first record, as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    NotYet,
    Yes,
    Refused,
}

#[derive(Debug)]
pub(super) struct Player {
    machine_state: MachineState,
    clock: i64,
    asked: Vec<Ask>,
    stored: Stored,
    /// The call that the backend really works on.
    call: Option<Op>,
    is_cancelled: bool,
    /// The backend has said that it made one, and not that it removed it.
    is_made: bool,
    is_new: bool,
    is_answer_due: bool,
    is_pull_needed: bool,
    is_forgotten: bool,
    timer: Option<Timestamp>,
    is_saved: bool,
}

impl Player {
    fn new(machine_state: MachineState) -> Player {
        Player {
            machine_state,
            clock: 0,
            asked: vec![],
            stored: Stored::Yes,
            call: None,
            is_cancelled: false,
            is_made: false,
            is_new: false,
            is_answer_due: false,
            is_pull_needed: false,
            is_forgotten: false,
            timer: None,
            is_saved: true,
        }
    }

    /// A sandbox that is asked for.
    pub(super) fn creating(timeout: Option<u64>) -> Player {
        let mut player = Player {
            asked: vec![Ask::Create],
            stored: Stored::NotYet,
            is_new: true,
            ..Player::new(sandbox(timeout))
        };
        player.feed(Event::Begin);
        player
    }

    /// A sandbox that an earlier server left.
    pub(super) fn restored(state: State) -> Player {
        let mut player = Player::new(stored(state));
        player.timer = player.machine_state.timer();
        player.feed(Event::Restored);
        player
    }

    pub(super) fn play_all(mut self, moves: Vec<Move>) {
        for action in moves {
            if self.is_forgotten {
                break;
            }
            self.play(action);
        }
        self.end();
    }

    fn feed(&mut self, event: Event) {
        let before = self.machine_state.clone();
        let told = format!("{event:?}");
        let effects = step(&mut self.machine_state, event);
        self.is_saved = false;
        for effect in &effects {
            self.carry_out(effect, &told);
        }
        self.check(&before, &told);
        self.check_creation(&told);
    }

    fn carry_out(&mut self, effect: &Effect, told: &str) {
        match effect {
            Effect::Start(op) => {
                assert_eq!(self.call, None, "two calls at once after {told}");
                self.call = Some(*op);
            }
            Effect::CancelMake => {
                let is_make = matches!(self.call, Some(Op::Make { .. }));
                assert!(is_make, "nothing to cancel after {told}");
                self.is_cancelled = true;
            }
            Effect::SetTimer(deadline) => self.timer = *deadline,
            Effect::Save(_) => self.is_saved = true,
            Effect::Discard => self.is_made = false,
            Effect::Forget => {
                assert!(!self.is_made, "what was made is left behind after {told}");
                assert_eq!(self.call, None, "a call is left behind after {told}");
                self.is_forgotten = true;
                self.is_saved = true;
            }
            Effect::Answer(ask, result) => self.take_answer(*ask, result, told),
            Effect::Repaired(_) | Effect::ScheduleRetry => {}
        }
    }

    fn take_answer(&mut self, ask: Ask, result: &Result<(), Error>, told: &str) {
        if ask == Ask::Create && result.is_ok() {
            let stored = self.stored;
            assert_eq!(stored, Stored::Yes, "acknowledged without a record: {told}");
        }
        // Delete may have several waiters or none (expiry); others exactly one.
        if ask == Ask::Delete {
            return self.asked.retain(|waiting| *waiting != ask);
        }
        let place = self.asked.iter().position(|waiting| *waiting == ask);
        assert!(place.is_some(), "{ask:?} answered twice after {told}");
        self.asked.remove(place.unwrap());
    }

    fn check(&self, before: &MachineState, event: &str) {
        let now = &self.machine_state;
        if before.state.has_ended() {
            let is_left_by_deletion = now.state == State::Stopping;
            assert!(
                now.state == before.state || is_left_by_deletion,
                "{event}: {now:?}"
            );
        }
        if before.state == State::Stopping {
            assert_eq!(now.state, State::Stopping, "{event} brought it back");
        }
        if (before.state, before.reason, before.expires_at)
            != (now.state, now.reason, now.expires_at)
        {
            assert!(
                self.is_saved,
                "a change was not kept after {event}: {now:?}"
            );
        }
        if !self.is_forgotten {
            assert_eq!(self.timer, now.timer(), "the timer is wrong after {event}");
            let is_stuck = now.state == State::Stopping && self.call.is_none();
            // Only a failed deletion waits, for its retry.
            assert!(!is_stuck || now.message.contains("could not be deleted yet"));
        }
    }

    fn check_creation(&self, event: &str) {
        let now = &self.machine_state;
        let is_pending = now.state == State::Pending && !self.is_forgotten;
        let is_making = matches!(self.call, Some(Op::Make { .. }));
        let is_unanswered = self.asked.contains(&Ask::Create);
        assert!(
            !is_unanswered || is_pending,
            "left without an answer: {event}"
        );
        if self.stored != Stored::Yes {
            assert!(now.created.is_none(), "shown without a record: {event}");
            assert_ne!(now.reason, Reason::ImagePulling, "told too early: {event}");
        }
        if self.is_new && is_pending {
            let is_waiting = is_making || self.stored == Stored::NotYet;
            assert!(is_waiting, "a creation that nothing ends: {event}");
        }
        if self.is_new && now.state == State::Running {
            assert!(now.created.is_some() && self.is_made, "not made: {event}");
        }
        if self.stored == Stored::Yes && is_pending {
            assert!(
                !is_unanswered || !self.is_answer_due,
                "the client waits longer than it should: {event}"
            );
            assert!(
                !self.is_pull_needed || now.reason == Reason::ImagePulling,
                "the pull is not told: {event}"
            );
        }
        let is_unwanted = self.stored == Stored::Refused || now.state == State::Stopping;
        if is_making && is_unwanted {
            assert!(self.is_cancelled, "a creation goes on in vain: {event}");
        }
    }

    fn play(&mut self, action: Move) {
        self.clock += 1;
        let is_making = matches!(self.call, Some(Op::Make { .. }));
        match action {
            Move::Ask(ask) if self.machine_state.must_wait(ask) => {}
            Move::Ask(ask) => {
                self.asked.push(ask);
                let (to, now) = (at(self.clock + 700), at(self.clock));
                self.feed(match ask {
                    Ask::Pause => Event::Pause,
                    Ask::Resume => Event::Resume,
                    Ask::Snapshot => Event::Snapshot,
                    Ask::ChangePolicy => Event::ChangePolicy,
                    _ => Event::Renew { to, now },
                });
            }
            Move::Delete => {
                self.asked.push(Ask::Delete);
                self.feed(Event::Delete);
            }
            Move::Exit(code) => self.feed(Event::Exited(exit(code))),
            Move::Check => self.feed(Event::Check),
            Move::Alarm { is_current } => {
                let deadline = if is_current { self.timer } else { Some(at(-5)) };
                if let Some(deadline) = deadline {
                    self.feed(Event::Expired { deadline });
                }
            }
            Move::Shift => {
                if let Some(from) = self.timer {
                    let to = from + SignedDuration::from_secs(3600);
                    self.timer = Some(to);
                    self.feed(Event::Shifted { to });
                }
            }
            Move::Record { is_ok } => self.record(is_ok),
            Move::PullNeeded if is_making => {
                self.is_pull_needed = true;
                self.feed(Event::PullNeeded);
            }
            Move::PullProgress(percent) if is_making => {
                let before = self.machine_state.state;
                // Only the download is waited for.
                self.is_answer_due = true;
                self.feed(Event::PullProgress { percent });
                assert_eq!(self.machine_state.state, before);
            }
            Move::PullNeeded | Move::PullProgress(_) => {}
            Move::AnswerDue if self.is_new => {
                self.is_answer_due = true;
                self.feed(Event::AnswerDue);
            }
            Move::AnswerDue => {}
            Move::Retry => self.feed(Event::RetryDelete),
            Move::TimeOut => self.time_out(),
            Move::Finish { is_ok } => self.finish(is_ok),
            Move::Look(what) => self.look(what),
        }
    }

    fn record(&mut self, is_ok: bool) {
        if self.stored != Stored::NotYet {
            return;
        }
        self.stored = if is_ok { Stored::Yes } else { Stored::Refused };
        let result = if is_ok { Ok(()) } else { Err(full()) };
        self.feed(Event::Recorded(result));
    }

    /// What a call that was given up still makes, the owner task takes back.
    fn time_out(&mut self) {
        let is_given_up = self.call.take().is_some();
        if is_given_up || self.machine_state.op.is_some() {
            self.feed(Event::OpTimedOut(down()));
        }
    }

    fn finish(&mut self, is_ok: bool) {
        if matches!(self.call, None | Some(Op::Inspect)) {
            return;
        }
        let result = if is_ok { Ok(()) } else { Err(down()) };
        let op = self.call.take().unwrap();
        match op {
            Op::Make { .. } => self.is_made = is_ok,
            Op::Delete if is_ok => self.is_made = false,
            _ => {}
        }
        self.feed(match op {
            Op::Make { .. } if is_ok => made(at(self.clock), self.is_pull_needed),
            Op::Make { .. } => failed(),
            Op::Pause => Event::PauseDone(result),
            Op::Resume => Event::ResumeDone(result),
            Op::Snapshot => Event::SnapshotDone(result),
            Op::ChangePolicy => Event::PolicyChanged(result),
            Op::Inspect => return,
            Op::Delete => Event::DeleteDone(result),
        });
    }

    fn look(&mut self, what: u8) {
        if self.call != Some(Op::Inspect) {
            return;
        }
        self.call = None;
        let found = |state| Observation::Found {
            state,
            started_at: Some(START),
        };
        self.feed(Event::Inspected(match what % 6 {
            0 => found(ObservedState::Running),
            1 => found(ObservedState::Paused),
            2 => found(ObservedState::Incomplete),
            3 => found(ObservedState::Exited(exit(1))),
            4 => Observation::Gone,
            _ => Observation::Unknown("silent".to_owned()),
        }));
    }

    /// From anywhere a deletion whose calls succeed leads to the end, with all answered.
    fn end(&mut self) {
        if !self.is_forgotten {
            self.play(Move::Delete);
        }
        for _ in 0..10 {
            if self.is_forgotten {
                break;
            }
            assert_eq!(self.machine_state.state, State::Stopping);
            match self.call {
                Some(Op::Inspect) => self.look(5),
                _ => self.finish(true),
            }
        }
        assert!(self.is_forgotten, "deletion does not win: {self:?}");
        assert!(self.asked.is_empty(), "somebody still waits: {self:?}");
        // The store may answer after the end, and nothing comes of it.
        for result in [Ok(()), Err(full())] {
            let late = step(&mut self.machine_state.clone(), Event::Recorded(result));
            assert!(late.is_empty(), "{late:?} after the end");
        }
    }
}
