//! What is compatible. A request: we take all that the protocol allows and demand no more. An
//! answer: it has all that the protocol promises, in the form it promises.

use std::collections::BTreeSet;

use crate::model::{Member, Model, Type};

/// Which way a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Request,
    Answer,
}

/// What was compared and what does not fit.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) operations: usize,
    pub(crate) parameters: usize,
    pub(crate) bodies: usize,
    pub(crate) fields: usize,
    /// Place and problem.
    pub(crate) mismatches: Vec<(String, String)>,
    /// Pairs of schemas that were compared already, and which way.
    seen: BTreeSet<(String, String, Way)>,
}

impl Comparison {
    pub(crate) fn run(theirs: &Model, ours: &Model) -> Self {
        let mut comparison = Self::default();
        let known = ours.operations();
        for operation in theirs.operations() {
            comparison.operations += 1;
            if !known.contains(operation) {
                comparison.fail(operation.to_owned(), "we have no such operation");
            }
        }
        let has_operation = |operation: &str| known.contains(operation);
        comparison.parameters(theirs, ours, has_operation);
        comparison.bodies(theirs, ours, has_operation);
        comparison.answers(theirs, ours, has_operation);
        comparison
    }

    fn parameters(&mut self, theirs: &Model, ours: &Model, has: impl Fn(&str) -> bool) {
        for (key, member) in theirs.parameters.iter().filter(|(key, _)| has(&key.0)) {
            self.parameters += 1;
            let place = format!("param {} {} {}", key.0, key.1, key.2);
            match ours.parameters.get(key) {
                Some(our) => self.member(theirs, ours, &place, member, our, Way::Request),
                None => self.fail(place, "we have no such parameter"),
            }
        }
        let operations = theirs.operations();
        let ours_too = ours
            .parameters
            .iter()
            .filter(|(key, _)| operations.contains(&*key.0));
        for (key, _) in ours_too.filter(|(_, member)| member.is_required) {
            if !theirs.parameters.contains_key(key) {
                let place = format!("param {} {} {}", key.0, key.1, key.2);
                self.fail(
                    place,
                    "we demand a parameter that the protocol does not know",
                );
            }
        }
    }

    fn bodies(&mut self, theirs: &Model, ours: &Model, has: impl Fn(&str) -> bool) {
        for (key, member) in theirs.bodies.iter().filter(|(key, _)| has(&key.0)) {
            self.bodies += 1;
            let place = format!("body {} {}", key.0, key.1);
            match ours.bodies.get(key) {
                Some(our) => self.member(theirs, ours, &place, member, our, Way::Request),
                None => self.fail(place, "we take no such body"),
            }
        }
        for (key, member) in ours.bodies.iter().filter(|(_, member)| member.is_required) {
            let is_new = !theirs
                .bodies
                .keys()
                .any(|(operation, _)| *operation == key.0);
            if is_new && theirs.operations().contains(&*key.0) && member.is_required {
                let place = format!("body {} {}", key.0, key.1);
                self.fail(place, "we demand a body where the protocol has none");
            }
        }
    }

    fn answers(&mut self, theirs: &Model, ours: &Model, has: impl Fn(&str) -> bool) {
        for ((operation, status, media), kind) in &theirs.answers {
            if !has(operation) {
                continue;
            }
            self.bodies += 1;
            let place = format!("answer {operation} {status} {media}");
            let key = (operation.clone(), status.clone(), media.clone());
            let has_status = ours
                .answers
                .keys()
                .any(|(op, code, _)| op == operation && code == status);
            match ours.answers.get(&key) {
                Some(our) => self.kind(theirs, ours, &place, kind, our, Way::Answer),
                None if !has_status => self.fail(place, "we never answer so"),
                // Where the protocol says nothing of a body, any body or none will do.
                None if *kind == Type::Any => {}
                None => self.fail(place, "we answer so, but with another media type"),
            }
        }
        for key in theirs.headers.iter().filter(|key| has(&key.0)) {
            self.parameters += 1;
            if !ours.headers.contains(key) {
                let place = format!("header {} {} {}", key.0, key.1, key.2);
                self.fail(place, "our answer has no such header");
            }
        }
    }

    fn member(
        &mut self,
        theirs: &Model,
        ours: &Model,
        place: &str,
        their: &Member,
        our: &Member,
        way: Way,
    ) {
        match way {
            Way::Request if our.is_required && !their.is_required => {
                self.fail(place.to_owned(), "we demand it, the protocol does not");
            }
            Way::Answer if their.is_required && !our.is_required => {
                self.fail(place.to_owned(), "the protocol promises it, we do not");
            }
            _ => {}
        }
        self.kind(theirs, ours, place, &their.kind, &our.kind, way);
    }

    fn kind(
        &mut self,
        theirs: &Model,
        ours: &Model,
        place: &str,
        their: &Type,
        our: &Type,
        way: Way,
    ) {
        let differs = match (their, our) {
            (Type::Any, _) => false,
            (_, Type::Any) => way == Way::Answer,
            (Type::Text(their), Type::Text(our)) => {
                !is_choice_compatible(their.as_ref(), our.as_ref(), way)
            }
            (Type::List(their), Type::List(our)) | (Type::Map(their), Type::Map(our)) => {
                return self.kind(theirs, ours, place, their, our, way);
            }
            (Type::Named(their), Type::Named(our)) => {
                return self.schemas(theirs, ours, their, our, way);
            }
            (Type::Integer, Type::Number) => way == Way::Answer,
            (Type::Number, Type::Integer) => way == Way::Request,
            (their, our) => their != our,
        };
        if differs {
            self.fail(
                place.to_owned(),
                &format!("the protocol has {their:?}, we have {our:?}"),
            );
        }
    }

    fn schemas(&mut self, theirs: &Model, ours: &Model, their: &str, our: &str, way: Way) {
        if !self.seen.insert((their.to_owned(), our.to_owned(), way)) {
            return;
        }
        let empty = std::collections::BTreeMap::new();
        let their_fields = theirs.fields.get(their).unwrap_or(&empty);
        let our_fields = ours.fields.get(our).unwrap_or(&empty);
        let direction = if way == Way::Request {
            "request"
        } else {
            "answer"
        };
        for (name, member) in their_fields {
            self.fields += 1;
            let place = format!("{direction} {their}.{name}");
            match our_fields.get(name) {
                Some(our) => self.member(theirs, ours, &place, member, our, way),
                None => self.fail(place, "we have no such field"),
            }
        }
        if way == Way::Request {
            let demanded = our_fields.iter().filter(|(_, member)| member.is_required);
            for (name, _) in demanded.filter(|(name, _)| !their_fields.contains_key(*name)) {
                let place = format!("{direction} {their}.{name}");
                self.fail(place, "we demand a field that the protocol does not know");
            }
        }
    }

    fn fail(&mut self, place: String, problem: &str) {
        self.mismatches.push((place, problem.to_owned()));
    }
}

/// A request may hold any text that the protocol allows; an answer only such.
fn is_choice_compatible(
    their: Option<&BTreeSet<String>>,
    our: Option<&BTreeSet<String>>,
    way: Way,
) -> bool {
    match (their, our, way) {
        (_, None, Way::Request) | (None, _, Way::Answer) => true,
        (None, Some(_), Way::Request) | (Some(_), None, Way::Answer) => false,
        (Some(their), Some(our), Way::Request) => their.is_subset(our),
        (Some(their), Some(our), Way::Answer) => our.is_subset(their),
    }
}
