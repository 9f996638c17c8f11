//! Hostile layers, one table per kind of trick. Each case unpacks beside a file that must not
//! change, whatever the layer tries.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::directories::OPAQUE_XATTR;
use super::*;
use crate::image::tree;

/// An entry as the bytes of a tar say it, legal or not.
#[derive(Debug, Clone)]
struct Item {
    name: Vec<u8>,
    flag: u8,
    link: Vec<u8>,
    mode: u32,
    owner: u32,
    data: Vec<u8>,
    pax: Vec<(String, Vec<u8>)>,
}

fn item(flag: u8, name: impl AsRef<[u8]>) -> Item {
    Item {
        name: name.as_ref().to_vec(),
        flag,
        link: Vec::new(),
        mode: if flag == b'5' { 0o755 } else { 0o644 },
        owner: 0,
        data: Vec::new(),
        pax: Vec::new(),
    }
}

fn file(name: impl AsRef<[u8]>, data: &str) -> Item {
    Item {
        data: data.as_bytes().to_vec(),
        ..item(b'0', name)
    }
}

fn directory(name: &str) -> Item {
    item(b'5', name)
}

fn symlink(name: &str, target: impl AsRef<[u8]>) -> Item {
    Item {
        link: target.as_ref().to_vec(),
        mode: 0o777,
        ..item(b'2', name)
    }
}

fn hard_link(name: &str, target: &str) -> Item {
    Item {
        link: target.as_bytes().to_vec(),
        ..item(b'1', name)
    }
}

fn pax(mut of: Item, key: &str, value: impl AsRef<[u8]>) -> Item {
    of.pax.push((key.to_owned(), value.as_ref().to_vec()));
    of
}

fn header(item: &Item, flag: u8, size: usize) -> [u8; 512] {
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &item.name[..item.name.len().min(100)]);
    put(100, format!("{:07o}\0", item.mode).as_bytes());
    put(108, format!("{:07o}\0", item.owner).as_bytes());
    put(116, format!("{:07o}\0", item.owner).as_bytes());
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000144\0");
    put(148, b"        ");
    put(156, &[flag]);
    put(157, &item.link[..item.link.len().min(100)]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn push_padded(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(512), 0);
}

fn archive(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        for (flag, long) in [(b'L', &item.name), (b'K', &item.link)] {
            if long.len() > 100 {
                out.extend(header(
                    &Item {
                        name: b"long".to_vec(),
                        ..item.clone()
                    },
                    flag,
                    long.len() + 1,
                ));
                push_padded(&mut out, &[&long[..], b"\0"].concat());
            }
        }
        if !item.pax.is_empty() {
            let records: Vec<u8> = item
                .pax
                .iter()
                .flat_map(|(key, value)| pax_record(key, value))
                .collect();
            out.extend(header(
                &Item {
                    name: b"pax".to_vec(),
                    link: vec![],
                    ..item.clone()
                },
                b'x',
                records.len(),
            ));
            push_padded(&mut out, &records);
        }
        out.extend(header(item, item.flag, item.data.len()));
        push_padded(&mut out, &item.data);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = key.len() + value.len() + 3;
    let mut length = body + 1;
    while length != body + length.to_string().len() {
        length = body + length.to_string().len();
    }
    [
        length.to_string().as_bytes(),
        b" ",
        key.as_bytes(),
        b"=",
        value,
        b"\n",
    ]
    .concat()
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests make devices and owners: run them as root"
        );
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("outside"), "untouched").unwrap();
        fs::set_permissions(
            dir.path().join("outside"),
            fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        Self { dir }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Unpacked, Error> {
        let root = File::open(self.at("")).unwrap();
        let result = unpack(bytes, root.as_fd(), "the layer", &bounds());
        let outside = fs::metadata(self.dir.path().join("outside")).unwrap();
        assert_eq!(
            fs::read(self.dir.path().join("outside")).unwrap(),
            b"untouched"
        );
        assert_eq!((outside.mode() & 0o7777, outside.nlink()), (0o600, 1));
        assert_eq!(
            fs::read_dir(self.dir.path()).unwrap().count(),
            2,
            "something was made outside"
        );
        result
    }

    /// Every name with what it is, contents of files included.
    fn listing(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![self.at("")];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let kind = metadata.file_type();
                let text = if kind.is_dir() {
                    waiting.push(path.clone());
                    if is_opaque(&path) {
                        "opaque".to_owned()
                    } else {
                        "dir".to_owned()
                    }
                } else if kind.is_symlink() {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                } else if kind.is_char_device() {
                    assert_eq!(metadata.rdev(), 0, "a device was made");
                    "whiteout".to_owned()
                } else if kind.is_fifo() {
                    "fifo".to_owned()
                } else {
                    assert!(kind.is_file());
                    String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
                };
                let name = path
                    .strip_prefix(self.at(""))
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                found.insert(name, text);
            }
        }
        found
    }
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0_u8; 8];
    rustix::fs::lgetxattr(path, OPAQUE_XATTR, &mut value[..]).is_ok_and(|n| value[..n] == *b"y")
}

fn bounds() -> UnpackLimits {
    UnpackLimits {
        bytes: 1 << 20,
        entries: 1000,
        cancel: CancellationToken::new(),
    }
}

/// What a layer becomes: lines of `name: what`, or the error.
fn check(items: &[Item], expected: &[(&str, &str)]) {
    let place = Place::new();
    place
        .unpack(&archive(items))
        .unwrap_or_else(|e| panic!("{items:#?}\n{e}"));
    let expected = expected
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    assert_eq!(place.listing(), expected, "{items:#?}");
}

fn refused(items: &[Item], because: &str) {
    let place = Place::new();
    match place.unpack(&archive(items)) {
        Err(Error::Corrupt { message, .. }) if message.contains(because) => {}
        other => panic!("{items:#?}\nexpected {because:?}, got {other:?}"),
    }
}

#[test]
fn names_that_leave_the_root_are_refused() {
    for name in [
        "../outside",
        "a/../../outside",
        "..",
        "/../outside",
        "./.././outside",
    ] {
        refused(&[file(name, "x")], "leads out");
        refused(&[directory(name)], "leads out");
        refused(&[hard_link("x", name)], "leads out");
    }
    refused(&[pax(file("x", "x"), "path", "../outside")], "leads out");
    refused(&[file("../.wh.outside", "")], "leads out");
}

#[test]
fn absolute_and_crooked_names_stay_within() {
    check(
        &[file("/etc/passwd", "x")],
        &[("etc", "dir"), ("etc/passwd", "x")],
    );
    check(&[file("./a//b/../c", "x")], &[("a", "dir"), ("a/c", "x")]);
    check(
        &[directory("a/"), file("a/./b", "x")],
        &[("a", "dir"), ("a/b", "x")],
    );
}

#[test]
fn links_lead_nowhere_but_inside() {
    // The link's target exists outside, and means something else inside.
    check(
        &[symlink("up", "../"), file("up/outside", "mine")],
        &[("up", "-> ../"), ("outside", "mine")],
    );
    check(
        &[directory("tmp"), symlink("abs", "/tmp"), file("abs/f", "x")],
        &[("abs", "-> /tmp"), ("tmp", "dir"), ("tmp/f", "x")],
    );
    refused(
        &[symlink("l", "/proc/self/root"), file("l/x", "x")],
        "passes through",
    );
    refused(&[symlink("l", "l"), file("l/x", "x")], "passes through");
    refused(
        &[symlink("l", "missing"), file("l/x", "x")],
        "passes through",
    );
    refused(&[file("f", ""), file("f/x", "x")], "passes through");
    // A file put where a link stands replaces the link, it is not written through it.
    check(&[symlink("l", "../outside"), file("l", "x")], &[("l", "x")]);
    check(
        &[symlink("l", "/d"), directory("d"), directory("l")],
        &[("d", "dir"), ("l", "dir")],
    );
}

#[test]
fn hard_links_reach_only_files_of_the_layer() {
    check(
        &[file("a", "x"), hard_link("b", "a")],
        &[("a", "x"), ("b", "x")],
    );
    check(
        &[file("a", "x"), hard_link("a", "a"), hard_link("a", "./a")],
        &[("a", "x")],
    );
    check(
        &[
            directory("d"),
            symlink("s", "d"),
            file("d/f", "x"),
            hard_link("s/f", "d/f"),
        ],
        &[("d", "dir"), ("d/f", "x"), ("s", "-> d")],
    );
    // A link to a link is that link, not what it points to.
    check(
        &[symlink("s", "../outside"), hard_link("h", "s")],
        &[("h", "-> ../outside"), ("s", "-> ../outside")],
    );
    for target in ["missing", "d", "gone", "s/outside", "/"] {
        refused(
            &[
                directory("d"),
                file(".wh.gone", ""),
                symlink("s", ".."),
                hard_link("h", target),
            ],
            "target is not a file",
        );
    }
    refused(
        &[directory("d"), file("d/f", "x"), hard_link("d", "d/f")],
        "target is not a file",
    );
}

#[test]
fn whiteouts_hide_what_is_below() {
    check(&[file(".wh.x", "")], &[("x", "whiteout")]);
    check(
        &[directory("d"), file("d/.wh..wh..opq", "")],
        &[("d", "opaque")],
    );
    check(&[file("d/.wh..wh..opq", "")], &[("d", "opaque")]);
    check(&[file(".wh..wh.plnk", ""), file(".wh..wh.orph", "")], &[]);
    // What the layer itself brings is not hidden by its own whiteout, in either order.
    check(&[file("x", "new"), file(".wh.x", "")], &[("x", "new")]);
    check(&[file(".wh.x", ""), file("x", "new")], &[("x", "new")]);
    check(&[file(".wh.d", ""), directory("d")], &[("d", "opaque")]);
    check(&[directory("d"), file(".wh.d", "")], &[("d", "opaque")]);
    check(
        &[file(".wh.d", ""), file("d/x", "x")],
        &[("d", "opaque"), ("d/x", "x")],
    );
    for name in [".wh.", ".wh..", ".wh...", "d/.wh..."] {
        refused(&[file(name, "")], "hides no name");
    }
    // Behind a link, within the root.
    check(
        &[directory("d"), symlink("s", "d"), file("s/.wh.x", "")],
        &[("d", "dir"), ("d/x", "whiteout"), ("s", "-> d")],
    );
}

#[test]
fn devices_are_left_out_and_pipes_kept() {
    check(
        &[item(b'3', "null"), item(b'4', "sda"), item(b'6', "pipe")],
        &[("pipe", "fifo")],
    );
}

#[test]
fn a_later_entry_replaces_an_earlier_one() {
    check(&[file("a", "1"), file("a", "2")], &[("a", "2")]);
    check(
        &[directory("a"), file("a/b", "1"), file("a", "2")],
        &[("a", "2")],
    );
    check(
        &[file("a", "1"), directory("a"), file("a/b", "2")],
        &[("a", "dir"), ("a/b", "2")],
    );
    check(
        &[directory("a"), file("a/b", "1"), directory("a")],
        &[("a", "dir"), ("a/b", "1")],
    );
    check(
        &[
            directory("a"),
            file("a/b", "1"),
            symlink("a", "/"),
            file("a/c", "2"),
        ],
        &[("a", "-> /"), ("c", "2")],
    );
}

#[test]
fn modes_owners_and_times_are_kept() {
    let place = Place::new();
    let owned = |of: Item, mode, owner| Item { mode, owner, ..of };
    place
        .unpack(&archive(&[
            owned(directory("d"), 0o2770, 33),
            owned(file("d/su", "x"), 0o4755, 0),
            owned(file("d/f", "x"), 0o000, 1000),
            owned(symlink("d/l", "f"), 0o777, 7),
            pax(
                pax(pax(file("big", ""), "uid", "70000"), "gid", "70001"),
                "mtime",
                "-1.5",
            ),
            owned(item(b'6', "p"), 0o622, 5),
        ]))
        .unwrap();
    let of = |path: &str| {
        let metadata = fs::symlink_metadata(place.at(path)).unwrap();
        (
            metadata.mode() & 0o7777,
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
        )
    };
    assert_eq!(of("d"), (0o2770, 33, 33, 100));
    assert_eq!(of("d/su"), (0o4755, 0, 0, 100));
    assert_eq!(of("d/f"), (0o000, 1000, 1000, 100));
    assert_eq!(of("d/l"), (0o777, 7, 7, 100));
    assert_eq!(of("big"), (0o644, 70000, 70001, -2));
    assert_eq!(of("p"), (0o622, 5, 5, 100));
    refused(&[pax(file("x", ""), "uid", "4294967295")], "not a user");
    refused(&[pax(file("x", ""), "uid", "99999999999")], "not a user");
}

#[test]
fn only_harmless_xattrs_are_kept() {
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let place = Place::new();
    let mut marked = directory("d");
    for (name, value) in [
        ("trusted.overlay.opaque", &b"y"[..]),
        ("user.overlay.opaque", b"y"),
        ("trusted.overlay.redirect", b"/etc"),
        ("user.overlay.whiteout", b""),
        ("security.selinux", b"x"),
        ("system.posix_acl_access", b"x"),
        ("user.note", b"kept"),
    ] {
        marked = pax(marked, &format!("SCHILY.xattr.{name}"), value);
    }
    let able = pax(
        file("ping", "x"),
        "SCHILY.xattr.security.capability",
        capability,
    );
    place.unpack(&archive(&[marked, able])).unwrap();
    let names = |path: &str| {
        let mut buffer = [0_u8; 4096];
        let length = rustix::fs::llistxattr(place.at(path), &mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(names("d"), "user.note\0");
    assert_eq!(names("ping"), "security.capability\0");
}

#[test]
fn long_and_odd_names_work_and_absurd_ones_are_refused() {
    let long = format!("{}/{}", "a".repeat(200), "b".repeat(200));
    check(
        &[file(&long, "x")],
        &[(&"a".repeat(200), "dir"), (&long, "x")],
    );
    check(
        &[pax(file("short", "x"), "path", &long)],
        &[(&"a".repeat(200), "dir"), (&long, "x")],
    );
    check(
        &[file(b"\xff\xfe\n\x01", "x")],
        &[("\u{fffd}\u{fffd}\n\u{1}", "x")],
    );
    let target = "t".repeat(300);
    check(&[symlink("l", &target)], &[("l", &format!("-> {target}"))]);
    refused(
        &[file("n".repeat(256), "x")],
        "longer than file systems take",
    );
    refused(&[file("p/".repeat(3000), "x")], "longer than 4095");
    refused(
        &[file(format!("{}f", "d/".repeat(300)), "x")],
        "255 directories deep",
    );
    refused(&[pax(file("x", ""), "path", "a\0b")], "NUL");
    refused(&[pax(file("x", ""), "size", "-1")], "not decimal");
    refused(&[symlink("l", "")], "no target");
    refused(&[item(b'Q', "x")], "unknown entry type");
    refused(&[file("", "x")], "root is not a directory");
}

#[test]
fn a_size_given_by_pax_moves_the_next_header() {
    // Whoever ignored the pax size would read "hidden" as an entry of its own.
    let mut smuggled = archive(&[file("hidden", "")]);
    smuggled.truncate(512);
    let mut bytes = Vec::new();
    let records = pax_record("size", b"512");
    bytes.extend(header(&file("pax", ""), b'x', records.len()));
    push_padded(&mut bytes, &records);
    bytes.extend(header(&file("outer", ""), b'0', 0));
    bytes.extend(smuggled);
    bytes.resize(bytes.len() + 1024, 0);
    let place = Place::new();
    place.unpack(&bytes).unwrap();
    assert_eq!(place.listing().into_keys().collect::<Vec<_>>(), ["outer"]);
}

#[test]
fn what_is_too_much_is_refused_by_name() {
    let too_large = |items: &[Item], expected: &str| {
        let place = Place::new();
        match place.unpack(&archive(items)) {
            Err(Error::TooLarge { setting, .. }) => assert_eq!(setting, expected),
            other => panic!("{other:?}"),
        }
    };
    let many: Vec<Item> = (0..1001).map(|i| file(format!("f{i}"), "")).collect();
    too_large(&many, "layer_entries");
    // Directories that names imply count as well.
    let implied: Vec<Item> = (0..20)
        .map(|i| file(format!("{i}/{}f", "d/".repeat(60)), ""))
        .collect();
    too_large(&implied, "layer_entries");
    too_large(&[file("big", &"x".repeat(2 << 20))], "layer_bytes");
    // Sparse files by pax 0.1: nothing stored, all claimed.
    let sparse = |size: &str| {
        pax(
            pax(
                pax(file("s", ""), "GNU.sparse.map", "0,0"),
                "GNU.sparse.size",
                size,
            ),
            "GNU.sparse.numblocks",
            "1",
        )
    };
    too_large(&[sparse("1152921504606846976")], "layer_bytes");
    let place = Place::new();
    place.unpack(&archive(&[sparse("1000000")])).unwrap();
    let metadata = fs::metadata(place.at("s")).unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (1_000_000, 0));
    refused(
        &[pax(sparse("100"), "GNU.sparse.map", "50,100")],
        "pieces overlap",
    );
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut head = header(&file("zeros", ""), b'0', 1 << 30).to_vec();
    head.resize(64 << 10, 0);
    bomb.write_all(&head).unwrap();
    for _ in 0..1024 {
        bomb.write_all(&[0; 64 << 10]).unwrap();
    }
    let place = Place::new();
    let bytes = bomb.finish().unwrap();
    assert!(matches!(
        place.unpack(&bytes),
        Err(Error::TooLarge {
            setting: "layer_bytes",
            ..
        })
    ));
}

#[test]
fn endless_extended_headers_are_refused() {
    let mut bytes = Vec::new();
    let records = pax_record("SCHILY.xattr.user.x", &[b'x'; 60_000]);
    for _ in 0..100 {
        bytes.extend(header(&file("pax", ""), b'x', records.len()));
        push_padded(&mut bytes, &records);
    }
    let place = Place::new();
    let large = UnpackLimits {
        bytes: 1 << 30,
        ..bounds()
    };
    let root = File::open(place.at("")).unwrap();
    let result = unpack(&bytes[..], root.as_fd(), "the layer", &large);
    assert!(
        matches!(result, Err(Error::Corrupt { message, .. }) if message.contains("extended headers"))
    );
}

#[test]
fn compressed_forms_are_recognised_and_share_a_diff_id() {
    let plain = archive(&[file("a", "x")]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain[..700]).unwrap();
    let mut gzipped = gzip.finish().unwrap();
    // Two members, as parallel compressors write.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain[700..]).unwrap();
    gzipped.extend(gzip.finish().unwrap());
    let zstd = zstd::encode_all(&plain[..], 3).unwrap();
    for bytes in [&plain, &gzipped, &zstd] {
        let place = Place::new();
        let unpacked = place.unpack(bytes).unwrap();
        assert_eq!(unpacked.diff_id, Digest::of(&plain));
        assert_eq!(place.listing()["a"], "x");
        let result = Place::new().unpack(&bytes[..bytes.len() / 3]);
        assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    }
    let xz = Place::new().unpack(b"\xfd7zXZ\0more");
    assert!(matches!(xz, Err(Error::Corrupt { message, .. }) if message.contains("xz")));
}

#[test]
fn a_cancelled_unpacking_stops() {
    let place = Place::new();
    let bounds = bounds();
    bounds.cancel.cancel();
    let root = File::open(place.at("")).unwrap();
    let result = unpack(
        &archive(&[file("a", "x")])[..],
        root.as_fd(),
        "the layer",
        &bounds,
    );
    assert!(matches!(result, Err(Error::Cancelled)));
}

fn hostile_name() -> impl Strategy<Value = Vec<u8>> {
    let component = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(|s| s.as_bytes().to_vec()),
        2 => prop::sample::select(vec!["..", ".", "", "outside", ".wh.a", ".wh..wh..opq", ".wh..."])
            .prop_map(|s| s.as_bytes().to_vec()),
        1 => prop::collection::vec(1_u8..=255, 1..5),
    ];
    let names = prop::collection::vec(component, 1..4);
    (any::<bool>(), names).prop_map(|(is_absolute, names)| {
        [
            if is_absolute { &b"/"[..] } else { b"" },
            &names.join(&b'/'),
        ]
        .concat()
    })
}

fn hostile_item() -> impl Strategy<Value = Item> {
    let flag = prop::sample::select(b"0000125555346".to_vec());
    (flag, hostile_name(), hostile_name(), 0_u32..0o10000).prop_map(|(flag, name, link, mode)| {
        Item {
            link,
            mode,
            data: if flag == b'0' {
                b"data".to_vec()
            } else {
                Vec::new()
            },
            ..item(flag, name)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the entries: nothing outside changes (which `unpack` checks), nothing but files,
    /// directories, links, pipes and whiteouts is made (which `listing` checks), and the tree
    /// can be removed again.
    #[test]
    fn random_layers_change_nothing_outside(items in prop::collection::vec(hostile_item(), 0..12)) {
        let place = Place::new();
        let _ = place.unpack(&archive(&items));
        place.listing();
        tree::remove_path(&place.dir.path().join("root")).unwrap();
    }

    /// Damaged archives end in an error or in a smaller tree, never in a panic.
    #[test]
    fn random_damage_is_survived(
        items in prop::collection::vec(hostile_item(), 1..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = archive(&items);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let place = Place::new();
        let _ = place.unpack(&bytes);
        place.listing();
    }

    /// Numbers and headers of any kind: the reader alone, without checksums in its way.
    #[test]
    fn random_headers_do_not_panic(mut block in prop::collection::vec(any::<u8>(), 512..2048), flag in any::<u8>()) {
        block[156] = flag;
        block[148..156].fill(b' ');
        let sum: u32 = block[..512].iter().map(|b| u32::from(*b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut reader = Reader::new(&block[..]);
        while let Ok(Some(_)) = reader.next() {}
    }
}

/// The kernel's own judgement: GNU tar packs a tree with holes, links and long names, and what
/// we unpack is what it unpacks.
#[test]
fn real_archives_unpack_as_gnu_tar_does() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("d".repeat(120)).join("e".repeat(120))).unwrap();
    fs::write(tree.join("plain"), "contents").unwrap();
    fs::hard_link(tree.join("plain"), tree.join("linked")).unwrap();
    std::os::unix::fs::symlink("x".repeat(150), tree.join("symbolic")).unwrap();
    fs::write(
        tree.join("d".repeat(120))
            .join("e".repeat(120))
            .join("deep"),
        "deep",
    )
    .unwrap();
    let mut holes = File::create(tree.join("holes")).unwrap();
    for piece in 0..40_u64 {
        std::os::unix::fs::FileExt::write_all_at(&holes, b"piece", piece * 65_536).unwrap();
    }
    holes.set_len(5 << 20).unwrap();
    holes.flush().unwrap();
    for options in [
        &["--format=gnu", "--sparse"][..],
        &["--format=gnu"],
        &["--format=pax", "--sparse", "--sparse-version=0.0"],
        &["--format=pax", "--sparse", "--sparse-version=0.1"],
        &["--format=pax", "--sparse", "--sparse-version=1.0"],
    ] {
        let output = std::process::Command::new("tar")
            .args(options)
            .args(["-cf", "-", "-C"])
            .arg(&tree)
            .arg(".")
            .output()
            .unwrap();
        assert!(output.status.success());
        let place = Place::new();
        let root = File::open(place.at("")).unwrap();
        let large = UnpackLimits {
            bytes: 64 << 20,
            ..bounds()
        };
        unpack(&output.stdout[..], root.as_fd(), "the layer", &large).unwrap();
        let difference = std::process::Command::new("diff")
            .args(["-r", "--no-dereference"])
            .arg(&tree)
            .arg(place.at(""))
            .output()
            .unwrap();
        assert!(difference.status.success(), "{options:?}: {difference:?}");
        let linked = |name: &str| fs::metadata(place.at(name)).unwrap().ino();
        assert_eq!(linked("plain"), linked("linked"));
        if options.contains(&"--sparse") {
            assert!(
                fs::metadata(place.at("holes")).unwrap().blocks() < 1000,
                "{options:?}"
            );
        }
    }
}
