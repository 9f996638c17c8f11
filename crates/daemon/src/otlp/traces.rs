//! Traces: which step of a request took how long, sent to an OpenTelemetry collector as OTLP over HTTP.
//!
//! A step is a span of `tracing` with the target `telemetry::TRACE_TARGET`; where nobody exports them, no such span
//! is made. A span's time ends when it was left for the last time, however long somebody holds it. Spans wait in a
//! bounded queue and are dropped when it is full, and a batch that the collector does not take is dropped, too:
//! tracing never holds up what is traced.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use super::{Error, Settings, attribute, nanoseconds, send};
use crate::telemetry::TRACE_TARGET;

/// Spans that wait for their export: those of some hundred creations. More are dropped.
const QUEUE: usize = 4096;
/// Spans of one message.
const BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// The field by which a span takes up the trace of somebody else, as in the header `traceparent`
/// (W3C Trace Context, 3.2).
const PARENT: &str = "traceparent";
/// The field that makes a span a failed one.
const FAILURE: &str = "error";

/// OTLP's numbers for kinds of spans and for the status of a failure.
const KIND_INTERNAL: u8 = 1;
const KIND_SERVER: u8 = 2;
const STATUS_ERROR: u8 = 2;

/// Collects spans, for [`crate::telemetry::start`].
pub struct Collector {
    spans: mpsc::Sender<Finished>,
    dropped: Arc<AtomicU64>,
}

/// The spans that were collected, to be exported.
pub struct Collected {
    spans: mpsc::Receiver<Finished>,
    dropped: Arc<AtomicU64>,
}

/// A collector, and where its spans come out.
pub fn channel() -> (Collector, Collected) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let collector = Collector {
        spans: sender,
        dropped: Arc::clone(&dropped),
    };
    let collected = Collected {
        spans: receiver,
        dropped,
    };
    (collector, collected)
}

/// Which trace a span belongs to, and who it is there.
#[derive(Debug, Clone, Copy)]
struct Place {
    trace: u128,
    span: u64,
    parent: Option<u64>,
    /// Whoever began the trace wants it recorded.
    is_sampled: bool,
}

/// A span as it is exported.
#[derive(Debug)]
struct Finished {
    place: Place,
    name: &'static str,
    is_request: bool,
    start: SystemTime,
    end: SystemTime,
    fields: Fields,
}

/// What a span says of itself.
#[derive(Debug, Default)]
struct Fields {
    parent: Option<String>,
    failure: Option<String>,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            PARENT => self.parent = Some(value.to_owned()),
            FAILURE => self.failure = Some(value.to_owned()),
            name => self.others.push((name, value.to_owned())),
        }
    }
}

/// Only spans that are steps; for nothing else is anything done.
struct StepsOnly;

/// Whether this is a step, or a question whether steps are collected, which is neither span nor event.
fn is_step(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TRACE_TARGET && !metadata.is_event()
}

impl<S> Filter<S> for StepsOnly {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        is_step(metadata)
    }

    fn callsite_enabled(
        &self,
        metadata: &'static Metadata<'static>,
    ) -> tracing::subscriber::Interest {
        match is_step(metadata) {
            true => tracing::subscriber::Interest::always(),
            false => tracing::subscriber::Interest::never(),
        }
    }
}

impl Collector {
    /// As a layer of the subscriber.
    pub(crate) fn layer<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.with_filter(StepsOnly)
    }
}

impl<S> Layer<S> for Collector
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let above = span
            .parent()
            .and_then(|parent| parent.extensions().get::<Finished>().map(|it| it.place));
        let is_request = fields.parent.is_some() || above.is_none();
        let given = fields.parent.take().and_then(|text| parse_parent(&text));
        let place = match given.or(above) {
            Some(above) => Place {
                span: random(),
                parent: Some(above.span),
                ..above
            },
            None => Place {
                trace: u128::from(random()) << 64 | u128::from(random()),
                span: random(),
                parent: None,
                is_sampled: true,
            },
        };
        let now = SystemTime::now();
        span.extensions_mut().insert(Finished {
            place,
            name: span.name(),
            is_request,
            start: now,
            end: now,
            fields,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(finished) = span.extensions_mut().get_mut::<Finished>()
        {
            values.record(&mut finished.fields);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(finished) = span.extensions_mut().get_mut::<Finished>()
        {
            finished.end = SystemTime::now();
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let finished = context
            .span(&id)
            .and_then(|span| span.extensions_mut().remove::<Finished>());
        if let Some(finished) = finished
            && finished.place.is_sampled
            && self.spans.try_send(finished).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads `00-<trace>-<span>-<flags>`. Whatever else it says begins a trace of its own, as the standard asks for.
fn parse_parent(text: &str) -> Option<Place> {
    let mut parts = text.trim().split('-');
    let mut part = |digits: usize| {
        let is_hex = |it: &&str| {
            it.len() == digits
                && it
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        parts.next().filter(is_hex)
    };
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let place = Place {
        trace: u128::from_str_radix(trace, 16).ok()?,
        span: u64::from_str_radix(span, 16).ok()?,
        parent: None,
        is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
    };
    let is_known = version != "ff" && (version != "00" || parts.next().is_none());
    (is_known && place.trace != 0 && place.span != 0).then_some(place)
}

/// A number that nobody else has, and never 0. Ids of traces are no secrets: std's keys for hash maps, which are
/// random, do.
fn random() -> u64 {
    RandomState::new().build_hasher().finish().max(1)
}

/// Exports spans until `stop`, and those that have come by then.
pub async fn export(
    settings: Settings,
    collected: Collected,
    stop: CancellationToken,
) -> Result<(), Error> {
    let url = settings.traces_url()?;
    let client = super::client()?;
    let Collected { mut spans, dropped } = collected;
    let mut is_arriving = true;
    loop {
        let mut batch = Vec::new();
        let is_last = tokio::select! {
            biased;
            count = spans.recv_many(&mut batch, BATCH) => count == 0,
            () = stop.cancelled() => {
                spans.close();
                spans.recv_many(&mut batch, QUEUE).await;
                true
            }
        };
        if !is_last {
            fill(&mut spans, &mut batch, &stop).await;
        }
        if !batch.is_empty() {
            let body = message(&batch, &settings.service_name);
            let outcome = send(&client, &url, &body).await;
            super::tell(&url, "traces", outcome.as_ref().err(), is_arriving);
            is_arriving = outcome.is_ok();
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(
                spans = lost,
                "spans were dropped: they come faster than they are exported"
            );
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Waits a moment for more spans, so that those of one request leave in one message.
async fn fill(
    spans: &mut mpsc::Receiver<Finished>,
    batch: &mut Vec<Finished>,
    stop: &CancellationToken,
) {
    let full = async {
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if spans.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(BATCH_WAIT, full) => {}
        () = stop.cancelled() => {}
    }
}

/// Spans as an OTLP message.
fn message(spans: &[Finished], service: &str) -> Value {
    let spans: Vec<Value> = spans.iter().map(Finished::to_otlp).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            attribute("service.name", service),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ] },
        "scopeSpans": [{ "scope": { "name": "osb" }, "spans": spans }],
    }] })
}

impl Finished {
    /// Ids are hexadecimal in OTLP's JSON, unlike other bytes there.
    fn to_otlp(&self) -> Value {
        let attributes = self.fields.others.iter();
        let attributes: Vec<Value> = attributes
            .map(|(key, value)| attribute(key, value))
            .collect();
        let mut span = json!({
            "traceId": format!("{:032x}", self.place.trace),
            "spanId": format!("{:016x}", self.place.span),
            "name": self.name,
            "kind": if self.is_request { KIND_SERVER } else { KIND_INTERNAL },
            "startTimeUnixNano": nanoseconds(self.start),
            "endTimeUnixNano": nanoseconds(self.end),
            "attributes": attributes,
        });
        if let Some(parent) = self.place.parent {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        if let Some(failure) = &self.fields.failure {
            span["status"] = json!({ "code": STATUS_ERROR, "message": failure });
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use tracing::Instrument as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// What is collected of this work.
    fn collect(work: impl FnOnce()) -> Vec<Finished> {
        let (collector, mut collected) = channel();
        let subscriber = tracing_subscriber::registry().with(collector.layer());
        tracing::subscriber::with_default(subscriber, work);
        std::iter::from_fn(|| collected.spans.try_recv().ok()).collect()
    }

    #[test]
    fn a_step_belongs_to_the_step_around_it_and_to_the_trace_of_the_caller() {
        let spans = collect(|| {
            let request =
                tracing::info_span!(target: "trace", "request", traceparent = CALLER, path = "/x");
            let _request = request.enter();
            // What is no step neither counts nor comes between.
            let _other = tracing::info_span!("log").entered();
            let step = tracing::info_span!(target: "trace", "step", error = tracing::field::Empty);
            step.record("error", "it broke");
        });
        let [step, request] = &spans[..] else {
            panic!("two spans: {spans:?}")
        };
        assert_eq!(
            request.place.trace,
            0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c
        );
        assert_eq!(request.place.parent, Some(0xb7ad_6b71_6920_3331));
        assert_eq!(step.place.trace, request.place.trace);
        assert_eq!(step.place.parent, Some(request.place.span));
        assert_eq!(
            request.to_otlp()["attributes"],
            json!([attribute("path", "/x")])
        );
        assert_eq!(
            step.to_otlp()["status"],
            json!({ "code": 2, "message": "it broke" })
        );
    }

    #[test]
    fn a_trace_that_its_caller_does_not_record_is_not_recorded_here() {
        let unwanted = CALLER.replace("-01", "-00");
        let spans = collect(|| {
            let request = tracing::info_span!(target: "trace", "request", traceparent = &*unwanted);
            let _request = request.enter();
            let _step = tracing::info_span!(target: "trace", "step");
        });
        assert!(spans.is_empty(), "{spans:?}");
    }

    #[test]
    fn only_what_the_standard_allows_is_a_parent() {
        assert!(parse_parent(CALLER).is_some());
        assert!(parse_parent(&CALLER.replacen("00", "01", 1)).is_some());
        assert!(parse_parent(&format!("{}-later", CALLER.replacen("00", "01", 1))).is_some());
        for wrong in [
            "",
            "00",
            &CALLER.to_uppercase(),
            &CALLER.replacen("00", "ff", 1),
            &format!("{CALLER}-later"),
            &CALLER.replace("b7ad6b7169203331", "0000000000000000"),
            &CALLER.replace(
                "0af7651916cd43dd8448eb211c80319c",
                "00000000000000000000000000000000",
            ),
        ] {
            assert!(parse_parent(wrong).is_none(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_span_ends_when_it_was_left_however_long_it_is_held() {
        let (collector, mut collected) = channel();
        let subscriber = tracing_subscriber::registry().with(collector.layer());
        let guard = tracing::subscriber::set_default(subscriber);
        let span = tracing::info_span!(target: "trace", "step");
        async {}.instrument(span.clone()).await;
        let left = SystemTime::now();
        drop(span);
        drop(guard);
        assert!(collected.spans.try_recv().unwrap().end <= left);
    }
}
