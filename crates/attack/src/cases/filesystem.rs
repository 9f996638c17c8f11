//! Files of the host, mounts, devices and volumes.

use super::{CHANGES_THE_HOST, READS_THE_HOST, TAKES_THE_HOST};
use crate::case::{Case, plain};
use crate::protection::Protection::{
    Capabilities, CgroupNamespace, DevReadOnly, HostMasks, KernelPaths, Landlock, MountNamespace,
    OwnLayer, ResolvedPaths, Seccomp, UserNamespace, VolumeNoDevices, VolumeOwners, VolumePaths,
    VolumeReadOnly,
};
use crate::scenes::{files, hostile_images, resources};

pub(super) const CASES: [Case; 46] = [
    plain("cwd_inside", "walks up out of its working directory", &[MountNamespace], READS_THE_HOST).with_marker(),
    plain("chroot_escape", "makes a jail and walks out of it, and on out of the sandbox", &[MountNamespace], READS_THE_HOST)
        .with_marker(),
    plain("under_the_root", "walks to what lies under the root that it sees", &[MountNamespace], READS_THE_HOST),
    plain("host_file_hidden", "opens files of the host by every name it could have", &[MountNamespace], READS_THE_HOST)
        .staged(|w| Box::pin(files::host_file_hidden(w))),
    plain("mountinfo_clean", "reads from its table of mounts where the host keeps its files", &[MountNamespace],
        "the sandbox learns names of the host's files")
        .staged(|w| Box::pin(files::mountinfo_clean(w))),
    plain("leaked_directory", "opens files through a descriptor of the host that another hole gave it", &[Landlock],
        READS_THE_HOST)
        .staged(|w| Box::pin(resources::leaked_directory(w))),
    plain("moved_directory", "stands in a directory of a volume that is moved out of it, and walks up, as in CVE-2015-2925",
        &[KernelPaths, Landlock], READS_THE_HOST)
        .staged(|w| Box::pin(files::moved_directory(w))),
    plain("by_handle", "opens files of the disk by their numbers, as in the first escape from Docker",
        &[Seccomp, UserNamespace], READS_THE_HOST),
    plain("fanotify", "watches whole filesystems", &[Seccomp], "the sandbox sees which files the host uses"),
    plain("mount_tmpfs", "mounts an empty filesystem", &[Seccomp, Capabilities, MountNamespace], TAKES_THE_HOST),
    plain("mount_proc", "mounts /proc anew, without what covers it", &[Seccomp, Capabilities, MountNamespace], TAKES_THE_HOST),
    plain("mount_bind", "mounts a directory at another place", &[Seccomp, Capabilities, MountNamespace], TAKES_THE_HOST),
    plain("remount_rw", "makes a read-only mount writable", &[Seccomp, Capabilities, MountNamespace], TAKES_THE_HOST),
    plain("unmount_mask", "takes away what covers parts of /proc", &[Seccomp, Capabilities, MountNamespace], TAKES_THE_HOST),
    plain("mount_overlay", "mounts an overlay of its own, as many escapes begin", &[Seccomp, Capabilities, MountNamespace],
        TAKES_THE_HOST),
    plain("kernel_filesystems", "mounts debugfs, tracefs, bpf and others through which the kernel is commanded",
        &[Seccomp, Capabilities, MountNamespace], TAKES_THE_HOST),
    plain("pivot", "replaces its root", &[Seccomp, Capabilities, MountNamespace], TAKES_THE_HOST),
    plain("new_mount_api", "mounts by the newer calls, as in CVE-2022-0185", &[Seccomp, Capabilities, MountNamespace],
        TAKES_THE_HOST),
    plain("mknod_mem", "makes the device of the machine's memory", &[Capabilities, UserNamespace], TAKES_THE_HOST),
    plain("mknod_kmsg", "makes the device of the kernel's log", &[Capabilities, UserNamespace], READS_THE_HOST),
    plain("mknod_disk", "makes devices of the machine's disks", &[Capabilities, UserNamespace], READS_THE_HOST),
    plain("dev_absent", "looks for devices that no sandbox needs", &[MountNamespace], TAKES_THE_HOST),
    plain("dev_fixed", "replaces, renames and marks devices that it has", &[DevReadOnly, UserNamespace],
        "programs of the sandbox are given files for devices"),
    plain("cgroup_mount", "mounts control groups", &[Seccomp, Capabilities, MountNamespace], CHANGES_THE_HOST),
    plain("release_agent", "names a program that the host runs when a group is empty, as in CVE-2022-0492",
        &[UserNamespace, CgroupNamespace], TAKES_THE_HOST),
    plain("cgroup_leave", "leaves its control group, and with it its limits", &[UserNamespace, CgroupNamespace],
        CHANGES_THE_HOST),
    plain("cgroup_raise", "raises the limits of its control group", &[UserNamespace, CgroupNamespace], CHANGES_THE_HOST),
    plain("overlay_attributes", "writes the notes by which layers lead elsewhere", &[UserNamespace],
        "an image made of the sandbox shows files of the host"),
    plain("whiteout", "makes a device that hides files of layers below", &[OwnLayer],
        "an image made of the sandbox hides what is in others"),
    plain("file_flags", "makes a file that nobody can delete", &[UserNamespace],
        "the host cannot remove what the sandbox leaves"),
    plain("random_pool", "tells the machine how good its randomness is", &[UserNamespace],
        "keys that the host makes can be guessed"),
    plain("host_image_has_no_secrets", "reads secrets of the host through the image that shows its programs",
        &[MountNamespace], READS_THE_HOST)
        .staged(|w| Box::pin(hostile_images::host_image(w))),
    plain("host_programs_fixed", "changes programs of the host in the image that shows them",
        &[OwnLayer, UserNamespace], TAKES_THE_HOST)
        .staged(|w| Box::pin(files::host_programs_fixed(w))),
    plain("local_settings", "reads settings below /usr, where tokens of package registries are", &[HostMasks],
        READS_THE_HOST)
        .staged(|w| Box::pin(resources::local_settings(w))),
    plain("volume_read_only", "writes to a volume that was given to read", &[VolumeReadOnly],
        "the sandbox changes files of the host")
        .staged(|w| Box::pin(hostile_images::volume_read_only(w))),
    plain("volume_device", "opens a device that somebody left in a directory of the host", &[VolumeNoDevices],
        TAKES_THE_HOST)
        .staged(|w| Box::pin(files::volume_device(w))),
    plain("freeze_filesystem", "stops every writer to the host's disk through a volume", &[UserNamespace], CHANGES_THE_HOST)
        .staged(|w| Box::pin(files::freeze_filesystem(w))),
    plain("host_path_privileges", "leaves a set-user-id program in a directory of the host", &[VolumeOwners],
        "whoever runs it on the host becomes root")
        .staged(|w| Box::pin(resources::host_path_privileges(w))),
    plain("host_path_of_root", "asks for a directory of root's to write to", &[VolumeOwners],
        "the sandbox writes as root of the host")
        .staged(|w| Box::pin(resources::host_path_of_root(w))),
    plain("subpath_link", "plants a link in a shared volume where the next sandbox's sub-path goes, as in CVE-2021-25741",
        &[VolumePaths], READS_THE_HOST)
        .staged(|w| Box::pin(hostile_images::subpath_link(w))),
    plain("image_proc_is_a_link", "has an image whose /proc leads elsewhere", &[ResolvedPaths], TAKES_THE_HOST)
        .staged(|w| Box::pin(hostile_images::proc_link(w))),
    plain("image_dev_is_a_link", "has an image whose /dev leads elsewhere", &[ResolvedPaths], TAKES_THE_HOST)
        .staged(|w| Box::pin(hostile_images::dev_link(w))),
    plain("image_etc_leads_out", "has an image whose /etc leads out, where the host's own would be written",
        &[ResolvedPaths], CHANGES_THE_HOST)
        .staged(|w| Box::pin(hostile_images::etc_link(w))),
    plain("image_tmp_link_volume", "has an image with a link where a volume goes", &[ResolvedPaths], CHANGES_THE_HOST)
        .staged(|w| Box::pin(hostile_images::volume_over_link(w))),
    plain("terminal", "types into the terminal of whoever watches it", &[Seccomp],
        "a program of the sandbox types commands as its owner"),
    plain("image_is_whole", "spoils the files of its image, which others stand on", &[OwnLayer],
        "one sandbox changes the programs of all that have its image")
        .staged(|w| Box::pin(files::image_is_whole(w))),
];
