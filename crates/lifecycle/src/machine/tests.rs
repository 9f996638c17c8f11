//! What holds for the machine whatever the events and their order.

mod player;

use super::*;
use crate::backend::Platform;
use crate::store;
use player::{Player, moves};
use proptest::prelude::*;

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    START + SignedDuration::from_secs(seconds)
}

fn sandbox(timeout: Option<u64>) -> MachineState {
    let timeout = timeout.map(Duration::from_secs);
    let expires_at = timeout.and_then(|timeout| after(START, timeout));
    MachineState::new("box".parse().unwrap(), timeout, expires_at)
}

/// A sandbox that a restarted server found in its store.
fn stored(state: State) -> MachineState {
    MachineState {
        state,
        message: "could not be deleted yet".to_owned(),
        creation: CreationProgress::recorded(),
        ..sandbox(Some(600))
    }
}

fn down() -> Error {
    Error::Timeout {
        action: "testing",
        after: Duration::from_secs(1),
    }
}

fn full() -> Error {
    Error::Store(store::Error::Full {
        store: "memory",
        location: "memory".to_owned(),
    })
}

fn exit(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
        oom_killed: false,
        at: None,
    }
}

fn made(now: Timestamp, pulled: bool) -> Event {
    let created = Created {
        started_at: now,
        entrypoint: vec!["/bin/sh".to_owned()],
        platform: Platform {
            os: "linux".to_owned(),
            arch: "amd64".to_owned(),
        },
        image_digest: None,
    };
    Event::Made {
        created,
        pulled,
        now,
    }
}

fn failed() -> Event {
    Event::MakeFailed {
        reason: Reason::ImagePullFailed,
        error: down(),
    }
}

/// Feeds events one after the other; the last step's effects.
fn feed(
    mut machine_state: MachineState,
    events: impl IntoIterator<Item = Event>,
) -> (MachineState, Effects) {
    let mut effects = Effects::new();
    for event in events {
        effects = step(&mut machine_state, event);
    }
    (machine_state, effects)
}

/// A creation whose record is durable and which the backend works on.
fn recorded(timeout: Option<u64>) -> MachineState {
    feed(sandbox(timeout), [Event::Begin, Event::Recorded(Ok(()))]).0
}

fn running() -> MachineState {
    feed(recorded(Some(600)), [made(START, false)]).0
}

#[test]
fn an_exit_that_comes_before_the_creation_is_known_is_not_lost() {
    let (ended, _) = feed(recorded(None), [Event::Exited(exit(0)), made(START, false)]);
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
    let (mut alive, effects) = feed(running(), [renew, old]);
    assert_eq!(alive.state, State::Running);
    assert!(effects.is_empty());
    step(&mut alive, Event::Expired { deadline: at(1200) });
    assert_eq!(
        (alive.state, alive.reason),
        (State::Stopping, Reason::SandboxExpired)
    );
}

#[test]
fn a_pending_sandbox_does_not_expire() {
    let (mut pending, _) = feed(recorded(Some(60)), [Event::PullNeeded]);
    let effects = step(&mut pending, Event::Expired { deadline: at(60) });
    assert_eq!(pending.state, State::Pending);
    assert!(effects.is_empty());
}

#[test]
fn a_failed_creation_nobody_was_told_of_is_forgotten() {
    let (_, effects) = feed(recorded(None), [failed()]);
    assert!(matches!(
        effects[..],
        [Effect::Answer(Ask::Create, Err(_)), Effect::Forget]
    ));
}

#[test]
fn what_is_made_before_its_record_is_durable_waits_for_that() {
    let (mut waiting, effects) = feed(sandbox(None), [Event::Begin, made(START, false)]);
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!(waiting.state, State::Pending);
    // Nobody looks at a sandbox that is not recorded, and its creation cannot run out of time.
    assert!(step(&mut waiting, Event::Check).is_empty());
    assert!(step(&mut waiting, Event::OpTimedOut(down())).is_empty());
    assert!(waiting.created.is_none());
    let effects = step(&mut waiting, Event::Recorded(Ok(())));
    assert!(matches!(effects[0], Effect::Answer(Ask::Create, Ok(()))));
    assert_eq!(waiting.state, State::Running);
    assert_eq!(waiting.created.unwrap().started_at, START);
}

#[test]
fn what_is_made_without_a_record_is_taken_back() {
    for events in [
        [made(START, false), Event::Recorded(Err(full()))],
        [Event::Recorded(Err(full())), made(START, false)],
    ] {
        let (begun, _) = feed(sandbox(None), [Event::Begin]);
        let (refused, effects) = feed(begun, events);
        assert!(
            matches!(
                effects[..],
                [
                    Effect::Discard,
                    Effect::Answer(Ask::Create, Err(Error::Store(_))),
                    Effect::Forget
                ]
            ),
            "{effects:?}"
        );
        // It gives its idempotency key back, which what was made does not.
        assert!(refused.created.is_none());
    }
}

#[test]
fn a_record_that_is_refused_ends_the_creation_and_is_the_error() {
    let (mut refused, effects) = feed(sandbox(None), [Event::Begin, Event::Recorded(Err(full()))]);
    assert!(matches!(effects[..], [Effect::CancelMake]), "{effects:?}");
    assert!(step(&mut refused, Event::AnswerDue).is_empty());
    assert!(step(&mut refused, Event::PullNeeded).is_empty());
    let effects = step(&mut refused, failed());
    assert!(
        matches!(
            effects[..],
            [
                Effect::Answer(Ask::Create, Err(Error::Store(_))),
                Effect::Forget
            ]
        ),
        "{effects:?}"
    );
}

#[test]
fn an_answer_that_is_due_waits_for_the_record_and_is_given_once() {
    let (mut due, effects) = feed(sandbox(None), [Event::Begin, Event::AnswerDue]);
    assert!(effects.is_empty(), "{effects:?}");
    let effects = step(&mut due, Event::Recorded(Ok(())));
    assert!(matches!(
        effects[..],
        [
            Effect::Save(Change::Transition),
            Effect::Answer(Ask::Create, Ok(()))
        ]
    ));
    assert_eq!(due.state, State::Pending);
    assert!(step(&mut due, Event::AnswerDue).is_empty());
    let effects = step(&mut due, failed());
    assert_eq!(
        due.state,
        State::Failed,
        "it stays, since a client knows of it"
    );
    assert!(!effects.iter().any(|it| matches!(it, Effect::Answer(..))));
}

#[test]
fn a_pull_is_told_when_the_record_is_durable_and_then_how_far_it_is() {
    let progress = |percent| Event::PullProgress { percent };
    let (mut pulling, effects) = feed(
        sandbox(None),
        [Event::Begin, Event::PullNeeded, progress(10)],
    );
    assert!(effects.is_empty(), "{effects:?}");
    // A request that repeats the key is answered as soon as the reason is shown.
    assert_eq!(pulling.reason, Reason::ContainerStarting);
    let effects = step(&mut pulling, Event::Recorded(Ok(())));
    assert!(matches!(
        effects[..],
        [
            Effect::Save(Change::Transition),
            Effect::Answer(Ask::Create, Ok(()))
        ]
    ));
    assert_eq!(pulling.reason, Reason::ImagePulling);
    assert!(step(&mut pulling, progress(70)).is_empty(), "only shown");
    assert_eq!(pulling.message, "The image is being pulled: 70 %");
    step(&mut pulling, Event::Delete);
    step(&mut pulling, progress(80));
    assert_eq!(pulling.message, "The sandbox is being deleted");
}

#[test]
fn a_deletion_does_not_wait_for_the_record_of_what_is_made() {
    let (_, effects) = feed(
        sandbox(None),
        [Event::Begin, made(START, false), Event::Delete],
    );
    let last = effects.last();
    assert!(matches!(last, Some(Effect::Start(Op::Delete))), "{last:?}");
    let (_, effects) = feed(
        sandbox(None),
        [Event::Begin, Event::Delete, made(START, false)],
    );
    assert!(matches!(effects[..], [Effect::Start(Op::Delete)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn whatever_happens(timeout in prop::option::of(60_u64..1000), moves in moves()) {
        Player::creating(timeout).play_all(moves);
    }

    #[test]
    fn whatever_is_found_after_a_restart(
        state in prop::sample::select(State::ALL.to_vec()),
        moves in moves(),
    ) {
        Player::restored(state).play_all(moves);
    }
}
