//! From the path a client wrote to the path the kernel is asked for.
//!
//! `~` and `$NAME` are expanded, relative paths start at the daemon's working directory, and `..`
//! means what the kernel means by it: the parent of the directory that is really there, so
//! `link/..` is the parent of the link's target. Deliberately no confinement: the whole filesystem
//! a daemon sees is the sandbox's own.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use super::error::{Error, Result};
use crate::path::{Environment, expand};

/// The absolute path a client means by `raw`. `home` stands for `~` instead of `$HOME` when given.
pub(super) fn resolve(
    raw: &OsStr,
    environment: &Environment,
    home: Option<&Path>,
) -> Result<PathBuf> {
    let bad = |why: String| Error::BadPath {
        path: raw.to_string_lossy().replace('\0', "\\0"),
        why,
    };
    if raw.is_empty() {
        return Err(bad("it is empty".into()));
    }
    if raw.as_bytes().contains(&0) {
        return Err(bad("it contains a NUL byte".into()));
    }
    let expanded = match (raw.to_str(), home) {
        // Expansion is a matter of text; a name that is none is taken as it is, and so is a name
        // that a listing returned: it must be usable as it stands, dollar signs included.
        (None, _) => PathBuf::from(raw),
        (Some(text), _)
            if text.contains('$')
                && text.starts_with('/')
                && fs::symlink_metadata(text).is_ok() =>
        {
            PathBuf::from(raw)
        }
        (Some("~"), Some(home)) => home.to_path_buf(),
        (Some(text), Some(home)) if text.starts_with("~/") => home.join(
            expand(&format!(".{}", &text[1..]), environment).map_err(|e| bad(e.to_string()))?,
        ),
        (Some(text), _) => expand(text, environment).map_err(|e| bad(e.to_string()))?,
    };
    let absolute = if expanded.is_absolute() {
        expanded
    } else {
        let here = std::env::current_dir()
            .map_err(|e| Error::io("finding the working directory of", &expanded, e))?;
        here.join(expanded)
    };
    Ok(as_listed(without_parents(&absolute)?))
}

/// The file that a listing showed under this path. JSON has no way to say bytes that are not UTF-8, so a listing
/// has U+FFFD in their place, and the published clients ask for what was listed: a name that is not there, and
/// that exactly one entry of its directory is shown as, means that entry.
fn as_listed(path: PathBuf) -> PathBuf {
    let is_shown = |part: &OsStr| part.to_str().is_some_and(|it| it.contains('\u{FFFD}'));
    if !path.iter().any(is_shown) || fs::symlink_metadata(&path).is_ok() {
        return path;
    }
    let mut found = PathBuf::new();
    for part in path.iter() {
        let next = found.join(part);
        let is_missing = is_shown(part) && fs::symlink_metadata(&next).is_err();
        found = if is_missing {
            shown_as(&found, part).unwrap_or(next)
        } else {
            next
        };
    }
    found
}

/// The one entry of a directory that is shown as `name`.
fn shown_as(directory: &Path, name: &OsStr) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let mut alike = entries.filter(|entry| *entry.file_name().to_string_lossy() == *name);
    let found = alike.next()?;
    alike.next().is_none().then(|| found.path())
}

/// Drops `.` and doubled slashes; resolves everything up to the last `..` as the kernel would.
fn without_parents(path: &Path) -> Result<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else {
        return Ok(parts.iter().collect());
    };
    let prefix: PathBuf = parts[..=last].iter().collect();
    let real = fs::canonicalize(&prefix).map_err(|e| Error::io("resolving", &prefix, e))?;
    Ok(real.join(parts[last + 1..].iter().collect::<PathBuf>()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn check_at(raw: impl AsRef<OsStr>, home: Option<&str>) -> Result<PathBuf> {
        let mut environment = Environment::default();
        environment.set("HOME", "/home/me");
        environment.set("WHERE", "/data");
        resolve(raw.as_ref(), &environment, home.map(Path::new))
    }

    fn check(raw: impl AsRef<OsStr>) -> Result<PathBuf> {
        check_at(raw, None)
    }

    #[test]
    fn expands_home_and_variables() {
        assert_eq!(check("~/a").unwrap(), Path::new("/home/me/a"));
        assert_eq!(
            check_at("~/a", Some("/home/other")).unwrap(),
            Path::new("/home/other/a")
        );
        assert_eq!(
            check_at("~", Some("/home/other")).unwrap(),
            Path::new("/home/other")
        );
        assert_eq!(check("/~/a~").unwrap(), Path::new("/~/a~"));
        assert_eq!(check("$WHERE/x").unwrap(), Path::new("/data/x"));
        assert_eq!(check("/cost$5/a$").unwrap(), Path::new("/cost$5/a$"));
        assert!(
            check("$NOWHERE/x")
                .unwrap_err()
                .to_string()
                .contains("NOWHERE, which is not set")
        );
        assert_eq!(
            check("some").unwrap(),
            std::env::current_dir().unwrap().join("some")
        );
        let odd = OsStr::from_bytes(b"/a/$WHERE\xff");
        assert_eq!(check(odd).unwrap(), Path::new(odd));
    }

    #[test]
    fn a_name_that_is_not_utf8_is_found_by_what_a_listing_shows() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| directory.path().join(OsStr::from_bytes(name));
        fs::create_dir(at(b"d\xff")).unwrap();
        fs::write(at(b"d\xff/a\xfe.txt"), "").unwrap();
        let shown = at("d\u{FFFD}/a\u{FFFD}.txt".as_bytes());
        assert_eq!(check(&shown).unwrap(), at(b"d\xff/a\xfe.txt"));
        // What two entries are shown as means neither.
        fs::write(at(b"d\xff/a\xfd.txt"), "").unwrap();
        let ambiguous = at("d\u{FFFD}/a\u{FFFD}.txt".as_bytes());
        let expected = at(b"d\xff").join("a\u{FFFD}.txt");
        assert_eq!(check(&ambiguous).unwrap(), expected);
        // A name that really has the character is itself.
        fs::write(at("x\u{FFFD}".as_bytes()), "").unwrap();
        fs::write(at(b"x\xff"), "").unwrap();
        let itself = at("x\u{FFFD}".as_bytes());
        assert_eq!(check(&itself).unwrap(), itself);
    }

    #[test]
    fn a_name_with_a_dollar_that_exists_is_taken_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("$NOWHERE.txt");
        fs::write(&file, "").unwrap();
        assert_eq!(check(&file).unwrap(), file);
    }

    #[test]
    fn parents_are_those_of_the_real_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("deep/inner")).unwrap();
        symlink(root.join("deep/inner"), root.join("link")).unwrap();
        assert_eq!(check(root.join("link/../x")).unwrap(), root.join("deep/x"));
        assert_eq!(check("/..//./etc").unwrap(), Path::new("/etc"));
        assert!(matches!(
            check(root.join("none/../x")),
            Err(Error::NotFound(_))
        ));
    }

    #[test]
    fn refuses_what_no_kernel_takes() {
        assert!(check("").unwrap_err().to_string().contains("empty"));
        assert!(check("/a\0b").unwrap_err().to_string().contains("NUL"));
    }
}
