//! Names of platforms. The protocol, registries and engines call processors as Go does: `amd64`,
//! not `x86_64`.

/// The operating system of every sandbox that runs on this machine.
pub const OS: &str = "linux";

/// Go's name (`GOARCH`) for a processor, given Rust's (`env::consts::ARCH`); the same where the two
/// agree, as on `riscv64`.
pub fn go_arch(rust_name: &str) -> &str {
    match rust_name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        // Rust tells byte orders apart by `target_endian`; Linux distributions are little-endian.
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_the_names_that_registries_use() {
        let names = ["x86_64", "aarch64", "x86", "powerpc64", "s390x", "riscv64"].map(go_arch);
        assert_eq!(
            names,
            ["amd64", "arm64", "386", "ppc64le", "s390x", "riscv64"]
        );
    }
}
