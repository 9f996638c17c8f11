// Attacks on filesystems: on what the sandbox shares with the host, and on the host's own disk below it.
// Part of hostile.c.

// Notes of the overlay are what makes a layer lead elsewhere.
static int overlay_attributes(void) {
    int bad = STOPPED;
    const char *names[] = {"trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.metacopy", "trusted.x", "security.ima", "security.evm", NULL};
    mkdir("/tmp/noted", 0755);
    for (int i = 0; names[i]; i++) bad = worse(bad, refused(names[i], setxattr("/tmp/noted", names[i], "y", 1, 0), EPERM, EOPNOTSUPP, 0));
    return bad;
}
// A device 0:0 in a layer hides what lies below it.
static int whiteout(void) {
    unlink("/tmp/whiteout");
    return refused("mknod", mknod("/tmp/whiteout", S_IFCHR, makedev(0, 0)), EPERM, 0);
}
// A device that somebody left in a directory of the host.
static int volume_device(void) {
    struct stat st;
    if (stat(args[0], &st) || !S_ISCHR(st.st_mode)) return printf("%s is not a device\n", args[0]), UNCLEAR;
    return refused("opening it", open(args[0], O_RDWR), EACCES, 0);
}
// Stands in a directory that is then moved out of what is mounted, and walks up from there.
static int moved_directory(void) {
    int dir = open(args[2], O_RDONLY | O_DIRECTORY), bad = STOPPED;
    if (dir < 0 || fchdir(dir)) return printf("%s: %s\n", args[2], strerror(errno)), UNCLEAR;
    if (meet(args[0], args[1]) < 0) return UNCLEAR;
    char path[256] = "";
    for (int depth = 1; depth <= 4; depth++) {
        snprintf(path + strlen(path), sizeof path - strlen(path), "../");
        char file[300];
        snprintf(file, sizeof file, "%s%s", path, args[3]);
        int found = openat(dir, file, O_RDONLY);
        bad = worse(bad, refused(file, found, ENOENT, EACCES, ENOTDIR, 0));
    }
    return bad;
}
// Attributes of ext4 and others that would keep the host from deleting what the sandbox leaves.
static int file_flags(void) {
    long flags[] = {0x10 /* immutable */, 0x20 /* append only */};
    int fd = open("/tmp/flagged", O_CREAT | O_RDWR, 0644), bad = STOPPED;
    if (fd < 0) return UNCLEAR;
    for (int i = 0; i < 2; i++) bad = worse(bad, refused("FS_IOC_SETFLAGS", ioctl(fd, 0x40086602, &flags[i]), EPERM, EACCES, ENOTTY, 0));
    return bad;
}
// Stops every writer to the host's disk, through a directory of it.
static int freeze_filesystem(void) {
    int fd = open(args[0], O_RDONLY | O_DIRECTORY);
    uint64_t range[3] = {0, ~0ull, 0};
    if (fd < 0) return printf("%s: %s\n", args[0], strerror(errno)), UNCLEAR;
    int bad = refused("FIFREEZE", ioctl(fd, 0xc0045877, 0), EPERM, 0);
    bad = worse(bad, refused("FITRIM", ioctl(fd, 0xc0185879, range), EPERM, 0));
    return worse(bad, refused("EXT4_IOC_SHUTDOWN", ioctl(fd, 0x8004587d, range), EPERM, 0));
}
static int host_programs_fixed(void) {
    struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    int bad = refused("writing", open("/usr/bin/true", O_WRONLY), EROFS, ETXTBSY, EACCES, EPERM, 0);
    bad = worse(bad, refused("creating", open("/usr/escaped", O_CREAT | O_WRONLY, 0644), EROFS, EACCES, EPERM, 0));
    bad = worse(bad, refused("chmod", chmod("/usr/bin/true", 04755), EROFS, EACCES, EPERM, 0));
    bad = worse(bad, refused("utimensat", utimensat(AT_FDCWD, "/usr/bin/true", now, 0), EROFS, EACCES, EPERM, 0));
    bad = worse(bad, refused("rename", rename("/usr/bin/true", "/usr/bin/untrue"), EROFS, EACCES, EPERM, 0));
    return worse(bad, refused("setxattr", setxattr("/usr/bin/true", "user.x", "y", 1, 0), EROFS, EACCES, EPERM, 0));
}
// Spoils what it shares with other sandboxes of its image, as far as it can.
static int spoil_image(void) {
    int fd = open("/etc/passwd", O_RDWR), spoilt = 0;
    char *view = fd < 0 ? MAP_FAILED : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (view != MAP_FAILED) memcpy(view, "gone", 4), spoilt++, msync(view, 4096, MS_SYNC);
    spoilt += unlink("/setuid") == 0;
    spoilt += rename("/var", "/var-moved") == 0 || errno == EXDEV;
    printf("%d of 3\n", spoilt);
    return spoilt == 3 ? STOPPED : UNCLEAR;
}
static int image_is_whole(void) {
    char line[32] = "";
    FILE *f = fopen("/etc/passwd", "r");
    if (!f || !fgets(line, sizeof line, f)) return ESCAPED;
    printf("%s", line);
    return strncmp(line, "root:", 5) || access("/setuid", F_OK) || access("/var", F_OK) ? ESCAPED : STOPPED;
}
// A tree so deep that its paths are longer than any path may be.
static int deep_tree(void) {
    int depth = 0;
    if (chdir("/var")) return UNCLEAR;
    for (; depth < 3000; depth++) if (mkdir("directory-with-a-long-name", 0755) || chdir("directory-with-a-long-name")) break;
    printf("%d deep\n", depth);
    return depth == 3000 ? STOPPED : UNCLEAR;
}
