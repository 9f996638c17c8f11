//! Sends what the Prometheus page shows to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//!
//! Metrics here, traces in `traces`; logs stay on standard error. The page is the one source,
//! so that a scrape and an export never disagree. A collector that is away is reported once, not
//! at every interval, and nothing is kept for it: metrics are cumulative, so the next export that
//! arrives says it all.

pub mod traces;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What one export may take, connection included. A collector that is slower is as good as away.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// Where a collector takes metrics, when its address has no path of its own.
const METRICS_PATH: &str = "/v1/metrics";
/// Where it takes traces.
const TRACES_PATH: &str = "/v1/traces";
/// OTLP's number for values that count from the start of the process.
const CUMULATIVE: u8 = 2;

/// Where to export to, and how often.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The collector, as in http://127.0.0.1:4318.
    pub endpoint: String,
    /// What we are called there.
    pub service_name: String,
    /// Time from one export of metrics to the next.
    pub interval: Duration,
    /// Whether traces are exported, too.
    pub has_traces: bool,
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("{0:?} is not the address of a collector; use one such as http://127.0.0.1:4318")]
    Endpoint(String),
    /// A path that says where metrics go, and not where traces do.
    #[error(
        "{0:?} has a path of its own, so it is not known where traces go; leave the path out, let it end in \
         /v1/metrics, or set otel.traces = false"
    )]
    TracesEndpoint(String),
    /// No time between exports.
    #[error("the time between two exports must be at least one second")]
    Interval,
    /// The HTTP client could not be made.
    #[error("the HTTP client for exports cannot be made")]
    Client(#[source] reqwest::Error),
}

/// An export that did not arrive.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the collector cannot be reached")]
    Away(#[source] reqwest::Error),
    #[error("the collector refused with {0}")]
    Refused(reqwest::StatusCode),
}

impl Settings {
    /// What is wrong with them, before anything is opened.
    pub fn check(&self) -> Result<(), Error> {
        if self.interval < Duration::from_secs(1) {
            return Err(Error::Interval);
        }
        if self.has_traces {
            self.traces_url()?;
        }
        self.url().map(drop)
    }

    fn traces_url(&self) -> Result<reqwest::Url, Error> {
        let mut url = self.url()?;
        let Some(base) = url.path().strip_suffix(METRICS_PATH) else {
            return Err(Error::TracesEndpoint(self.endpoint.clone()));
        };
        let path = format!("{base}{TRACES_PATH}");
        url.set_path(&path);
        Ok(url)
    }

    fn url(&self) -> Result<reqwest::Url, Error> {
        let wrong = || Error::Endpoint(self.endpoint.clone());
        let mut url: reqwest::Url = self.endpoint.parse().map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(wrong());
        }
        if url.path() == "/" {
            url.set_path(METRICS_PATH);
        }
        Ok(url)
    }
}

/// Exports what `page` gives until `stop`, and once more then, so that the last minute is not lost.
pub async fn export(
    settings: Settings,
    page: impl Fn() -> String,
    stop: CancellationToken,
) -> Result<(), Error> {
    let url = settings.url()?;
    let client = client()?;
    let started = SystemTime::now();
    let mut ticks = tokio::time::interval(settings.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut is_arriving = true;
    loop {
        let is_last = tokio::select! {
            _ = ticks.tick() => false,
            () = stop.cancelled() => true,
        };
        let body = message(&page(), &settings.service_name, started, SystemTime::now());
        let outcome = send(&client, &url, &body).await;
        tell(&url, "metrics", outcome.as_ref().err(), is_arriving);
        is_arriving = outcome.is_ok();
        if is_last {
            return Ok(());
        }
    }
}

fn client() -> Result<reqwest::Client, Error> {
    let client = reqwest::Client::builder().timeout(EXPORT_MAX).build();
    client.map_err(Error::Client)
}

/// Says when exports begin to be lost, and when they arrive again.
fn tell(url: &reqwest::Url, what: &str, lost: Option<&Lost>, was_arriving: bool) {
    match lost {
        Some(error) if was_arriving => {
            let error: &dyn std::error::Error = error;
            tracing::warn!(endpoint = %url, what, error, "the collector does not get them");
        }
        None if !was_arriving => {
            tracing::info!(endpoint = %url, what, "the collector gets them again");
        }
        _ => {}
    }
}

async fn send(client: &reqwest::Client, url: &reqwest::Url, body: &Value) -> Result<(), Lost> {
    let answer = client
        .post(url.clone())
        .header(reqwest::header::CONTENT_TYPE, "application/json")
        .body(body.to_string())
        .send()
        .await
        .map_err(Lost::Away)?;
    if answer.status().is_success() {
        Ok(())
    } else {
        Err(Lost::Refused(answer.status()))
    }
}

/// A page in the OpenMetrics format as an OTLP message.
fn message(page: &str, service: &str, started: SystemTime, now: SystemTime) -> Value {
    let times =
        json!({ "startTimeUnixNano": nanoseconds(started), "timeUnixNano": nanoseconds(now) });
    let metrics: Vec<Value> = families(page)
        .iter()
        .filter_map(|family| family.to_otlp(&times))
        .collect();
    json!({ "resourceMetrics": [{
        "resource": { "attributes": [
            attribute("service.name", service),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ] },
        "scopeMetrics": [{ "scope": { "name": "osb" }, "metrics": metrics }],
    }] })
}

/// OTLP writes 64-bit integers as strings in JSON.
fn nanoseconds(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos().to_string()
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// One metric of the page with all its series.
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: String,
    samples: Vec<Sample<'a>>,
}

struct Sample<'a> {
    /// `total`, `bucket`, `sum`, `count`, or nothing.
    part: &'a str,
    labels: BTreeMap<&'a str, String>,
    value: f64,
}

/// Reads a page line by line. Lines of a form we do not write are passed over.
fn families(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in page.lines() {
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|it| it.split_once(' '))
        {
            families.push(Family {
                name,
                kind: "",
                help: unescape(help),
                samples: Vec::new(),
            });
        } else if let Some((_, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|it| it.split_once(' '))
        {
            if let Some(family) = families.last_mut() {
                family.kind = kind;
            }
        } else if let Some(family) = families.last_mut()
            && let Some(sample) = sample(line, family.name)
        {
            family.samples.push(sample);
        }
    }
    families
}

/// `name_part{a="b",c="d"} 1.5`
fn sample<'a>(line: &'a str, family: &str) -> Option<Sample<'a>> {
    let rest = line.strip_prefix(family)?;
    let split = rest.find(['{', ' '])?;
    let (part, mut rest) = rest.split_at(split);
    let mut labels = BTreeMap::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        while let Some((key, after)) = inside.split_once("=\"") {
            let end = closing_quote(after)?;
            labels.insert(key.trim_start_matches(','), unescape(&after[..end]));
            inside = &after[end + 1..];
            if inside.starts_with('}') {
                break;
            }
        }
        rest = inside.strip_prefix('}')?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        part: part.trim_start_matches('_'),
        labels,
        value,
    })
}

/// Where a quoted value ends: at the first quote that is not escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => {}
            },
            (other, false) => plain.push(other),
        }
    }
    plain
}

impl Family<'_> {
    fn to_otlp(&self, times: &Value) -> Option<Value> {
        if self.samples.is_empty() {
            return None;
        }
        let mut metric = json!({ "name": self.name, "description": self.help });
        let (key, data) = match self.kind {
            "counter" => (
                "sum",
                json!({
                    "aggregationTemporality": CUMULATIVE,
                    "isMonotonic": true,
                    "dataPoints": self.numbers(times),
                }),
            ),
            "gauge" => ("gauge", json!({ "dataPoints": self.numbers(times) })),
            "histogram" => (
                "histogram",
                json!({
                    "aggregationTemporality": CUMULATIVE,
                    "dataPoints": self.histograms(times),
                }),
            ),
            _ => return None,
        };
        metric[key] = data;
        Some(metric)
    }

    fn numbers(&self, times: &Value) -> Vec<Value> {
        let points = self.samples.iter().map(|sample| {
            let mut point = point(times, &sample.labels);
            point["asDouble"] = json!(sample.value);
            point
        });
        points.collect()
    }

    /// The page counts a bucket with all below it, OTLP counts each for itself.
    fn histograms(&self, times: &Value) -> Vec<Value> {
        let mut series: BTreeMap<BTreeMap<&str, String>, Series> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            let bound = labels.remove("le");
            let one = series.entry(labels).or_default();
            match (sample.part, bound) {
                ("sum", _) => one.sum = sample.value,
                ("count", _) => one.count = sample.value,
                ("bucket", Some(bound)) => one.buckets.push((bound.parse().ok(), sample.value)),
                _ => {}
            }
        }
        let points = series.iter().map(|(labels, one)| {
            let mut below = 0.0;
            let counts: Vec<String> = one
                .buckets
                .iter()
                .map(|(_, count)| format!("{}", count - std::mem::replace(&mut below, *count)))
                .collect();
            let bounds: Vec<f64> = one
                .buckets
                .iter()
                .filter_map(|(bound, _)| bound.filter(|it: &f64| it.is_finite()))
                .collect();
            let mut point = point(times, labels);
            point["count"] = json!(format!("{}", one.count));
            point["sum"] = json!(one.sum);
            point["bucketCounts"] = json!(counts);
            point["explicitBounds"] = json!(bounds);
            point
        });
        points.collect()
    }
}

#[derive(Default)]
struct Series {
    sum: f64,
    count: f64,
    buckets: Vec<(Option<f64>, f64)>,
}

fn point(times: &Value, labels: &BTreeMap<&str, String>) -> Value {
    let mut point = times.clone();
    let attributes = labels.iter().map(|(key, value)| attribute(key, value));
    point["attributes"] = attributes.collect();
    point
}

#[cfg(test)]
mod tests;
