//! `/metrics` and `/metrics/watch`: what the sandbox uses, from its own cgroup.
//!
//! CPU is the share of what the sandbox may use, 0 to 100, over the time since the sample before
//! (the daemon keeps one from its start), so an answer never waits. Memory is what cannot be given
//! back at once: usage without the page cache nobody has touched lately. Limits are the tightest of
//! the cgroup and everything above it that is visible. Where no cgroup can be seen the machine's
//! own numbers from /proc are given, and they are then the truth about what the sandbox may use.

mod cgroup;
mod machine;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use self::cgroup::Cgroup;
use crate::{http::Problem, state::Shared};

/// Samples closer together than this say nothing: the kernel accounts CPU time in steps of up to
/// ten milliseconds.
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// How often `/metrics/watch` speaks, as the API promises.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn router(_: Arc<Shared>) -> Router {
    let meter = Arc::new(Meter::new(Cgroup::own()));
    Router::new()
        .route("/metrics", get(now))
        .route("/metrics/watch", get(watch))
        .with_state(meter)
}

#[derive(Debug, Serialize, PartialEq)]
struct Metrics {
    cpu_count: f64,
    cpu_used_pct: f64,
    mem_total_mib: f64,
    mem_used_mib: f64,
    timestamp: i64,
}

async fn now(State(meter): State<Arc<Meter>>) -> Result<Json<Metrics>, Problem> {
    let since = meter.since();
    meter
        .measure(since)
        .map(|(metrics, _)| Json(metrics))
        .map_err(Problem::runtime)
}

/// One event at once and then one a second, until the client goes.
async fn watch(State(meter): State<Arc<Meter>>) -> Response {
    let mut ticks = tokio::time::interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold(
        (meter, ticks, None),
        |(meter, mut ticks, before)| async move {
            ticks.tick().await;
            let since = before.unwrap_or_else(|| meter.since());
            let (event, next) = match meter.measure(since) {
                Ok((metrics, sample)) => (serde_json::to_string(&metrics), Some(sample)),
                Err(error) => (
                    serde_json::to_string(&serde_json::json!({ "error": error })),
                    None,
                ),
            };
            let event = event.unwrap_or_default() + "\n\n";
            Some((
                Ok::<_, std::convert::Infallible>(Bytes::from(event)),
                (meter, ticks, next),
            ))
        },
    );
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

/// How much CPU time had been used at a moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    used: Duration,
}

struct Meter {
    cgroup: Option<Cgroup>,
    /// The last two samples far enough apart.
    kept: Mutex<[Sample; 2]>,
}

/// What is known of the sandbox at a moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    cpus: f64,
    cpu_used: Duration,
    memory_total: u64,
    memory_used: u64,
}

impl Meter {
    fn new(cgroup: Option<Cgroup>) -> Self {
        let used = read_cpu(cgroup.as_ref()).unwrap_or_default();
        let start = Sample {
            at: Instant::now(),
            used,
        };
        Self {
            cgroup,
            kept: Mutex::new([start; 2]),
        }
    }

    /// The sample to compare with now: the last one, or the one before if that is too recent.
    fn since(&self) -> Sample {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept[1].at.elapsed() >= WINDOW_MIN {
            kept[1]
        } else {
            kept[0]
        }
    }

    fn measure(&self, since: Sample) -> Result<(Metrics, Sample), String> {
        let reading = self.read()?;
        let sample = Sample {
            at: Instant::now(),
            used: reading.cpu_used,
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if sample.at.duration_since(kept[1].at) >= WINDOW_MIN {
            *kept = [kept[1], sample];
        }
        Ok((reading.since(since, sample), sample))
    }

    fn read(&self) -> Result<Reading, String> {
        let machine = machine::memory()?;
        let limits = self.cgroup.as_ref().map(Cgroup::limits).unwrap_or_default();
        let memory_total = limits
            .memory
            .map_or(machine.total, |limit| limit.min(machine.total));
        let own_memory = self.cgroup.as_ref().and_then(Cgroup::memory_used);
        let cpus = machine::cpus();
        Ok(Reading {
            cpus: limits.cpus.map_or(cpus, |limit| limit.min(cpus)),
            cpu_used: read_cpu(self.cgroup.as_ref())?,
            memory_total,
            memory_used: own_memory.unwrap_or(machine.used).min(memory_total),
        })
    }
}

fn read_cpu(cgroup: Option<&Cgroup>) -> Result<Duration, String> {
    match cgroup.and_then(Cgroup::cpu_used) {
        Some(used) => Ok(used),
        None => machine::cpu_used(),
    }
}

impl Reading {
    fn since(&self, since: Sample, now: Sample) -> Metrics {
        let elapsed = now.at.saturating_duration_since(since.at).as_secs_f64();
        let used = now.used.saturating_sub(since.used).as_secs_f64();
        let share = if elapsed > 0.0 {
            used / (elapsed * self.cpus) * 100.0
        } else {
            0.0
        };
        Metrics {
            cpu_count: self.cpus,
            // A quota may be overdrawn for a moment, and clocks are read one after the other.
            cpu_used_pct: share.clamp(0.0, 100.0),
            mem_total_mib: self.memory_total as f64 / MIB,
            mem_used_mib: self.memory_used as f64 / MIB,
            timestamp: jiff::Timestamp::now().as_millisecond(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(cpus: f64) -> Reading {
        Reading {
            cpus,
            cpu_used: Duration::ZERO,
            memory_total: 64 << 20,
            memory_used: 16 << 20,
        }
    }

    fn pct(cpus: f64, elapsed: u64, used: u64) -> f64 {
        let start = Sample {
            at: Instant::now(),
            used: Duration::from_secs(100),
        };
        let now = Sample {
            at: start.at + Duration::from_millis(elapsed),
            used: Duration::from_secs(100) + Duration::from_millis(used),
        };
        reading(cpus).since(start, now).cpu_used_pct
    }

    #[test]
    fn the_share_is_of_what_may_be_used() {
        assert_eq!(pct(2.0, 1000, 1000), 50.0);
        assert_eq!(pct(0.5, 1000, 500), 100.0);
        assert_eq!(
            pct(0.5, 1000, 900),
            100.0,
            "an overdrawn quota is still all of it"
        );
        assert_eq!(pct(1.0, 0, 10), 0.0);
    }

    #[test]
    fn an_answer_is_immediate_and_within_bounds() {
        let meter = Meter::new(Cgroup::own());
        for _ in 0..3 {
            let (metrics, _) = meter.measure(meter.since()).unwrap();
            assert!((0.0..=100.0).contains(&metrics.cpu_used_pct), "{metrics:?}");
            assert!(metrics.cpu_count > 0.0, "{metrics:?}");
            assert!(metrics.mem_used_mib > 0.0, "{metrics:?}");
            assert!(metrics.mem_used_mib <= metrics.mem_total_mib, "{metrics:?}");
        }
    }

    #[test]
    fn without_a_cgroup_the_machine_answers() {
        let (metrics, _) = Meter::new(None).measure(Meter::new(None).since()).unwrap();
        assert!(metrics.mem_total_mib > 0.0);
    }

    #[test]
    fn busy_time_shows() {
        let meter = Meter::new(Cgroup::own());
        let begun = Instant::now();
        let mut work = 0u64;
        while begun.elapsed() < Duration::from_millis(300) {
            work = std::hint::black_box(work.wrapping_add(1));
        }
        let (metrics, _) = meter.measure(meter.since()).unwrap();
        assert!(metrics.cpu_used_pct > 0.0, "{metrics:?}");
    }

    #[test]
    fn two_calls_close_together_share_a_baseline() {
        let meter = Meter::new(None);
        let first = meter.since();
        meter.measure(first).unwrap();
        assert_eq!(meter.since().at, first.at, "too close to be a baseline");
    }
}
