//! Mounting host directories and named volumes.

use std::os::unix::fs::symlink;

use super::world::{Failure, World, ensure};
use super::{Case, case};
use crate::backend::{Error, Spec, Volume, VolumeSource};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_host_directory_is_shared_both_ways, [Shell, HostVolumes]),
        case!(a_read_only_mount_cannot_be_written, [Shell, HostVolumes]),
        case!(a_sub_path_shows_only_itself, [Shell, HostVolumes]),
        case!(a_sub_path_that_leads_out_is_refused, [HostVolumes, Shell]),
        case!(
            a_path_that_leads_out_of_the_allowed_root_is_refused,
            [HostVolumes, Shell]
        ),
        case!(
            a_named_volume_is_shared_and_outlives_its_sandboxes,
            [Shell, NamedVolumes]
        ),
        case!(
            a_named_volume_that_must_exist_and_does_not_is_refused,
            [NamedVolumes]
        ),
        case!(
            a_named_volume_goes_with_the_sandbox_that_made_it,
            [Shell, NamedVolumes]
        ),
        case!(
            a_named_volume_somebody_else_made_stays,
            [Shell, NamedVolumes]
        ),
        case!(
            a_link_planted_in_a_volume_leads_nowhere,
            [Shell, NamedVolumes]
        ),
        case!(
            two_volumes_in_one_sandbox,
            [Shell, HostVolumes, NamedVolumes]
        ),
    ]
}

fn named(claim: &str, create: bool, delete_with_sandbox: bool) -> Volume {
    let claim = claim.to_owned();
    Volume {
        name: "named".to_owned(),
        source: VolumeSource::Named {
            claim,
            create,
            delete_with_sandbox,
            size_bytes: None,
        },
        mount_path: "/mnt/named".to_owned(),
        read_only: false,
        sub_path: None,
    }
}

fn with(world: &World, volume: Volume) -> Spec {
    Spec {
        volumes: vec![volume],
        ..world.spec()
    }
}

fn claim() -> String {
    format!("conf-{}", uuid::Uuid::new_v4().simple())
}

/// The creation must be refused as invalid and leave nothing.
async fn refused(world: &World, spec: Spec, what: &str) -> Result<(), Failure> {
    let made = world.note(&spec);
    let created = world.backend().create(spec).await;
    ensure!(
        matches!(created, Err(Error::Invalid { .. })),
        "{what}: {created:?}"
    );
    world.delete(&made.id).await
}

async fn a_host_directory_is_shared_both_ways(world: &World) -> Result<(), Failure> {
    let directory = world.directory()?;
    std::fs::write(directory.join("in"), "from outside")?;
    let made = world
        .create(with(world, world.host_volume(&directory, false)))
        .await?;
    let seen = world
        .output(
            &made,
            "cat /mnt/volume/in; echo from inside > /mnt/volume/out",
        )
        .await?;
    ensure!(seen.trim_end() == "from outside", "{seen:?}");
    let out = std::fs::read_to_string(directory.join("out"))?;
    ensure!(out == "from inside\n", "{out:?}");
    world.delete(&made.id).await?;
    ensure!(
        directory.join("out").exists(),
        "deletion emptied the host's directory"
    );
    Ok(())
}

async fn a_read_only_mount_cannot_be_written(world: &World) -> Result<(), Failure> {
    let directory = world.directory()?;
    std::fs::write(directory.join("in"), "from outside")?;
    let made = world
        .create(with(world, world.host_volume(&directory, true)))
        .await?;
    let tries = "cat /mnt/volume/in; echo x > /mnt/volume/out; echo x >> /mnt/volume/in; \
                 rm /mnt/volume/in; mount -o remount,rw /mnt/volume; echo x > /mnt/volume/out; :";
    let output = world.exec(&made, tries).await?;
    ensure!(output.stdout.trim_end() == "from outside", "{output:?}");
    let content = std::fs::read_to_string(directory.join("in"))?;
    ensure!(content == "from outside", "it was changed to {content:?}");
    ensure!(!directory.join("out").exists(), "a file was made");
    Ok(())
}

async fn a_sub_path_shows_only_itself(world: &World) -> Result<(), Failure> {
    let directory = world.directory()?;
    std::fs::create_dir_all(directory.join("a/b"))?;
    std::fs::write(directory.join("a/b/file"), "deep")?;
    let mut volume = world.host_volume(&directory, true);
    volume.sub_path = Some("a/b".to_owned());
    let made = world.create(with(world, volume)).await?;
    let seen = world
        .output(&made, "ls /mnt/volume; cat /mnt/volume/file")
        .await?;
    ensure!(seen.trim_end() == "file\ndeep", "{seen:?}");
    Ok(())
}

async fn a_sub_path_that_leads_out_is_refused(world: &World) -> Result<(), Failure> {
    let directory = world.directory()?;
    symlink("/etc", directory.join("absolute"))?;
    symlink("../../../../../../etc", directory.join("relative"))?;
    for sub_path in ["absolute", "relative", "../..", "absolute/../../etc"] {
        let mut volume = world.host_volume(&directory, true);
        volume.sub_path = Some(sub_path.to_owned());
        refused(world, with(world, volume), sub_path).await?;
    }
    Ok(())
}

async fn a_path_that_leads_out_of_the_allowed_root_is_refused(
    world: &World,
) -> Result<(), Failure> {
    let directory = world.directory()?;
    let link = directory.join("link");
    symlink("/etc", &link)?;
    refused(world, with(world, world.host_volume(&link, true)), "a link").await?;
    let up = directory.join("../../../../etc");
    refused(world, with(world, world.host_volume(&up, true)), "dots").await
}

async fn a_named_volume_is_shared_and_outlives_its_sandboxes(world: &World) -> Result<(), Failure> {
    let claim = claim();
    // The first one takes the volume along in the end, so that the case leaves nothing.
    let first = world.create(with(world, named(&claim, true, true))).await?;
    world
        .output(&first, "echo shared > /mnt/named/file")
        .await?;
    let second = world
        .create(with(world, named(&claim, false, false)))
        .await?;
    let seen = world.output(&second, "cat /mnt/named/file").await?;
    ensure!(seen == "shared\n", "{seen:?}");
    world.delete(&second.id).await?;
    let third = world.create(with(world, named(&claim, true, true))).await?;
    let seen = world.output(&third, "cat /mnt/named/file").await?;
    ensure!(seen == "shared\n", "{seen:?}");
    world.delete(&third.id).await
}

async fn a_named_volume_that_must_exist_and_does_not_is_refused(
    world: &World,
) -> Result<(), Failure> {
    refused(
        world,
        with(world, named(&claim(), false, false)),
        "no such volume",
    )
    .await
}

async fn a_named_volume_goes_with_the_sandbox_that_made_it(world: &World) -> Result<(), Failure> {
    let claim = claim();
    let made = world.create(with(world, named(&claim, true, true))).await?;
    world.output(&made, "echo x > /mnt/named/file").await?;
    world.delete(&made.id).await?;
    refused(
        world,
        with(world, named(&claim, false, false)),
        "it should be gone",
    )
    .await
}

async fn a_named_volume_somebody_else_made_stays(world: &World) -> Result<(), Failure> {
    let claim = claim();
    let maker = world.create(with(world, named(&claim, true, true))).await?;
    world.output(&maker, "echo kept > /mnt/named/file").await?;
    let user = world.create(with(world, named(&claim, true, true))).await?;
    world.delete(&user.id).await?;
    let seen = world.output(&maker, "cat /mnt/named/file").await?;
    ensure!(seen == "kept\n", "{seen:?}");
    Ok(())
}

async fn a_link_planted_in_a_volume_leads_nowhere(world: &World) -> Result<(), Failure> {
    let claim = claim();
    let planter = world.create(with(world, named(&claim, true, true))).await?;
    let plant = "ln -s /etc /mnt/named/out; ln -s ../../../../../../../../etc /mnt/named/up; \
                 mkdir /mnt/named/good";
    world.output(&planter, plant).await?;
    for sub_path in ["out", "up"] {
        let volume = Volume {
            sub_path: Some(sub_path.to_owned()),
            ..named(&claim, false, false)
        };
        refused(world, with(world, volume), sub_path).await?;
    }
    let volume = Volume {
        sub_path: Some("good".to_owned()),
        ..named(&claim, false, false)
    };
    let user = world.create(with(world, volume)).await?;
    world.output(&user, "touch /mnt/named/ok").await?;
    world.delete(&user.id).await
}

async fn two_volumes_in_one_sandbox(world: &World) -> Result<(), Failure> {
    let directory = world.directory()?;
    let mut spec = with(world, world.host_volume(&directory, false));
    spec.volumes.push(named(&claim(), true, true));
    let made = world.create(spec).await?;
    let command = "echo 1 > /mnt/volume/one; echo 2 > /mnt/named/two; ls /mnt/volume /mnt/named";
    let seen = world.output(&made, command).await?;
    ensure!(seen.contains("one") && seen.contains("two"), "{seen:?}");
    Ok(())
}
