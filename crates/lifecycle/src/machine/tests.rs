//! What holds for the machine whatever the events and their order.

use super::*;
use proptest::prelude::*;

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    START + SignedDuration::from_secs(seconds)
}

fn sandbox(timeout: Option<u64>) -> Situation {
    let timeout = timeout.map(Duration::from_secs);
    let expires_at = timeout.and_then(|timeout| after(START, timeout));
    Situation::new("box".parse().unwrap(), timeout, expires_at)
}

fn down() -> Error {
    Error::Timeout {
        action: "testing",
        after: Duration::from_secs(1),
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
        oom_killed: false,
        at: None,
    }
}

/// Feeds events one after the other; the last step's effects.
fn feed(start: Situation, events: impl IntoIterator<Item = Event>) -> (Situation, Effects) {
    events
        .into_iter()
        .fold((start, Effects::new()), |(at, _), event| step(at, event))
}

fn running() -> Situation {
    let made = Event::Made {
        now: START,
        pulled: false,
    };
    feed(sandbox(Some(600)), [Event::Begin, made]).0
}

#[test]
fn an_exit_that_comes_before_the_creation_is_known_is_not_lost() {
    let made = Event::Made {
        now: START,
        pulled: false,
    };
    let (ended, _) = feed(sandbox(None), [Event::Begin, Event::Exited(exit(0)), made]);
    assert_eq!(
        (ended.state, ended.reason),
        (State::Terminated, Reason::ContainerExited)
    );
}

#[test]
fn an_expiry_for_a_deadline_that_was_renewed_is_ignored() {
    let renew = Event::Renew {
        to: at(1200),
        now: at(599),
    };
    let old = Event::Expired { deadline: at(600) };
    let (alive, effects) = feed(running(), [renew, old]);
    assert_eq!(alive.state, State::Running);
    assert!(effects.is_empty());
    let (stopping, _) = step(alive, Event::Expired { deadline: at(1200) });
    assert_eq!(
        (stopping.state, stopping.reason),
        (State::Stopping, Reason::SandboxExpired)
    );
}

#[test]
fn a_pending_sandbox_does_not_expire() {
    let (pending, _) = feed(sandbox(Some(60)), [Event::Begin, Event::Pulling]);
    let (still, effects) = step(pending, Event::Expired { deadline: at(60) });
    assert_eq!(still.state, State::Pending);
    assert!(effects.is_empty());
}

#[test]
fn a_failed_creation_nobody_was_told_of_is_forgotten() {
    let failed = Event::MakeFailed {
        reason: Reason::ContainerStartFailed,
        error: down(),
    };
    let (_, effects) = feed(sandbox(None), [Event::Begin, failed]);
    assert!(matches!(
        effects[..],
        [Effect::Answer(Ask::Create, Err(_)), Effect::Forget]
    ));
}

/// The world around a machine: what is asked, what is under way, who waits for an answer.
/// Plays the part of the owner task with a backend that answers anything.
#[derive(Debug, Clone, Copy)]
enum Move {
    Ask(Ask),
    Delete,
    Exit(i32),
    Check,
    Alarm { is_current: bool },
    Shift,
    Finish { is_ok: bool },
    TimeOut,
    Look(u8),
    Answer,
    Retry,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        1 => Just(Move::Ask(Ask::Pause)),
        1 => Just(Move::Ask(Ask::Resume)),
        1 => Just(Move::Ask(Ask::Snapshot)),
        1 => Just(Move::Ask(Ask::Renew)),
        1 => Just(Move::Delete),
        1 => (0..2).prop_map(Move::Exit),
        1 => Just(Move::Check),
        1 => any::<bool>().prop_map(|is_current| Move::Alarm { is_current }),
        1 => Just(Move::Shift),
        6 => any::<bool>().prop_map(|is_ok| Move::Finish { is_ok }),
        1 => Just(Move::TimeOut),
        3 => any::<u8>().prop_map(Move::Look),
        1 => Just(Move::Answer),
        1 => Just(Move::Retry),
    ];
    prop::collection::vec(one, 1..60)
}

#[derive(Debug)]
struct Player {
    at: Situation,
    clock: i64,
    asked: Vec<Ask>,
    is_forgotten: bool,
    armed: Option<Timestamp>,
    is_saved: bool,
}

impl Player {
    fn new(timeout: Option<u64>) -> Player {
        let mut player = Player {
            at: sandbox(timeout),
            clock: 0,
            asked: vec![Ask::Create],
            is_forgotten: false,
            armed: None,
            is_saved: true,
        };
        player.feed(Event::Begin);
        player
    }

    fn feed(&mut self, event: Event) {
        let before = self.at.clone();
        let told = format!("{event:?}");
        let (next, effects) = step(self.at.clone(), event);
        self.at = next;
        let mut op = before.op;
        self.is_saved = false;
        for effect in &effects {
            match effect {
                Effect::Start(started) => {
                    let is_free =
                        op.is_none() || before.op.is_some() && self.at.op == Some(*started);
                    assert!(is_free, "two calls at once after {told}");
                    op = Some(*started);
                }
                Effect::Arm(deadline) => self.armed = *deadline,
                Effect::Save { .. } => self.is_saved = true,
                Effect::Forget => {
                    self.is_forgotten = true;
                    self.is_saved = true;
                }
                Effect::Answer(ask, _) => {
                    // Delete may have several waiters or none (expiry); others exactly one.
                    if *ask != Ask::Delete {
                        let place = self.asked.iter().position(|waiting| waiting == ask);
                        assert!(place.is_some(), "{ask:?} answered twice after {told}");
                        self.asked.remove(place.unwrap());
                    } else {
                        self.asked.retain(|waiting| waiting != ask);
                    }
                }
                _ => {}
            }
        }
        self.check(&before, &told);
    }

    fn check(&self, before: &Situation, event: &str) {
        let now = &self.at;
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
        if before.state != now.state || before.expires_at != now.expires_at {
            assert!(
                self.is_saved,
                "a change was not kept after {event}: {now:?}"
            );
        }
        if !self.is_forgotten {
            assert_eq!(self.armed, now.alarm(), "the timer is wrong after {event}");
            let is_stuck = now.state == State::Stopping && now.op.is_none();
            // Only a failed deletion waits, for its retry.
            assert!(!is_stuck || now.message.contains("could not be deleted yet"));
        }
    }

    fn play(&mut self, action: Move) {
        self.clock += 1;
        match action {
            Move::Ask(ask) if self.at.must_wait(ask) => {}
            Move::Ask(ask) => {
                self.asked.push(ask);
                let (to, now) = (at(self.clock + 700), at(self.clock));
                self.feed(match ask {
                    Ask::Pause => Event::Pause,
                    Ask::Resume => Event::Resume,
                    Ask::Snapshot => Event::Snapshot,
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
                let deadline = if is_current { self.armed } else { Some(at(-5)) };
                if let Some(deadline) = deadline {
                    self.feed(Event::Expired { deadline });
                }
            }
            Move::Shift => {
                if let Some(from) = self.armed {
                    let to = from + SignedDuration::from_secs(3600);
                    self.armed = Some(to);
                    self.feed(Event::Shifted { to });
                }
            }
            Move::Answer => self.feed(Event::AnswerNow),
            Move::Retry => self.feed(Event::RetryDelete),
            Move::TimeOut if self.at.op.is_some() => self.feed(Event::OpTimedOut(down())),
            Move::TimeOut => {}
            Move::Finish { is_ok } => self.finish(is_ok),
            Move::Look(what) => self.look(what),
        }
    }

    fn finish(&mut self, is_ok: bool) {
        let result = || if is_ok { Ok(()) } else { Err(down()) };
        let event = match self.at.op {
            None | Some(Op::Inspect) => return,
            Some(Op::Make { .. }) if is_ok => Event::Made {
                now: at(self.clock),
                pulled: true,
            },
            Some(Op::Make { .. }) => Event::MakeFailed {
                reason: Reason::ImagePullFailed,
                error: down(),
            },
            Some(Op::Pause) => Event::PauseDone(result()),
            Some(Op::Resume) => Event::ResumeDone(result()),
            Some(Op::Snapshot) => Event::SnapshotDone(result()),
            Some(Op::Delete) => Event::DeleteDone(result()),
        };
        self.feed(event);
    }

    fn look(&mut self, what: u8) {
        if self.at.op != Some(Op::Inspect) {
            return;
        }
        let found = |state| Sight::Found {
            state,
            started_at: Some(START),
        };
        self.feed(Event::Inspected(match what % 6 {
            0 => found(ObservedState::Running),
            1 => found(ObservedState::Paused),
            2 => found(ObservedState::Incomplete),
            3 => found(ObservedState::Exited(exit(1))),
            4 => Sight::Gone,
            _ => Sight::Unknown("silent".to_owned()),
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
            assert_eq!(self.at.state, State::Stopping);
            match self.at.op {
                Some(Op::Inspect) => self.look(5),
                _ => self.finish(true),
            }
        }
        assert!(self.is_forgotten, "deletion does not win: {self:?}");
        assert!(self.asked.is_empty(), "somebody still waits: {self:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_happens(timeout in prop::option::of(60_u64..1000), moves in moves()) {
        let mut player = Player::new(timeout);
        for action in moves {
            if player.is_forgotten {
                break;
            }
            player.play(action);
        }
        player.end();
    }

    #[test]
    fn whatever_is_found_after_a_restart(
        state in prop::sample::select(State::ALL.to_vec()),
        moves in moves(),
    ) {
        let expires_at = Some(at(600));
        let restored = Situation::restored(
            "box".parse().unwrap(),
            (state, Reason::ContainerRunning, "could not be deleted yet".to_owned()),
            (Some(Duration::from_secs(600)), expires_at),
            None,
        );
        let mut player = Player {
            at: restored,
            clock: 0,
            asked: vec![],
            is_forgotten: false,
            armed: None,
            is_saved: true,
        };
        player.armed = player.at.alarm();
        player.feed(Event::Restored);
        for action in moves {
            if player.is_forgotten {
                break;
            }
            player.play(action);
        }
        player.end();
    }
}
