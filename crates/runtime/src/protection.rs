//! Which protections of sandboxes are in force: all of them.
//!
//! Only a build with the feature `unprotected` can do without, so that a test can show that the escape suite
//! notices. Such a build takes away what `OSB_WITHOUT` names, separated by commas. No release has the feature.

#[cfg(all(feature = "unprotected", not(debug_assertions)))]
compile_error!(
    "the feature `unprotected` takes protections of sandboxes away; it is for tests, never for a release"
);

/// What a build for tests can take away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    Seccomp,
    Capabilities,
    NoNewPrivileges,
    Landlock,
    ProcMasks,
    SysctlReadOnly,
    SysParts,
    DevReadOnly,
    TerminalLimit,
    SharedMemoryLimit,
    MemoryLimit,
    ProcessLimit,
    ProcessorLimit,
    OpenFilesLimit,
    CoreLimit,
    SocketCount,
    OomScore,
    Firewall,
    NoArp,
    OwnInodes,
    HostMasks,
    VolumeReadOnly,
    VolumeNoDevices,
    VolumeOwners,
    VolumePaths,
    DefaultLimits,
}

#[cfg(not(feature = "unprotected"))]
impl Protection {
    /// Whether it is in force.
    pub(crate) const fn is_on(self) -> bool {
        true
    }
}

/// Names what is taken away.
#[cfg(feature = "unprotected")]
const VARIABLE: &str = "OSB_WITHOUT";

#[cfg(feature = "unprotected")]
impl Protection {
    /// Whether it is in force.
    pub(crate) fn is_on(self) -> bool {
        let without = std::env::var(VARIABLE).unwrap_or_default();
        !without.split(',').any(|name| name == self.name())
    }

    /// In words with hyphens.
    fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }
}

/// What the spawner, which starts with an empty environment, must know.
pub(crate) fn environment() -> Option<(&'static str, String)> {
    #[cfg(feature = "unprotected")]
    return std::env::var(VARIABLE)
        .ok()
        .map(|without| (VARIABLE, without));
    #[cfg(not(feature = "unprotected"))]
    None
}
