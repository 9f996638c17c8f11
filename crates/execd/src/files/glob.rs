//! Glob patterns over file names and relative paths.
//!
//! `*` any run inside a name, `?` one character, `[a-z]` and `[!a-z]` classes, `{a,b}` alternatives
//! (nested too), `!(a|b)` anything but, `\` makes the next character plain, and `**` as a whole
//! component any number of components, none included. No wildcard but `**` matches a slash; a
//! leading dot is a character like any other.
//!
//! A match keeps the set of positions that are reachable after each step of the pattern instead of
//! going back, so its cost grows with pattern times text: no pattern is exponentially slow.

use super::error::{Error, Result};

/// Longer than any path the kernel takes.
const PATTERN_MAX: usize = 4096;

/// How deep alternatives may nest; deeper is a mistake or an attack on the stack.
const NESTING_MAX: usize = 16;

#[derive(Debug)]
enum Step {
    Literal(char),
    /// One character that is not a slash.
    One,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any run without a slash.
    Run,
    /// Zero or more whole components, each with its slash.
    Components,
    /// Everything that is left.
    Rest,
    /// One of these.
    Either(Vec<Program>),
    /// A run without a slash that none of these matches.
    Neither(Vec<Program>),
}

type Program = Vec<Step>;

pub(super) struct Glob {
    program: Program,
    has_slash: bool,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Result<Self> {
        let bad = |why: &str| Error::BadQuery {
            name: "pattern",
            why: format!("'{pattern}': {why}"),
        };
        if pattern.len() > PATTERN_MAX {
            return Err(Error::BadQuery {
                name: "pattern",
                why: format!("it is longer than {PATTERN_MAX} bytes"),
            });
        }
        let text: Vec<char> = pattern.trim_start_matches("./").chars().collect();
        let mut parser = Parser {
            text: &text,
            at: 0,
            in_neither: false,
        };
        let program = parser.sequence(&[], 0).map_err(bad)?;
        Ok(Self {
            program,
            has_slash: text.contains(&'/'),
        })
    }

    /// Whether the pattern says something about directories, so that a base name alone cannot
    /// match it except through `**`.
    pub(super) fn has_slash(&self) -> bool {
        self.has_slash
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        ends(&self.program, &text, starting_at(0, &text))[text.len()]
    }
}

struct Parser<'a> {
    text: &'a [char],
    at: usize,
    in_neither: bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn starts(&self, prefix: &str) -> bool {
        prefix
            .chars()
            .enumerate()
            .all(|(i, c)| self.text.get(self.at + i) == Some(&c))
    }

    /// Steps up to one of `stops` (not consumed) or the end.
    fn sequence(&mut self, stops: &[char], depth: usize) -> Result<Program, &'static str> {
        if depth > NESTING_MAX {
            return Err("alternatives nest too deep");
        }
        let mut steps = Program::new();
        while let Some(c) = self.peek() {
            if stops.contains(&c) {
                break;
            }
            let step = match c {
                '*' if self.whole_component(stops) => self.components(),
                '*' => {
                    while self.peek() == Some('*') {
                        self.at += 1;
                    }
                    Step::Run
                }
                '?' => self.single(Step::One),
                '[' => self.class()?,
                '{' => {
                    self.at += 1;
                    Step::Either(self.alternatives(',', '}', depth)?)
                }
                '!' if self.starts("!(") => {
                    self.at += 2;
                    // Each is tried from every position, so nesting them would multiply the cost.
                    if std::mem::replace(&mut self.in_neither, true) {
                        return Err("a '!(' stands inside another");
                    }
                    let programs = self.alternatives('|', ')', depth)?;
                    self.in_neither = false;
                    Step::Neither(programs)
                }
                '\\' => {
                    self.at += 1;
                    let plain = self.peek().ok_or("it ends in a backslash")?;
                    self.single(Step::Literal(plain))
                }
                plain => self.single(Step::Literal(plain)),
            };
            steps.push(step);
        }
        Ok(steps)
    }

    fn single(&mut self, step: Step) -> Step {
        self.at += 1;
        step
    }

    /// Whether `**` stands here as a component of its own.
    fn whole_component(&self, stops: &[char]) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.text[at]);
        let opens = before.is_none_or(|c| matches!(c, '/' | '{' | ',' | '(' | '|'));
        let after = self.text.get(self.at + 2);
        opens && self.starts("**") && after.is_none_or(|c| *c == '/' || stops.contains(c))
    }

    fn components(&mut self) -> Step {
        self.at += 2;
        if self.peek() == Some('/') {
            self.at += 1;
            return Step::Components;
        }
        Step::Rest
    }

    fn alternatives(
        &mut self,
        between: char,
        close: char,
        depth: usize,
    ) -> Result<Vec<Program>, &'static str> {
        let mut all = Vec::new();
        loop {
            all.push(self.sequence(&[between, close], depth + 1)?);
            match self.peek() {
                Some(c) if c == between => self.at += 1,
                Some(_) => {
                    self.at += 1;
                    return Ok(all);
                }
                None if close == '}' => return Err("a '{' is not closed"),
                None => return Err("a '!(' is not closed"),
            }
        }
    }

    fn class(&mut self) -> Result<Step, &'static str> {
        const OPEN: &str = "a '[' is not closed";
        self.at += 1;
        let negated = matches!(self.peek(), Some('!' | '^'));
        self.at += usize::from(negated);
        let mut ranges = Vec::new();
        let first = self.at;
        loop {
            let c = self.peek().ok_or(OPEN)?;
            // A bracket that comes first is a character of the class.
            if c == ']' && self.at > first {
                self.at += 1;
                return Ok(Step::Class { negated, ranges });
            }
            let low = self.class_char().ok_or(OPEN)?;
            let dash =
                self.peek() == Some('-') && self.text.get(self.at + 1).is_some_and(|c| *c != ']');
            if !dash {
                ranges.push((low, low));
                continue;
            }
            self.at += 1;
            let high = self.class_char().ok_or(OPEN)?;
            if high < low {
                return Err("a class has a range that runs backwards");
            }
            ranges.push((low, high));
        }
    }

    fn class_char(&mut self) -> Option<char> {
        if self.peek()? == '\\' {
            self.at += 1;
        }
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }
}

/// A set of positions in the text, its end included.
type Positions = Vec<bool>;

fn starting_at(at: usize, text: &[char]) -> Positions {
    let mut positions = vec![false; text.len() + 1];
    positions[at] = true;
    positions
}

/// Every position at which `program` can end when it begins at one of `starts`.
fn ends(program: &[Step], text: &[char], starts: Positions) -> Positions {
    program.iter().fold(starts, |now, step| {
        if now.contains(&true) {
            after(step, text, &now)
        } else {
            now
        }
    })
}

/// Every position at which `step` can end when it begins at one of `starts`.
fn after(step: &Step, text: &[char], starts: &Positions) -> Positions {
    let mut next = vec![false; text.len() + 1];
    if let Step::Either(programs) = step {
        for program in programs {
            let reached = ends(program, text, starts.clone());
            next.iter_mut()
                .zip(reached)
                .for_each(|(slot, is)| *slot |= is);
        }
        return next;
    }
    for at in (0..=text.len()).filter(|&at| starts[at]) {
        let here = text.get(at).copied().filter(|c| *c != '/');
        let name_end = || {
            text[at..]
                .iter()
                .position(|c| *c == '/')
                .map_or(text.len(), |n| at + n)
        };
        match step {
            Step::Literal(c) if text.get(at) == Some(c) => next[at + 1] = true,
            Step::One if here.is_some() => next[at + 1] = true,
            Step::Class { negated, ranges } => {
                let inside = |c: char| ranges.iter().any(|(low, high)| (*low..=*high).contains(&c));
                if here.is_some_and(|c| inside(c) != *negated) {
                    next[at + 1] = true;
                }
            }
            Step::Run => next[at..=name_end()].fill(true),
            Step::Rest => next[at..].fill(true),
            Step::Components => {
                next[at] = true;
                for slash in (at..text.len()).filter(|&i| text[i] == '/') {
                    next[slash + 1] = true;
                }
            }
            Step::Neither(programs) => {
                let reached: Vec<Positions> = programs
                    .iter()
                    .map(|program| ends(program, text, starting_at(at, text)))
                    .collect();
                for end in at..=name_end() {
                    next[end] |= !reached.iter().any(|set| set[end]);
                }
            }
            Step::Literal(_) | Step::One | Step::Either(_) => {}
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let glob = Glob::new(pattern).unwrap();
        for text in yes {
            assert!(glob.matches(text), "{pattern} should match {text}");
        }
        for text in no {
            assert!(!glob.matches(text), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn wildcards_inside_a_name() {
        check("*.py", &["a.py", ".py", ".hidden.py"], &["a.pyc", "d/a.py"]);
        check("a?c", &["abc", "aéc"], &["ac", "a/c", "abbc"]);
        check("*", &["", "x"], &["a/b"]);
        check("a**b", &["ab", "axxb"], &["a/b"]);
        check("\\*", &["*"], &["x"]);
        check("日*", &["日本"], &["本"]);
    }

    #[test]
    fn classes() {
        check("[a-c]x", &["ax", "cx"], &["dx", "x"]);
        check("[!a-c]x", &["dx"], &["ax", "/x"]);
        check("[^a]", &["b"], &["a"]);
        check("[]a]", &["]", "a"], &["b"]);
        check("[a-]", &["a", "-"], &["b"]);
        check("[\\]]", &["]"], &["\\"]);
    }

    #[test]
    fn components() {
        check("**", &["", "a", "a/b/c"], &[]);
        check(
            "**/*.py",
            &["a.py", "d/a.py", "d/e/a.py"],
            &["a.txt", "d/a.txt"],
        );
        check(
            "src/**/x",
            &["src/x", "src/a/x", "src/a/b/x"],
            &["srcx", "x", "src/xx"],
        );
        check("src/*.py", &["src/a.py"], &["a.py", "src/d/a.py"]);
        check("src/**", &["src/a", "src/a/b"], &["a"]);
        check("./a", &["a"], &[]);
    }

    #[test]
    fn alternatives() {
        check("*.{py,rs}", &["a.py", "a.rs"], &["a.c", "a."]);
        check("{a,b{c,d}}e", &["ae", "bce", "bde"], &["be", "bcde"]);
        check("{,x}y", &["y", "xy"], &["xxy"]);
        check("{**/,}a", &["a", "b/c/a"], &["ba"]);
        check("!(*.py)", &["a.rs", ""], &["a.py"]);
        check("a!(b|c)d", &["aed", "ad", "abcd"], &["abd", "acd"]);
        check("a,b", &["a,b"], &["a"]);
    }

    #[test]
    fn broken_patterns_are_refused() {
        for wrong in ["[a", "{a,b", "!(a", "a\\", "[b-a]"] {
            assert!(Glob::new(wrong).is_err(), "{wrong}");
        }
        assert!(Glob::new(&"{".repeat(100)).is_err());
        assert!(Glob::new(&"a".repeat(PATTERN_MAX + 1)).is_err());
    }

    #[test]
    fn no_pattern_is_exponentially_slow() {
        let glob = Glob::new(&format!("{}b", "*a".repeat(200))).unwrap();
        assert!(!glob.matches(&"a".repeat(255)));
        let nested = Glob::new(&format!("{}x{}", "{*".repeat(16), "*}".repeat(16))).unwrap();
        assert!(!nested.matches(&"a".repeat(255)));
        assert!(Glob::new("!(a|!(b))").is_err());
    }

    proptest! {
        #[test]
        fn escaped_text_matches_only_itself(text in "[ -~é/]{0,30}", other in "[ -~é/]{0,30}") {
            let escaped: String = text.chars().flat_map(|c| if c == '/' { vec![c] } else { vec!['\\', c] }).collect();
            let glob = Glob::new(&escaped).unwrap();
            prop_assert!(glob.matches(&text));
            prop_assert_eq!(glob.matches(&other), text == other);
        }

        #[test]
        fn agrees_with_a_plain_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn plain(p: &[u8], t: &[u8]) -> bool {
                match (p.first(), t.first()) {
                    (None, None) => true,
                    (Some(b'*'), _) => plain(&p[1..], t) || (!t.is_empty() && plain(p, &t[1..])),
                    (Some(b'?'), Some(_)) => plain(&p[1..], &t[1..]),
                    (Some(a), Some(b)) if a == b => plain(&p[1..], &t[1..]),
                    _ => false,
                }
            }
            prop_assert_eq!(Glob::new(&pattern).unwrap().matches(&text), plain(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn any_pattern_is_answered(pattern in "[ab*?{},!()|\\[\\]\\\\/^-]{0,40}", text in "[ab/]{0,20}") {
            if let Ok(glob) = Glob::new(&pattern) {
                glob.matches(&text);
            }
        }
    }
}
