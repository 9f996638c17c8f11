//! Samples of durations, and how they are printed.

use std::time::Duration;

#[derive(Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted[(sorted.len() - 1) * percent / 100]
    }
}

pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

pub(crate) fn report(what: &str, measured: &str, promised: &str) {
    println!("{what:<58} {measured:>14} {promised:>14}");
}
