//! What a case is: an attack, what stops it, and what it would mean if nothing did.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;

use crate::protection::Protection;
use crate::world::World;

/// What an attack is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// System calls and what the kernel shows of itself.
    Kernel,
    /// Files of the host, mounts and devices.
    Filesystem,
    /// What can be reached over the network.
    Network,
    /// What all share: memory, processes, tables of the kernel.
    Resources,
    /// Other sandboxes and the host's processes.
    Neighbours,
    /// What makes and commands sandboxes.
    Control,
    /// Images and archives made to be unpacked.
    Images,
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Filesystem => "filesystem",
            Self::Network => "network",
            Self::Resources => "resources",
            Self::Neighbours => "neighbours",
            Self::Control => "control",
            Self::Images => "images",
        }
    }
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The attack was stopped in the way it must be.
    Held,
    /// It reached what it must not.
    GotThrough(String),
    /// It failed for another reason than the protection, or was not made: that shows nothing.
    Unclear(String),
    /// This machine lacks what the case needs.
    NotRun(String),
}

impl Verdict {
    pub(crate) fn of(holds: bool, why: impl FnOnce() -> String) -> Self {
        if holds {
            Self::Held
        } else {
            Self::GotThrough(why())
        }
    }

    /// The worse of two.
    pub(crate) fn and(self, other: Self) -> Self {
        let badness = |verdict: &Self| match verdict {
            Self::Held => 0,
            Self::NotRun(_) => 1,
            Self::Unclear(_) => 2,
            Self::GotThrough(_) => 3,
        };
        if badness(&other) > badness(&self) {
            other
        } else {
            self
        }
    }
}

pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// How a case is run.
#[derive(Clone, Copy)]
pub(crate) enum Scene {
    /// The attack of this name alone, in a sandbox as everybody gets it.
    Plain,
    /// The same, told of a file of the host.
    WithMarker,
    /// With others, or looked at from outside.
    Staged(for<'a> fn(&'a World) -> Running<'a>),
}

/// One attack.
pub(crate) struct Case {
    /// Names it for ever, with the class before it.
    pub(crate) name: &'static str,
    /// What is tried.
    pub(crate) attack: &'static str,
    /// Each would stop it by itself.
    pub(crate) protections: &'static [Protection],
    /// What it would mean if it got through.
    pub(crate) consequence: &'static str,
    pub(crate) scene: Scene,
}

/// A row of the tables in `cases`.
pub(crate) const fn plain(
    name: &'static str,
    attack: &'static str,
    protections: &'static [Protection],
    consequence: &'static str,
) -> Case {
    Case {
        name,
        attack,
        protections,
        consequence,
        scene: Scene::Plain,
    }
}

impl Case {
    /// The same with another scene.
    pub(crate) const fn staged(self, scene: for<'a> fn(&'a World) -> Running<'a>) -> Self {
        Self {
            scene: Scene::Staged(scene),
            ..self
        }
    }

    /// The same, told of a file of the host.
    pub(crate) const fn with_marker(self) -> Self {
        Self {
            scene: Scene::WithMarker,
            ..self
        }
    }
}
