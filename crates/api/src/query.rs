//! Query strings: reading them with every problem told at once, and writing them for clients.

use std::collections::BTreeMap;

use crate::error::ErrorCode;
use crate::problem::{Excerpt, Problem, Problems};
use crate::sandbox::SandboxState;
use crate::snapshot::SnapshotState;

/// A query has at most this many parameters: no route of ours takes more than a handful, but
/// some repeat.
const PARAMETERS_MAX: usize = 1024;

/// Items per page when nothing is said.
pub const PAGE_SIZE_DEFAULT: u64 = 20;

/// Items per page at most.
pub const PAGE_SIZE_MAX: u64 = 200;

/// The parameters of a query, in order, decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query as it stands in the request, without the `?`.
    pub fn parse(raw: &str) -> Result<Self, Problem> {
        let mut pairs = Vec::new();
        for piece in raw.split('&').filter(|piece| !piece.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                let message = format!("has more than {PARAMETERS_MAX} parameters");
                return Err(Problem::new("", message));
            }
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            let name = decode(name).ok_or_else(|| not_utf8(name))?;
            let value = decode(value).ok_or_else(|| not_utf8(&name))?;
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of a parameter.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        let named = self.0.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter, as a number of a range.
    pub fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<u64> {
        let text = self.first(name)?;
        let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|number| is_plain && range.contains(number));
        if number.is_none() {
            let (low, high) = range.into_inner();
            let written = Excerpt(text);
            problems.add(
                name,
                format!("{written} is not a whole number from {low} to {high}"),
            );
        }
        number
    }

    /// The first value of a parameter, as yes or no.
    pub fn flag(&self, name: &str, problems: &mut Problems) -> Option<bool> {
        let text = self.first(name)?;
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => {
                problems.add(name, format!("{} is not true or false", Excerpt(text)));
                None
            }
        }
    }
}

fn not_utf8(name: &str) -> Problem {
    Problem::new(
        Excerpt(name).to_string(),
        "is not UTF-8 text, percent-encoded",
    )
}

/// `+` is a blank, `%41` is a byte; a `%` that begins no byte is itself.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, after @ ..]) => match (nibble(*high), nibble(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = after;
                }
                _ => bytes.push(b'%'),
            },
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// Writes a query, piece by piece.
#[derive(Debug, Clone, Default)]
pub struct QueryWriter(String);

impl QueryWriter {
    /// An empty query.
    pub const fn new() -> Self {
        Self(String::new())
    }

    /// Adds a parameter.
    #[must_use]
    pub fn pair(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        encode_into(&mut self.0, name);
        self.0.push('=');
        encode_into(&mut self.0, value);
        self
    }

    /// Adds a parameter, if it has a value.
    #[must_use]
    pub fn optional(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.pair(name, value),
            None => self,
        }
    }

    /// The query, without a `?`.
    pub fn finish(self) -> String {
        self.0
    }
}

fn encode_into(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 0xF)]));
        }
    }
}

/// Which part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Which page, from 1.
    pub number: u64,
    /// Items per page.
    pub size: u64,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            number: 1,
            size: PAGE_SIZE_DEFAULT,
        }
    }
}

impl Page {
    /// Reads `page` and `pageSize`.
    pub fn from_query(query: &Query, problems: &mut Problems) -> Self {
        let default = Self::default();
        // SQL counts rows in signed numbers.
        const PAGE_MAX: u64 = i64::MAX as u64 / PAGE_SIZE_MAX;
        let number = query.number("page", 1..=PAGE_MAX, problems);
        let size = query.number("pageSize", 1..=PAGE_SIZE_MAX, problems);
        Self {
            number: number.unwrap_or(default.number),
            size: size.unwrap_or(default.size),
        }
    }

    /// How many items come before this page.
    pub const fn offset(self) -> u64 {
        (self.number - 1).saturating_mul(self.size)
    }

    fn write(self, writer: QueryWriter) -> QueryWriter {
        writer
            .pair("page", &self.number.to_string())
            .pair("pageSize", &self.size.to_string())
    }
}

/// Query of `GET /sandboxes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListSandboxesQuery {
    /// Only sandboxes in one of these states; none is all.
    pub states: Vec<SandboxState>,
    /// Only sandboxes with all of these labels.
    pub metadata: BTreeMap<String, String>,
    /// Which part of the list.
    pub page: Page,
}

impl ListSandboxesQuery {
    /// Reads the query as it stands in the request.
    pub fn parse(raw: &str) -> Result<Self, Vec<Problem>> {
        let query = Query::parse(raw).map_err(|problem| vec![problem])?;
        let mut problems = Problems::new();
        let states = query.all("state").map(state_of_any_case).collect();
        let metadata = metadata_filter(&query, &mut problems);
        let page = Page::from_query(&query, &mut problems);
        problems.into_result(Self {
            states,
            metadata,
            page,
        })
    }

    /// The query as a client sends it.
    pub fn to_query(&self) -> String {
        let mut writer = QueryWriter::new();
        for state in &self.states {
            writer = writer.pair("state", state.as_str());
        }
        if !self.metadata.is_empty() {
            let labels = self.metadata.iter();
            let inner = labels.fold(QueryWriter::new(), |w, (key, value)| w.pair(key, value));
            writer = writer.pair("metadata", &inner.finish());
        }
        self.page.write(writer).finish()
    }
}

fn state_of_any_case(text: &str) -> SandboxState {
    let known = SandboxState::KNOWN
        .iter()
        .find(|state| state.as_str().eq_ignore_ascii_case(text));
    known.copied().unwrap_or(SandboxState::Unknown)
}

/// The filter is a query inside the query: its names and values are encoded once more.
pub fn metadata_filter(query: &Query, problems: &mut Problems) -> BTreeMap<String, String> {
    let mut metadata = BTreeMap::new();
    let Some(filter) = query.first("metadata").filter(|filter| !filter.is_empty()) else {
        return metadata;
    };
    let mut wrong = || {
        let message = format!("{} is not key=value pairs joined by &", Excerpt(filter));
        problems.add_code(ErrorCode::InvalidMetadataFormat, "metadata", message);
    };
    if filter.split('&').any(|piece| !piece.contains('=')) {
        wrong();
        return metadata;
    }
    match Query::parse(filter) {
        Ok(pairs) => metadata.extend(pairs.0),
        Err(_) => wrong(),
    }
    metadata
}

/// Query of `GET /snapshots`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListSnapshotsQuery {
    /// Only snapshots of this sandbox.
    pub sandbox_id: Option<String>,
    /// Only snapshots with this name.
    pub name: Option<String>,
    /// Only snapshots in one of these states; none is all. Written exactly so.
    pub states: Vec<SnapshotState>,
    /// Which part of the list.
    pub page: Page,
}

impl ListSnapshotsQuery {
    /// Reads the query as it stands in the request.
    pub fn parse(raw: &str) -> Result<Self, Vec<Problem>> {
        let query = Query::parse(raw).map_err(|problem| vec![problem])?;
        let mut problems = Problems::new();
        let page = Page::from_query(&query, &mut problems);
        problems.into_result(Self {
            sandbox_id: query.first("sandboxId").map(str::to_owned),
            name: query.first("name").map(str::to_owned),
            states: query.all("state").map(SnapshotState::from_wire).collect(),
            page,
        })
    }

    /// The query as a client sends it.
    pub fn to_query(&self) -> String {
        let mut writer = QueryWriter::new()
            .optional("sandboxId", self.sandbox_id.as_deref())
            .optional("name", self.name.as_deref());
        for state in &self.states {
            writer = writer.pair("state", state.as_str());
        }
        self.page.write(writer).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_is_filtered_by_states_and_labels() {
        let query = ListSandboxesQuery::parse(
            "state=running&state=PAUSED&metadata=a%3Db%2520c%26d%3D&page=2&pageSize=50",
        )
        .unwrap();
        assert_eq!(query.states, [SandboxState::Running, SandboxState::Paused]);
        assert_eq!(query.metadata["a"], "b c");
        assert_eq!(query.metadata["d"], "");
        assert_eq!(
            (query.page.number, query.page.size, query.page.offset()),
            (2, 50, 50)
        );
    }

    #[test]
    fn every_problem_of_a_query_is_told() {
        let problems =
            ListSandboxesQuery::parse("page=0&pageSize=201&metadata=nonsense").unwrap_err();
        let fields: Vec<_> = problems
            .iter()
            .map(|problem| problem.field.as_str())
            .collect();
        assert_eq!(fields, ["metadata", "page", "pageSize"]);
        assert_eq!(problems[0].code, ErrorCode::InvalidMetadataFormat);
        for raw in [
            "page=%FF",
            "%FF=1",
            "page=+1",
            "page=-1",
            "page=",
            "page=99999999999999999999",
        ] {
            assert!(ListSandboxesQuery::parse(raw).is_err(), "{raw}");
        }
        assert!(ListSandboxesQuery::parse(&"a&".repeat(5000)).is_err());
    }

    proptest! {
        #[test]
        fn queries_read_back(
            metadata in any::<BTreeMap<String, String>>(),
            states in prop::collection::vec(prop::sample::select(SandboxState::KNOWN), 0..4),
            number in 1_u64..1_000_000,
            size in 1..=PAGE_SIZE_MAX,
        ) {
            let query = ListSandboxesQuery { states, metadata, page: Page { number, size } };
            prop_assert_eq!(ListSandboxesQuery::parse(&query.to_query()), Ok(query));
        }

        #[test]
        fn any_query_is_read_or_refused(raw in any::<String>()) {
            let _ = ListSandboxesQuery::parse(&raw);
            let _ = ListSnapshotsQuery::parse(&raw);
        }

        #[test]
        fn snapshot_queries_read_back(
            sandbox_id in any::<Option<String>>(),
            name in any::<Option<String>>(),
        ) {
            let query = ListSnapshotsQuery { sandbox_id, name, ..Default::default() };
            prop_assert_eq!(ListSnapshotsQuery::parse(&query.to_query()), Ok(query));
        }
    }
}
