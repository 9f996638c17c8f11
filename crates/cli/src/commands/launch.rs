//! What `osb run` asks for: the sandbox as `osb sandbox create` would say it, and the command in
//! it, for which the image's own may have to be known.

use api::image_reference::ImageReference;
use api::inventory::{Image, PullImageRequest};
use api::network_policy::{NetworkPolicy, NetworkRule, PolicyAction};
use api::query::ListSnapshotsQuery;
use api::sandbox::{ImageSpec, PlatformSpec};
use opensandbox::Sandbox;
use runtime::image::HOST;

use super::inventory::{self, parse_platform};
use crate::app::App;
use crate::args::Pair;
use crate::args::docker::{Network, User, Variable, env_file};
use crate::args::run::Run;
use crate::args::sandbox::Create;
use crate::error::Error;
use crate::terminal;

/// What is to run in the sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// This.
    Words(Vec<String>),
    /// A shell, at the terminal.
    Shell,
    /// What the image's own command makes of these.
    OfImage,
}

/// The image's own command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    entrypoint: Vec<String>,
    cmd: Vec<String>,
}

/// `osb run` with its words taken apart: the image, and the command behind it.
pub(super) fn normal(args: &Run) -> Run {
    let mut args = args.clone();
    let mut words = std::mem::take(&mut args.words).into_iter();
    if args.snapshot.is_none() {
        args.image = words.next();
    }
    let mut rest: Vec<String> = words.collect();
    if rest.first().is_some_and(|word| word == "--") {
        rest.remove(0);
        args.command = rest;
    } else {
        args.arguments = rest;
    }
    args
}

/// Refuses what does not go together, with what to do instead.
pub(super) fn check(args: &Run) -> Result<(), Error> {
    if args.detach && (args.interactive || args.tty) {
        return Err(Error::Usage(
            "-d leaves nobody at the terminal: osb run -d IMAGE, then osb exec -it SANDBOX sh"
                .to_owned(),
        ));
    }
    if args.detach && args.user.is_some() {
        return Err(Error::Usage(
            "-d runs the image's own user: osb run -d IMAGE, then osb exec -d -u USER SANDBOX …"
                .to_owned(),
        ));
    }
    check_user(args.user.is_some(), args.tty)
}

/// Refuses a user at a terminal.
pub(super) fn check_user(has_user: bool, has_terminal: bool) -> Result<(), Error> {
    if has_user && has_terminal {
        return Err(Error::Usage(
            "at a terminal the image's own user is there: leave out -u and run su, or leave out -t"
                .to_owned(),
        ));
    }
    Ok(())
}

/// What is to run, as far as it is known without asking.
pub(super) fn program(args: &Run) -> Program {
    if !args.command.is_empty() || args.entrypoint.is_some() {
        let words = words(args, &Own::default());
        if !words.is_empty() {
            return Program::Words(words);
        }
    }
    let is_bare = args.arguments.is_empty();
    let is_at_terminal = terminal::is_interactive() && !args.detach;
    match args.image.as_deref() {
        _ if is_bare && is_at_terminal && !args.tty => Program::Shell,
        // Neither has a command of its own.
        None | Some(HOST) if is_bare && args.tty => Program::Shell,
        None | Some(HOST) => Program::Words(args.arguments.clone()),
        Some(_) => Program::OfImage,
    }
}

/// The words of the command, as Docker puts them together.
pub(super) fn words(args: &Run, own: &Own) -> Vec<String> {
    if !args.command.is_empty() {
        let program = args.entrypoint.iter().filter(|program| !program.is_empty());
        return program.chain(&args.command).cloned().collect();
    }
    let entrypoint = match &args.entrypoint {
        Some(program) if program.is_empty() => Vec::new(),
        Some(program) => vec![program.clone()],
        None => own.entrypoint.clone(),
    };
    let arguments = match args.arguments.is_empty() && args.entrypoint.is_none() {
        true => own.cmd.clone(),
        false => args.arguments.clone(),
    };
    entrypoint.into_iter().chain(arguments).collect()
}

/// The image's own command; nothing where the image is not here, or the server does not tell.
pub(super) async fn own_command(app: &App, image: &str) -> Result<Option<Own>, Error> {
    let images = match app.client()?.images().list().await {
        Ok(images) => images.items,
        // Another server, or a key that may not ask.
        Err(error) if error.status().is_some() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = images.into_iter().find(|one| is_called(one, image));
    Ok(found.map(|image| Own {
        entrypoint: image.entrypoint.unwrap_or_default(),
        cmd: image.cmd.unwrap_or_default(),
    }))
}

fn is_called(image: &Image, name: &str) -> bool {
    let Ok(wanted) = name.parse::<ImageReference>() else {
        return false;
    };
    let wanted = wanted.with_default_tag();
    let (full, short) = (wanted.to_string(), format!("/{}", wanted.familiar()));
    let is_it = |known: &String| *known == full || known.ends_with(&short);
    image.references.iter().any(is_it)
}

/// Brings the image here, where that is asked for.
pub(super) async fn pull(app: &App, args: &Run) -> Result<(), Error> {
    let Some(image) = &args.image else {
        return Ok(());
    };
    let platform = args.platform.as_deref().map(parse_platform).transpose()?;
    let request = PullImageRequest {
        image: ImageSpec {
            uri: image.clone(),
            auth: None,
        },
        platform: platform.map(|(os, arch)| PlatformSpec { os, arch }),
    };
    inventory::pull(&app.client()?.images(), &request).await?;
    Ok(())
}

/// The sandbox, as `osb sandbox create` would say it.
pub(super) async fn create(app: &App, args: &Run) -> Result<Create, Error> {
    let mut resource = args.resource.clone();
    for (key, amount) in [("cpu", &args.cpus), ("memory", &args.memory)] {
        if let Some(amount) = amount {
            resource.retain(|pair| pair.key != key);
            resource.push(pair(key, amount));
        }
    }
    if !resource.is_empty() {
        // What nothing was said about stays what it is without any limit named.
        for (key, amount) in [("cpu", "1"), ("memory", "2Gi")] {
            if !resource.iter().any(|pair| pair.key == key) {
                resource.push(pair(key, amount));
            }
        }
    }
    let mounts = args.volume.iter().chain(&args.mount);
    let mounts = mounts.zip(1..).map(|(mount, number)| mount.volume(number));
    let is_endless = args.detach && app.config()?.default_timeout.is_none();
    let endless = is_endless.then(|| "none".to_owned());
    let snapshot_id = match &args.snapshot {
        Some(text) => Some(snapshot(app, text).await?),
        None => None,
    };
    Ok(Create {
        image: args.image.clone(),
        snapshot_id,
        timeout: args.timeout.clone().or(endless),
        env: variables(&args.env, &args.env_file)?,
        metadata: args.label.clone(),
        name: args.name.clone(),
        resource,
        network_policy_file: args.network_policy_file.clone(),
        volumes_file: args.volumes_file.clone(),
        mounts: mounts.collect(),
        network_policy: network_policy(args),
        platform: args.platform.as_deref().map(parse_platform).transpose()?,
        ..Create::default()
    })
}

/// What the flags say that the sandbox may reach; `None` where they say nothing.
fn network_policy(args: &Run) -> Option<NetworkPolicy> {
    let has_rules = !args.allow.is_empty() || !args.allow_preset.is_empty();
    let allow = |target: &String| NetworkRule::new(PolicyAction::Allow, target);
    (has_rules || args.network == Some(Network::None)).then(|| NetworkPolicy {
        egress: args.allow.iter().map(allow).collect(),
        presets: args.allow_preset.clone(),
        ..NetworkPolicy::deny_all()
    })
}

fn pair(key: &str, value: &str) -> Pair {
    Pair {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// Variables of files, then those of the command line, which win.
pub(super) fn variables(
    given: &[Variable],
    files: &[std::path::PathBuf],
) -> Result<Vec<Pair>, Error> {
    let mut all = Vec::new();
    for path in files {
        let found = env_file(path).map_err(|message| Error::Content {
            path: path.display().to_string(),
            message,
        })?;
        all.extend(found);
    }
    all.extend(given.iter().cloned());
    Ok(all.iter().filter_map(Variable::pair).collect())
}

/// The id of a snapshot, by that or by its name.
async fn snapshot(app: &App, text: &str) -> Result<String, Error> {
    let query = ListSnapshotsQuery {
        name: Some(text.to_owned()),
        ..ListSnapshotsQuery::default()
    };
    let named = app.client()?.list_snapshots(&query).await?.items;
    match named.as_slice() {
        [] => Ok(text.to_owned()),
        [one] => Ok(one.id.to_string()),
        several => Err(Error::Failed {
            message: format!("{} snapshots have the name {text}", several.len()),
            next: Some(format!(
                "name it by its id: osb snapshot list --name {text}"
            )),
        }),
    }
}

/// The numbers of a user and its group; names are looked up in the sandbox, as Docker does.
pub(super) async fn identity(sandbox: &Sandbox, user: &User) -> Result<(u32, u32), Error> {
    let file = async |path: &str| match sandbox.files().read_text(path).await {
        Err(error) if error.is_not_found() => Ok(String::new()),
        other => other,
    };
    let accounts = file("/etc/passwd").await?;
    let account = field_of(&accounts, &user.user);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let uid = number(Some(&user.user))
        .or_else(|| number(account.as_ref()?.get(2).copied()))
        .ok_or_else(|| unknown("user", &user.user, "/etc/passwd"))?;
    let gid = match &user.group {
        None => number(account.as_ref().and_then(|fields| fields.get(3).copied())).unwrap_or(0),
        Some(group) => match number(Some(group)) {
            Some(gid) => gid,
            None => {
                let groups = file("/etc/group").await?;
                let fields = field_of(&groups, group);
                number(fields.and_then(|fields| fields.get(2).copied()))
                    .ok_or_else(|| unknown("group", group, "/etc/group"))?
            }
        },
    };
    Ok((uid, gid))
}

/// The fields of the line of a file such as `/etc/passwd` that has this name or number.
fn field_of<'a>(file: &'a str, wanted: &str) -> Option<Vec<&'a str>> {
    let mut lines = file.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.first() == Some(&wanted) || fields.get(2) == Some(&wanted))
}

fn unknown(what: &str, name: &str, file: &str) -> Error {
    Error::Failed {
        message: format!("there is no {what} {name} in the sandbox"),
        next: Some(format!("{file} has those there are; or write its number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::args::{Cli, Command};

    fn run(line: &str) -> Run {
        let words = std::iter::once("osb").chain(line.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Run(args) => normal(&args),
            _ => unreachable!(),
        }
    }

    fn own(entrypoint: &[&str], cmd: &[&str]) -> Own {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Own {
            entrypoint: owned(entrypoint),
            cmd: owned(cmd),
        }
    }

    #[track_caller]
    fn check(line: &str, own: &Own, expected: &str) {
        assert_eq!(words(&run(line), own).join(" "), expected, "{line}");
    }

    #[test]
    fn commands_are_put_together_as_docker_does() {
        let git = own(&["git"], &["--help"]);
        check("run alpine/git", &git, "git --help");
        check("run alpine/git status -s", &git, "git status -s");
        check("run alpine/git -- ls", &git, "ls");
        check("run --entrypoint sh alpine/git -c ls", &git, "sh -c ls");
        check("run --entrypoint sh alpine/git", &git, "sh");
        check("run debian ls -la /", &own(&[], &["bash"]), "ls -la /");
        check("run --snapshot s ls -l", &Own::default(), "ls -l");
        check("run -i debian sh -c x -- y", &own(&[], &[]), "sh -c x -- y");
    }

    #[test]
    fn what_needs_no_answer_is_not_asked_for() {
        let words = |line: &str| match program(&run(line)) {
            Program::Words(words) => words.join(" "),
            other => format!("{other:?}"),
        };
        assert_eq!(words("run host -- echo hello"), "echo hello");
        assert_eq!(words("run host echo hello"), "echo hello");
        assert_eq!(words("run debian -- echo hello"), "echo hello");
        assert_eq!(words("run debian echo hello"), "OfImage");
        assert_eq!(words("run -d debian"), "OfImage");
        assert_eq!(words("run --entrypoint sh debian -c x"), "sh -c x");
    }

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let file = "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/false\n";
        assert_eq!(field_of(file, "web").unwrap()[3], "34");
        assert_eq!(field_of(file, "33").unwrap()[0], "web");
        assert!(field_of(file, "x").is_none());
    }
}
