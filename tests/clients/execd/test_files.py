"""Every method of the SDK's files."""

import io
import os
import stat

import pytest
from conftest import collected, done, only_1_1, text
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.filesystem import (
    ContentReplaceEntry, MoveEntry, SearchEntry, SetPermissionEntry, WriteEntry,
)

BINARY = bytes(range(256)) * 9000


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


async def test_text_and_bytes_there_and_back(files, folder):
    await done(files.write_file(f"{folder}/new/dir/t.txt", "häuser\n"))
    assert (folder / "new/dir/t.txt").read_text() == "häuser\n"
    assert mode(folder / "new/dir/t.txt") == 0o755, "the SDK asks for 755 unless told otherwise"
    assert await done(files.read_file(f"{folder}/new/dir/t.txt")) == "häuser\n"
    await done(files.write_file(f"{folder}/b", BINARY))
    assert await done(files.read_bytes(f"{folder}/b")) == BINARY
    (folder / "l").write_bytes(b"\xe4")
    assert await done(files.read_file(f"{folder}/l", encoding="latin-1")) == "ä"
    await done(files.write_file(f"{folder}/stream", io.BytesIO(BINARY)))
    assert (folder / "stream").read_bytes() == BINARY
    await done(files.write_file(f"{folder}/empty", b""))
    assert await done(files.read_bytes(f"{folder}/empty")) == b""


@only_1_1
async def test_text_in_another_encoding(files, folder):
    """0.1.10 has the parameter and sends UTF-8 all the same."""
    await done(files.write_file(f"{folder}/l", "ä", encoding="latin-1"))
    assert (folder / "l").read_bytes() == b"\xe4"


async def test_content_that_looks_like_a_form(files, folder):
    tricky = b"--opensandbox\r\n\r\n--\r\n" * 100 + b"\r\n--\r"
    await done(files.write_file(f"{folder}/tricky", tricky))
    assert (folder / "tricky").read_bytes() == tricky


async def test_many_files_in_one_call_with_modes_and_owners(files, folder):
    entries = [WriteEntry(path=f"{folder}/many/{n}", data=f"content {n}", mode=640) for n in range(300)]
    entries.append(WriteEntry(path=f"{folder}/owned", data="x", mode=4750, owner="daemon", group="1"))
    await done(files.write_files(entries))
    for n in range(300):
        assert (folder / f"many/{n}").read_text() == f"content {n}"
        assert mode(folder / f"many/{n}") == 0o640
    owned = os.stat(folder / "owned")
    assert (owned.st_uid, owned.st_gid, stat.S_IMODE(owned.st_mode)) == (1, 1, 0o4750)
    assert len(os.listdir(folder / "many")) == 300, "no temporary name is left"


async def test_a_write_replaces_the_file_whole(files, folder):
    target = folder / "f"
    target.write_text("the old content, which is longer")
    with target.open() as reader:
        await done(files.write_file(str(target), "new", mode=600))
        assert reader.read() == "the old content, which is longer", "an open reader keeps what it had"
    assert target.read_text() == "new"
    assert mode(target) == 0o600


async def test_bad_writes(files, folder):
    (folder / "dir").mkdir()
    with pytest.raises(SandboxApiException) as error:
        await done(files.write_file(f"{folder}/dir", "x"))
    assert error.value.status_code == 400
    with pytest.raises(SandboxException):
        await done(files.write_file(f"{folder}/f", "x", owner="no-such-user"))
    assert os.listdir(folder) == ["dir"]


async def test_ranges_and_streams(files, folder):
    (folder / "b").write_bytes(BINARY)
    path = f"{folder}/b"
    assert await done(files.read_bytes(path, range_header="bytes=10-19")) == BINARY[10:20]
    assert await done(files.read_bytes(path, range_header="bytes=-5")) == BINARY[-5:]
    assert await done(files.read_bytes(path, range_header=f"bytes={len(BINARY) - 3}-")) == BINARY[-3:]
    assert await done(files.read_file(path, encoding="latin-1", range_header="bytes=65-67")) == "ABC"
    chunks = await collected(await done(files.read_bytes_stream(path, chunk_size=10_000)))
    assert b"".join(chunks) == BINARY
    assert len(chunks) > 100
    part = await collected(await done(files.read_bytes_stream(path, range_header="bytes=5-1000004")))
    assert b"".join(part) == BINARY[5:1000005]
    with pytest.raises(SandboxApiException) as error:
        await done(files.read_bytes(path, range_header=f"bytes={len(BINARY)}-"))
    assert error.value.status_code == 416
    with pytest.raises(SandboxApiException) as error:
        await done(files.read_bytes(f"{folder}/none"))
    assert error.value.status_code == 404
    with pytest.raises(SandboxApiException):
        await done(files.read_bytes_stream(f"{folder}/none"))


@only_1_1
async def test_lines(files, folder):
    (folder / "l").write_text("one\ntwo\r\nthree\nfour\n")
    path = f"{folder}/l"
    assert await done(files.read_file(path, offset=2, limit=2)) == "two\nthree"
    assert await done(files.read_file(path, offset=4)) == "four"
    assert await done(files.read_bytes(path, limit=1)) == b"one"
    assert b"".join(await collected(await done(files.read_bytes_stream(path, offset=3)))) == b"three\nfour"
    assert await done(files.read_file(path, offset=9)) == ""
    with pytest.raises(SandboxApiException) as error:
        await done(files.read_file(path, offset=1, range_header="bytes=0-1"))
    assert error.value.status_code == 400


async def test_kernel_files_can_be_read(files):
    assert "Linux" in await done(files.read_file("/proc/version"))


async def test_info(files, folder):
    (folder / "f").write_text("12345")
    (folder / "f").chmod(0o604)
    (folder / "link").symlink_to("nowhere")
    paths = [f"{folder}/f", str(folder), f"{folder}/link"]
    infos = await done(files.get_file_info(paths))
    assert list(infos) == paths
    info = infos[f"{folder}/f"]
    assert (info.path, info.size, info.mode, info.owner, info.group) == (f"{folder}/f", 5, 604, "root", "root")
    assert info.modified_at.timestamp() == pytest.approx(os.stat(folder / "f").st_mtime, abs=0.001)
    assert info.created_at is not None
    if hasattr(info, "entry_type"):
        assert [infos[path].entry_type for path in paths] == ["file", "directory", "symlink"]
    with pytest.raises(SandboxApiException) as error:
        await done(files.get_file_info([f"{folder}/none"]))
    assert error.value.status_code == 404


async def test_directories(files, folder):
    await done(files.create_directories([
        WriteEntry(path=f"{folder}/a/b", mode=700),
        WriteEntry(path=f"{folder}/c", mode=1777, owner="daemon", group="daemon"),
    ]))
    assert mode(folder / "a/b") == 0o700
    assert mode(folder / "c") == 0o1777 and os.stat(folder / "c").st_uid == 1
    # One that exists keeps what it has.
    await done(files.create_directories([WriteEntry(path=f"{folder}/a/b", mode=777)]))
    assert mode(folder / "a/b") == 0o700
    (folder / "a/b/file").write_text("")
    await done(files.delete_directories([f"{folder}/a", f"{folder}/none"]))
    assert os.listdir(folder) == ["c"]


async def test_delete_files(files, folder):
    for name in ("one", "two words+%", "kept"):
        (folder / name).write_text("")
    (folder / "dangling").symlink_to("nowhere")
    await done(files.delete_files([f"{folder}/one", f"{folder}/two words+%", f"{folder}/dangling", f"{folder}/none"]))
    assert os.listdir(folder) == ["kept"]
    with pytest.raises(SandboxApiException):
        await done(files.delete_files([str(folder)]))


async def test_move(files, folder):
    (folder / "a").write_text("a")
    (folder / "d").mkdir()
    (folder / "d/f").write_text("f")
    await done(files.move_files([
        MoveEntry(src=f"{folder}/a", dest=f"{folder}/new/b"),
        MoveEntry(src=f"{folder}/d", dest=f"{folder}/e"),
    ]))
    assert (folder / "new/b").read_text() == "a" and (folder / "e/f").read_text() == "f"
    assert sorted(os.listdir(folder)) == ["e", "new"]
    with pytest.raises(SandboxApiException) as error:
        await done(files.move_files([MoveEntry(src=f"{folder}/none", dest=f"{folder}/x")]))
    assert error.value.status_code == 404
    with pytest.raises(SandboxApiException):
        await done(files.move_files([MoveEntry(src=f"{folder}/e/f", dest=f"{folder}/new/b")]))
    assert (folder / "new/b").read_text() == "a"


async def test_permissions(files, folder):
    (folder / "f").write_text("")
    await done(files.set_permissions([
        SetPermissionEntry(path=f"{folder}/f", mode=6711, owner="daemon", group="12"),
    ]))
    found = os.stat(folder / "f")
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1, 12, 0o6711)
    await done(files.set_permissions([SetPermissionEntry(path=f"{folder}/f", mode=600)]))
    found = os.stat(folder / "f")
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (1, 0o600)
    with pytest.raises(SandboxException):
        await done(files.set_permissions([SetPermissionEntry(path=f"{folder}/none", mode=600)]))
    with pytest.raises(SandboxException):
        await done(files.set_permissions([SetPermissionEntry(path=f"{folder}/f", mode=888)]))


async def test_replace(files, folder):
    (folder / "f").write_text("one two one")
    (folder / "f").chmod(0o640)
    await done(files.replace_contents([
        ContentReplaceEntry(path=f"{folder}/f", old_content="one", new_content="three"),
    ]))
    assert (folder / "f").read_text() == "three two three"
    assert mode(folder / "f") == 0o640
    with pytest.raises(SandboxApiException):
        await done(files.replace_contents([
            ContentReplaceEntry(path=f"{folder}/f", old_content="", new_content="x"),
        ]))


@only_1_1
async def test_replace_with_counts(files, folder):
    (folder / "a").write_text("x x x")
    (folder / "b").write_text("y")
    results = await done(files.replace_contents_detailed([
        ContentReplaceEntry(path=f"{folder}/a", old_content="x", new_content="z"),
        ContentReplaceEntry(path=f"{folder}/b", old_content="x", new_content="z"),
    ]))
    assert {result.path: result.replaced_count for result in results} == {f"{folder}/a": 3, f"{folder}/b": 0}
    assert (folder / "a").read_text() == "z z z"


async def test_search(files, folder):
    (folder / "src/deep").mkdir(parents=True)
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.txt"):
        (folder / name).write_text("")

    async def found(pattern):
        infos = await done(files.search(SearchEntry(path=str(folder), pattern=pattern)))
        return [os.path.relpath(info.path, folder) for info in infos]

    assert await found("*.py") == ["a.py", "src/b.py", "src/deep/c.py"]
    assert await found("**/*.py") == ["a.py", "src/b.py", "src/deep/c.py"]
    assert await found("src/*.py") == ["src/b.py"]
    assert await found("*.{txt,rs}") == ["src/d.txt"]
    assert await found("[a-b].py") == ["a.py", "src/b.py"]
    assert len(await found("**")) == 4
    assert await found("nothing") == []
    with pytest.raises(SandboxApiException) as error:
        await done(files.search(SearchEntry(path=f"{folder}/none", pattern="*")))
    assert error.value.status_code == 404


@only_1_1
async def test_list_directory(files, folder):
    from opensandbox.models.filesystem import DirectoryListEntry

    (folder / "d/e").mkdir(parents=True)
    (folder / "d/e/f").write_text("")
    (folder / "a").write_text("")
    (folder / "link").symlink_to("d")

    async def listed(**options):
        infos = await done(files.list_directory(DirectoryListEntry(path=str(folder), **options)))
        return [(os.path.relpath(info.path, folder), info.entry_type) for info in infos]

    one = [("a", "file"), ("d", "directory"), ("link", "symlink")]
    assert await listed() == one
    assert await listed(depth=1) == one
    assert await listed(depth=0) == []
    assert await listed(depth=3) == [*one[:2], ("d/e", "directory"), ("d/e/f", "file"), one[2]]
    with pytest.raises(SandboxApiException) as error:
        await done(files.list_directory(DirectoryListEntry(path=f"{folder}/link")))
    assert error.value.status_code == 400


@only_1_1
async def test_files_with_identity(sandbox, folder):
    user = sandbox.as_user(1234, 2345)
    await done(user.write_file(f"{folder}/mine", "x", mode=600))
    found = os.stat(folder / "mine")
    assert (found.st_uid, found.st_gid) == (1234, 2345)
    assert await done(user.read_file(f"{folder}/mine")) == "x"
    (folder / "secret").write_text("root's")
    (folder / "secret").chmod(0o600)
    for call in (
        lambda: user.read_file(f"{folder}/secret"),
        lambda: user.write_file(f"{folder}/secret", "y"),
        lambda: user.set_permissions([SetPermissionEntry(path=f"{folder}/secret", mode=666)]),
        lambda: user.write_file("/root/x", "y"),
    ):
        with pytest.raises(SandboxApiException) as error:
            await done(call())
        assert error.value.status_code == 403
    assert (folder / "secret").read_text() == "root's"
    # The daemon itself is root as before.
    assert await done(sandbox.files.read_file(f"{folder}/secret")) == "root's"


@only_1_1
async def test_identity_has_the_groups_of_the_user(sandbox, folder):
    name = await done(sandbox.commands.run("getent group | awk -F: '$4 != \"\" {print $3, $4; exit}'"))
    listed = text(name.logs.stdout).split()
    if not listed:
        needs = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        needs("no group of this machine has a member: usermod -a -G users daemon")
    gid, member = int(listed[0]), listed[1].split(",")[0]
    uid = int(text((await done(sandbox.commands.run(f"id -u {member}"))).logs.stdout))
    (folder / "for-the-group").write_text("shared")
    os.chown(folder / "for-the-group", 0, gid)
    (folder / "for-the-group").chmod(0o640)
    assert await done(sandbox.as_user(uid, 65534).read_file(f"{folder}/for-the-group")) == "shared"


async def test_home_and_variables_in_paths(files, folder):
    home = os.environ.get("HOME", "/root")
    assert await done(files.get_file_info(["~"])) and os.path.isdir(home)
    assert (await done(files.get_file_info(["$HOME"])))["$HOME"].path == home
    with pytest.raises(SandboxApiException) as error:
        await done(files.read_file("$NO_SUCH_VARIABLE/x"))
    assert error.value.status_code == 400
