//! A virtual environment in the image `host`, so that `python` is there and `pip install` works.
//!
//! Distributions mark their own Python as managed by the package manager, and pip refuses to write into it
//! (PEP 668). In a virtual environment it does not, so the tree has one, made of the machine's own interpreter
//! without running it: PEP 405 needs a `pyvenv.cfg` and a link. What the machine has installed can be imported in
//! it; what pip installs stays in the sandbox. No pip is brought along: where the machine has none, there is none.

use std::path::Path;

use super::{Builder, Error};

/// Where it is. Before everything else on `PATH`.
pub(super) const VENV: &str = "/opt/venv";

const INTERPRETER: &str = "usr/bin/python3";

/// Where distributions keep pip, below `/usr`: Debian's directory, and that of one version elsewhere.
const SITES: [&str; 2] = ["lib/python3/dist-packages", "lib"];

impl Builder {
    /// Makes the environment, where the machine has an interpreter.
    pub(super) fn python(&mut self) -> Result<(), Error> {
        if !self.machine.join(INTERPRETER).exists() {
            return Ok(());
        }
        let venv = Path::new(VENV.trim_start_matches('/'));
        let bin = venv.join("bin");
        self.directory(venv, 0o755)?;
        self.directory(&bin, 0o755)?;
        let settings = "home = /usr/bin\ninclude-system-site-packages = true\n";
        self.file(&venv.join("pyvenv.cfg"), settings.as_bytes(), 0o644)?;
        self.link(&bin.join("python3"), &Path::new("/").join(INTERPRETER))?;
        self.link(&bin.join("python"), Path::new("python3"))?;
        if self.has_pip() {
            let script = format!(
                "#!{VENV}/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
            );
            for name in ["pip", "pip3"] {
                self.file(&bin.join(name), script.as_bytes(), 0o755)?;
            }
        }
        Ok(())
    }

    fn has_pip(&self) -> bool {
        let usr = self.machine.join("usr");
        let [debian, versions] = SITES.map(|site| usr.join(site));
        let of_version = || {
            let found = super::disk::children(&versions).unwrap_or_default();
            found
                .iter()
                .any(|path| path.join("site-packages/pip").is_dir())
        };
        debian.join("pip").is_dir() || of_version()
    }
}
