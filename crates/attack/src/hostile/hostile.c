// Hostile programs, one per case, run inside a sandbox as its entrypoint.
//
// Exit codes: 0 the attack was stopped in the way it must be, 1 it succeeded, 2 it failed for
// another reason than the protection under test, so the case proves nothing. What happened goes
// to standard output. Linked statically: the sandbox's image holds nothing else.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { STOPPED = 0, ESCAPED = 1, UNCLEAR = 2 };
static char **args; // what follows the case's name

// The verdict on a call that must fail with one of the given errors (ended by 0).
static int refused(const char *what, long result, ...) {
    int found = errno;
    if (result >= 0) {
        printf("%s: it worked\n", what);
        return ESCAPED;
    }
    va_list list;
    va_start(list, result);
    for (int e; (e = va_arg(list, int)) != 0;)
        if (e == found) {
            va_end(list);
            printf("%s: %s\n", what, strerror(found));
            return STOPPED;
        }
    va_end(list);
    printf("%s: failed for another reason: %s\n", what, strerror(found));
    return UNCLEAR;
}
static int worse(int a, int b) { return a == ESCAPED || b == ESCAPED ? ESCAPED : a > b ? a : b; }

static int writes(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return refused(path, -1, EROFS, EACCES, EPERM, ENOENT, 0);
    return refused(path, write(fd, "1", 1), EROFS, EACCES, EPERM, 0);
}
// Nothing can be read: absent, not permitted, or covered by something empty.
static int unreadable(const char *path) {
    char buffer[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return refused(path, -1, EACCES, EPERM, ENOENT, 0);
    long n = read(fd, buffer, sizeof buffer);
    if (n == 0) return printf("%s: empty\n", path), STOPPED;
    if (n < 0 && errno == EISDIR) {
        DIR *dir = fdopendir(fd);
        int entries = 0;
        for (struct dirent *e; dir && (e = readdir(dir));) entries += e->d_name[0] != '.';
        printf("%s: a directory with %d entries\n", path, entries);
        return entries ? ESCAPED : STOPPED;
    }
    return refused(path, n, EACCES, EPERM, EIO, 0);
}
static int absent(const char *path) {
    struct stat st;
    // EACCES: the way there leads through what belongs to PID 1.
    return refused(path, stat(path, &st), ENOENT, ENOTDIR, EACCES, 0);
}

// Class: descriptors and PID 1.
static int fds_own(void) {
    DIR *dir = opendir("/proc/self/fd");
    int bad = STOPPED;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] == '.' || fd == dirfd(dir)) continue;
        char link[64], target[256] = "";
        struct stat st;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) < 0 || fstat(fd, &st)) continue;
        printf("%d -> %s\n", fd, target);
        if (fd > 2 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) bad = ESCAPED;
    }
    return dir ? bad : UNCLEAR;
}
static int cwd_inside(void) {
    char path[4096];
    if (!getcwd(path, sizeof path)) return UNCLEAR;
    printf("%s\n", path);
    if (path[0] != '/') return ESCAPED;
    char up[4200];
    snprintf(up, sizeof up, "../../../../../../../..%s", args[0]);
    return worse(absent(up), absent(args[0]));
}
static int pid1_fd_open(void) {
    int bad = STOPPED, seen = 0;
    for (int fd = 0; fd < 64; fd++) {
        char path[64];
        struct stat st;
        snprintf(path, sizeof path, "/proc/1/fd/%d", fd);
        for (int mode = O_RDONLY; mode <= O_RDWR; mode++) {
            int got = open(path, mode | O_NONBLOCK | O_CLOEXEC);
            if (got < 0) { seen += errno == EACCES; continue; }
            if (!fstat(got, &st) && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
                printf("%s opened with mode %d\n", path, mode);
                bad = ESCAPED;
            }
            close(got);
        }
    }
    printf("%d refusals\n", seen);
    return bad;
}
static int pid1_getfd(void) {
    int pidfd = syscall(SYS_pidfd_open, 1, 0), bad = STOPPED;
    if (pidfd < 0) return refused("pidfd_open", -1, EPERM, ENOSYS, 0);
    for (int fd = 0; fd < 16; fd++)
        bad = worse(bad, refused("pidfd_getfd", syscall(SYS_pidfd_getfd, pidfd, fd, 0), EPERM, EBADF, ENOSYS, 0));
    // EBADF alone would mean that access was granted and the numbers were wrong.
    syscall(SYS_pidfd_getfd, pidfd, 0, 0);
    return errno == EBADF ? ESCAPED : bad;
}
static int pid1_ptrace(void) { return refused("ptrace", ptrace(PTRACE_ATTACH, 1, 0, 0), EPERM, 0); }
static int pid1_mem(void) { return refused("/proc/1/mem", open("/proc/1/mem", O_RDWR), EACCES, EPERM, 0); }
static int pid1_exe(void) {
    int fd = open("/proc/1/exe", O_WRONLY);
    if (fd < 0) return refused("/proc/1/exe", -1, ETXTBSY, EACCES, EPERM, 0);
    return refused("writing /proc/1/exe", write(fd, "x", 1), EPERM, EBADF, 0);
}
static int contains(const char *path, const char *needle) {
    static char buffer[1 << 20];
    int fd = open(path, O_RDONLY);
    long n = fd < 0 ? 0 : read(fd, buffer, sizeof buffer - 1);
    if (fd < 0) return refused(path, -1, EACCES, EPERM, 0);
    if (memmem(buffer, n > 0 ? n : 0, needle, strlen(needle))) return printf("%s has %s\n", path, needle), ESCAPED;
    return printf("%s: %ld bytes, clean\n", path, n), STOPPED;
}
static int token_hidden(void) {
    // In two parts, so that it is not found in the command that looks for it.
    char token[256];
    snprintf(token, sizeof token, "%s%s", args[0], args[1]);
    int bad = worse(contains("/proc/self/environ", token), contains("/proc/1/environ", token));
    return worse(bad, contains("/proc/1/cmdline", token));
}
static int mountinfo_clean(void) { return contains("/proc/self/mountinfo", args[0]); }

// Class: /proc and /sys.
static int proc_sys_kernel(void) {
    const char *files[] = {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
                           "/proc/sys/kernel/panic", "/proc/sys/kernel/yama/ptrace_scope", NULL};
    int bad = STOPPED;
    for (int i = 0; files[i]; i++) bad = worse(bad, writes(files[i]));
    return bad;
}
static int proc_sys_vm(void) { return worse(writes("/proc/sys/vm/overcommit_memory"), writes("/proc/sys/vm/drop_caches")); }
static int proc_sys_fs(void) { return worse(writes("/proc/sys/fs/suid_dumpable"), writes("/proc/sys/fs/file-max")); }
static int proc_sys_net(void) { return worse(writes("/proc/sys/net/ipv4/ip_forward"), writes("/proc/sys/net/core/somaxconn")); }
static int sysrq(void) { return writes("/proc/sysrq-trigger"); }
static int kcore(void) { return unreadable("/proc/kcore"); }
static int kallsyms(void) { return unreadable("/proc/kallsyms"); }
static int kmsg(void) { return worse(unreadable("/proc/kmsg"), absent("/dev/kmsg")); }
static int proc_keys(void) { return unreadable("/proc/keys"); }
static int timers(void) { return unreadable("/proc/timer_list"); }
static int machine_info(void) {
    const char *paths[] = {"/proc/acpi", "/proc/bus", "/proc/irq", "/proc/fs", "/proc/driver", "/proc/scsi", "/sys/firmware", NULL};
    int bad = STOPPED;
    for (int i = 0; paths[i]; i++) bad = worse(bad, unreadable(paths[i]));
    return bad;
}
static int sys_write(void) {
    const char *files[] = {"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/ksm/run", "/sys/class/net/lo/mtu",
                           "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/module/kernel/parameters/panic", NULL};
    int bad = STOPPED;
    for (int i = 0; files[i]; i++) bad = worse(bad, writes(files[i]));
    return bad;
}
static int id_map(void) { return worse(writes("/proc/self/uid_map"), writes("/proc/1/uid_map")); }
static int oom_score(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    if (fd < 0) return UNCLEAR;
    return refused("oom_score_adj", write(fd, "-1000", 5), EACCES, EPERM, 0);
}
static int host_processes(void) {
    DIR *dir = opendir("/proc");
    int count = 0, bad = STOPPED;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int pid = atoi(e->d_name);
        if (pid > 0) count++;
        if (pid == atoi(args[0])) bad = ESCAPED;
    }
    printf("%d processes\n", count);
    return count > 4 ? ESCAPED : bad;
}

// Class: mounts.
static int mount_tmpfs(void) { return refused("mount", mount("x", "/tmp", "tmpfs", 0, ""), EPERM, 0); }
static int mount_proc(void) { return refused("mount", mount("x", "/tmp", "proc", 0, ""), EPERM, 0); }
static int mount_bind(void) { return refused("bind", mount("/proc", "/tmp", "", MS_BIND | MS_REC, ""), EPERM, 0); }
static int remount_rw(void) { return refused("remount", mount("", "/proc/sys", "", MS_BIND | MS_REMOUNT, ""), EPERM, 0); }
static int unmount_mask(void) { return worse(refused("umount", umount2("/proc/kcore", MNT_DETACH), EPERM, 0), refused("umount", umount2("/proc/sys", MNT_DETACH), EPERM, 0)); }
static int mount_overlay(void) { return refused("overlay", mount("x", "/tmp", "overlay", 0, "lowerdir=/,upperdir=/tmp,workdir=/var"), EPERM, 0); }
static int pivot(void) { return refused("pivot_root", syscall(SYS_pivot_root, ".", "."), EPERM, 0); }
static int new_mount_api(void) {
    int bad = refused("fsopen", syscall(SYS_fsopen, "tmpfs", 0), EPERM, 0);
    bad = worse(bad, refused("fspick", syscall(SYS_fspick, AT_FDCWD, "/", 0), EPERM, 0));
    bad = worse(bad, refused("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1), EPERM, 0));
    bad = worse(bad, refused("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0), EPERM, 0));
    return worse(bad, refused("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/proc/sys", 0, "", 32), EPERM, 0));
}
static int chroot_escape(void) {
    int here = open(".", O_RDONLY | O_DIRECTORY);
    mkdir("/tmp/jail", 0755);
    if (chroot("/tmp/jail")) return refused("chroot", -1, EPERM, 0);
    if (fchdir(here)) return UNCLEAR;
    for (int i = 0; i < 64; i++) if (chdir("..")) return UNCLEAR;
    if (chroot(".")) return UNCLEAR;
    // Out of the jail it made itself, and still in the sandbox.
    if (access("/hostile", X_OK)) return UNCLEAR;
    return absent(args[0]);
}
// What the namespace began as lies under the root: a walk upwards must never come out there. The
// root is an overlay, what lies under it is not.
static int on_the_root(const char *what, int dir) {
    struct statfs found;
    if (dir < 0 && errno == EACCES) return STOPPED; // PID 1 lets nobody look at it
    if (dir < 0 || fstatfs(dir, &found)) {
        printf("%s: %s\n", what, strerror(errno));
        return UNCLEAR;
    }
    int is_root = found.f_type == 0x794c7630 && faccessat(dir, "hostile", X_OK, 0) == 0;
    printf("%s: %s\n", what, is_root ? "the root" : "something else");
    return is_root ? STOPPED : ESCAPED;
}
static int under_the_root(void) {
    int flags = O_PATH | O_DIRECTORY, root = open("/", flags);
    int bad = on_the_root("..", openat(root, "..", flags));
    bad = worse(bad, on_the_root("pid 1", open("/proc/1/root/..", flags)));
    bad = worse(bad, on_the_root("self", open("/proc/self/root/../..", flags)));
    bad = worse(bad, on_the_root("a mount", open("/proc/../..", flags)));
    mkdir("/tmp/lower", 0755);
    if (fchdir(root) || chroot("/tmp/lower")) return UNCLEAR;
    // Without the root of its own in the way nothing stops the walk but the end of the mounts.
    bad = worse(bad, on_the_root("from outside", open("../..", flags)));
    if (chdir("..") || chdir("..")) return UNCLEAR;
    return worse(bad, on_the_root("having walked", open(".", flags)));
}

// Class: devices.
static int make_device(mode_t kind, unsigned a, unsigned b) {
    unlink("/tmp/node");
    if (mknod("/tmp/node", kind | 0666, makedev(a, b))) return refused("mknod", -1, EPERM, 0);
    int fd = open("/tmp/node", O_RDONLY);
    return refused("opening the node", fd, EACCES, EPERM, ENXIO, 0);
}
static int mknod_mem(void) { return make_device(S_IFCHR, 1, 1); }
static int mknod_kmsg(void) { return make_device(S_IFCHR, 1, 11); }
static int mknod_disk(void) { return worse(make_device(S_IFBLK, 8, 0), make_device(S_IFBLK, 254, 0)); }
static int dev_absent(void) {
    const char *names[] = {"/dev/mem", "/dev/kvm", "/dev/fuse", "/dev/loop-control", "/dev/net/tun", "/dev/vda", "/dev/sda", "/dev/console", NULL};
    int bad = STOPPED;
    for (int i = 0; names[i]; i++) bad = worse(bad, absent(names[i]));
    return bad;
}
static int dev_fixed(void) {
    int bad = refused("creating in /dev", open("/dev/new", O_CREAT | O_WRONLY, 0666), EROFS, EACCES, EPERM, 0);
    bad = worse(bad, refused("chmod /dev/null", chmod("/dev/null", 0), EROFS, EPERM, 0));
    bad = worse(bad, refused("unlink /dev/null", unlink("/dev/null"), EROFS, EPERM, EACCES, 0));
    return worse(bad, refused("xattr /dev/null", setxattr("/dev/null", "user.x", "y", 1, 0), EROFS, EPERM, 0));
}

// Class: cgroups.
static int cgroup_mount(void) {
    int bad = refused("cgroup", mount("x", "/tmp", "cgroup", 0, "memory"), EPERM, 0);
    return worse(bad, refused("cgroup2", mount("x", "/tmp", "cgroup2", 0, ""), EPERM, 0));
}
static int find_writable(const char *dir, const char *name, int depth) {
    DIR *d = opendir(dir);
    int bad = STOPPED;
    for (struct dirent *e; d && depth > 0 && (e = readdir(d));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.') continue;
        if (!strcmp(e->d_name, name) && open(path, O_WRONLY) >= 0) bad = (printf("%s is writable\n", path), ESCAPED);
        if (e->d_type == DT_DIR) bad = worse(bad, find_writable(path, name, depth - 1));
    }
    if (d) closedir(d);
    return bad;
}
static int release_agent(void) { return find_writable("/sys/fs", "release_agent", 6); }
static int cgroup_leave(void) { return worse(find_writable("/sys/fs", "cgroup.procs", 6), find_writable("/sys/fs", "tasks", 6)); }
static int cgroup_raise(void) { return worse(find_writable("/sys/fs", "memory.max", 6), find_writable("/sys/fs", "pids.max", 6)); }

// Class: namespaces.
static int unshares(int flag) { return refused("unshare", unshare(flag), EPERM, 0); }
static int unshare_user(void) { return unshares(CLONE_NEWUSER); }
static int unshare_mount(void) { return unshares(CLONE_NEWNS); }
static int unshare_net(void) { return unshares(CLONE_NEWNET); }
static int unshare_rest(void) {
    int bad = worse(unshares(CLONE_NEWPID), unshares(CLONE_NEWIPC));
    return worse(bad, worse(unshares(CLONE_NEWUTS), worse(unshares(CLONE_NEWCGROUP), unshares(0x80))));
}
static int clone_user(void) {
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    return refused("clone", pid, EPERM, 0);
}
static int clone_three(void) {
    uint64_t clone_args[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0};
    long pid = syscall(SYS_clone3, clone_args, sizeof clone_args);
    if (pid == 0) _exit(0);
    return refused("clone3", pid, ENOSYS, EPERM, 0);
}
static int join_pid1(void) {
    const char *kinds[] = {"mnt", "net", "pid", "user", "uts", "ipc", "cgroup", NULL};
    int bad = STOPPED;
    for (int i = 0; kinds[i]; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/1/ns/%s", kinds[i]);
        int fd = open(path, O_RDONLY);
        bad = worse(bad, fd < 0 ? refused(path, -1, EACCES, EPERM, 0) : refused(path, setns(fd, 0), EPERM, 0));
    }
    return bad;
}
static int join_self(void) {
    int fd = open("/proc/self/ns/mnt", O_RDONLY);
    return fd < 0 ? UNCLEAR : refused("setns", setns(fd, 0), EPERM, 0);
}

// Class: privileges.
static int run_child(const char *path, const char *name, int uid) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (uid && (setgid(uid) || setuid(uid))) _exit(UNCLEAR);
        char *const argv[] = {(char *)path, (char *)name, NULL};
        execv(path, argv);
        // A program whose capabilities are out of bounds is not even started.
        _exit(errno == EPERM ? STOPPED : UNCLEAR);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) return UNCLEAR;
    return WEXITSTATUS(status);
}
static int i_am_root(void) { return printf("uid %d, effective %d\n", getuid(), geteuid()), geteuid() == 0 ? ESCAPED : STOPPED; }
static int setuid_program(void) {
    struct stat st;
    if (stat("/setuid", &st) || !(st.st_mode & S_ISUID)) return printf("the image lost the bit\n"), UNCLEAR;
    return run_child("/setuid", "i_am_root", 1000);
}
static int setuid_own(void) {
    // Its own copy, owned by the sandbox's root.
    if (system("true") == -2) return UNCLEAR;
    int in = open("/hostile", O_RDONLY), out = open("/tmp/copy", O_CREAT | O_WRONLY, 0755);
    static char buffer[1 << 16];
    for (long n; (n = read(in, buffer, sizeof buffer)) > 0;) if (write(out, buffer, n) != n) return UNCLEAR;
    close(out);
    if (chmod("/tmp/copy", 04755)) return refused("chmod", -1, EPERM, 0);
    return run_child("/tmp/copy", "i_am_root", 1000);
}
static unsigned long long status_field(const char *name, int base) {
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long value = ~0ull;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':') value = strtoull(line + strlen(name) + 1, NULL, base);
    if (f) fclose(f);
    return value;
}
static int capabilities(void) {
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT, SETFCAP.
    unsigned long long allowed = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x400 | 0x40000 | 0x80000000ull;
    int bad = STOPPED;
    const char *sets[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", NULL};
    for (int i = 0; sets[i]; i++) {
        unsigned long long held = status_field(sets[i], 16);
        printf("%s %llx\n", sets[i], held);
        if (held & ~allowed) bad = ESCAPED;
    }
    return bad;
}
static int capset_raise(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    int bad = refused("capset", syscall(SYS_capset, &header, data), EPERM, 0);
    return worse(bad, refused("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0), EPERM, 0));
}
static int has_sys_admin(void) { return status_field("CapEff", 16) >> CAP_SYS_ADMIN & 1 ? ESCAPED : STOPPED; }
static int file_capability(void) {
    // A version 2 attribute that would grant everything.
    uint32_t attribute[5] = {0x02000001, ~0u, ~0u, ~0u, ~0u};
    int in = open("/hostile", O_RDONLY), out = open("/tmp/capable", O_CREAT | O_WRONLY, 0755);
    static char buffer[1 << 16];
    for (long n; (n = read(in, buffer, sizeof buffer)) > 0;) if (write(out, buffer, n) != n) return UNCLEAR;
    close(out);
    if (setxattr("/tmp/capable", "security.capability", attribute, sizeof attribute, 0)) return refused("setxattr", -1, EPERM, 0);
    return run_child("/tmp/capable", "has_sys_admin", 1000);
}
static int locked_in(void) {
    unsigned long long nnp = status_field("NoNewPrivs", 10), mode = status_field("Seccomp", 10);
    printf("NoNewPrivs %llu, Seccomp %llu\n", nnp, mode);
    if (nnp != 1 || mode != 2) return ESCAPED;
    return refused("prctl", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL, 0);
}
static int keyring(void) {
    int bad = refused("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -3), EPERM, 0);
    bad = worse(bad, refused("keyctl", syscall(SYS_keyctl, 0, -3, 1), EPERM, 0));
    return worse(bad, refused("request_key", syscall(SYS_request_key, "user", "x", 0, -3), EPERM, 0));
}
static int bpf_load(void) { char attr[128] = {0}; return refused("bpf", syscall(SYS_bpf, 0, attr, sizeof attr), EPERM, 0); }
static int perf(void) { char attr[128] = {1, 0, 0, 0, 112}; return refused("perf_event_open", syscall(SYS_perf_event_open, attr, 0, -1, -1, 0), EPERM, 0); }
static int uring(void) { char params[128] = {0}; return refused("io_uring_setup", syscall(SYS_io_uring_setup, 4, params), ENOSYS, 0); }
static int uffd(void) { return worse(refused("userfaultfd", syscall(SYS_userfaultfd, 1), EPERM, 0), absent("/dev/userfaultfd")); }
static int by_handle(void) { char h[64] = {8, 0, 0, 0, 1}; return refused("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, h, 0), EPERM, 0); }
static int fanotify(void) { return refused("fanotify_init", syscall(SYS_fanotify_init, 0x200, 0), EPERM, 0); }
static int modules(void) {
    int bad = refused("init_module", syscall(SYS_init_module, "x", 1, ""), EPERM, 0);
    bad = worse(bad, refused("finit_module", syscall(SYS_finit_module, 0, "", 0), EPERM, 0));
    return worse(bad, refused("delete_module", syscall(SYS_delete_module, "x", 0), EPERM, 0));
}
static int kexec(void) { return worse(refused("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0), EPERM, 0), refused("kexec_file_load", syscall(SYS_kexec_file_load, 0, 0, 0, "", 0), EPERM, 0)); }
static int machine(void) {
    struct timespec t = {0, 0};
    struct timeval v = {0, 0};
    struct timex x = {.modes = ADJ_OFFSET};
    int bad = refused("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0), EPERM, 0);
    bad = worse(bad, refused("swapon", syscall(SYS_swapon, "/x", 0), EPERM, 0));
    bad = worse(bad, refused("acct", syscall(SYS_acct, "/x"), EPERM, 0));
    bad = worse(bad, refused("clock_settime", clock_settime(CLOCK_REALTIME, &t), EPERM, 0));
    bad = worse(bad, refused("settimeofday", settimeofday(&v, NULL), EPERM, 0));
    bad = worse(bad, refused("adjtimex", adjtimex(&x), EPERM, 0));
    bad = worse(bad, refused("sethostname", sethostname("x", 1), EPERM, 0));
    bad = worse(bad, refused("syslog", syscall(SYS_syslog, 3, "", 0), EPERM, 0));
    return worse(bad, refused("quotactl", syscall(SYS_quotactl, 0, "/x", 0, 0), EPERM, 0));
}
static int hardware(void) {
    int bad = STOPPED;
#ifdef __x86_64__
    bad = worse(refused("iopl", syscall(SYS_iopl, 3), EPERM, 0), refused("ioperm", syscall(SYS_ioperm, 0, 1, 1), EPERM, 0));
    bad = worse(bad, refused("modify_ldt", syscall(SYS_modify_ldt, 0, &bad, 1), EPERM, 0));
#endif
    return bad;
}
static int other_abi(void) {
#ifdef __x86_64__
    // mount(2) by the numbers of the 32-bit and the x32 interface, with bad pointers: only a
    // filter that knows them answers otherwise than EFAULT.
    pid_t pid = fork();
    if (pid == 0) {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(21L), "b"(0L), "c"(0L), "d"(0L), "S"(0L), "D"(0L) : "memory");
        _exit(result == -EPERM || result == -ENOSYS ? STOPPED : ESCAPED);
    }
    int status, bad;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) bad = STOPPED, printf("int 0x80: signal %d\n", WTERMSIG(status));
    else bad = WEXITSTATUS(status), printf("int 0x80: %s\n", bad ? "reached the kernel" : "refused");
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        long result = syscall(0x40000000 | SYS_mount, 0, 0, 0, 0, 0);
        _exit(result < 0 && (errno == EPERM || errno == ENOSYS) ? STOPPED : ESCAPED);
    }
    waitpid(pid, &status, 0);
    return worse(bad, WIFSIGNALED(status) ? STOPPED : WEXITSTATUS(status));
#else
    return STOPPED;
#endif
}
static int personalities(void) { return refused("personality", syscall(SYS_personality, 0x0040000), EPERM, 0); }
static int new_calls(void) {
    // Beyond every number the profile has reviewed.
    int bad = STOPPED;
    for (long number = 467; number < 512; number++)
        bad = worse(bad, refused("an unreviewed call", syscall(number, -1, -1, -1, -1, -1), ENOSYS, 0));
    return bad;
}
static int scheduling(void) {
    struct sched_param p = {.sched_priority = 1};
    return worse(refused("SCHED_FIFO", sched_setscheduler(0, SCHED_FIFO, &p), EPERM, 0), refused("nice", setpriority(PRIO_PROCESS, 0, -10), EPERM, EACCES, 0));
}
static int raise_limits(void) {
    struct rlimit files, unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_max++;
    files.rlim_cur = files.rlim_max;
    // Says that it worked, and did nothing.
    setrlimit(RLIMIT_CORE, &unlimited);
    struct rlimit core;
    if (getrlimit(RLIMIT_CORE, &core) || core.rlim_cur > 1 || core.rlim_max > 1) return ESCAPED;
    return refused("files", setrlimit(RLIMIT_NOFILE, &files), EPERM, 0);
}
static int terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) return UNCLEAR;
    char name[64];
    if (ptsname_r(master, name, sizeof name)) return UNCLEAR;
    setsid();
    int fd = open(name, O_RDWR), discipline = 2;
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0)) return UNCLEAR;
    int bad = refused("TIOCSTI", ioctl(fd, TIOCSTI, "x"), EPERM, 0);
    // The kernel reads the number's low half only: the high half must not get past the filter.
    bad = worse(bad, refused("TIOCSTI with a high bit", syscall(SYS_ioctl, fd, 0x100000000UL | TIOCSTI, "x"), EPERM, 0));
    bad = worse(bad, refused("TIOCLINUX", ioctl(fd, 0x541C, "\3"), EPERM, 0));
    return worse(bad, refused("TIOCSETD", ioctl(fd, TIOCSETD, &discipline), EPERM, 0));
}

// Class: other sandboxes and the host.
static int host_pid(void) {
    pid_t pid = atoi(args[0]);
    char word[8];
    struct iovec local = {word, sizeof word}, remote = {(void *)0x1000, sizeof word};
    int bad = refused("kill", kill(pid, SIGKILL), ESRCH, 0);
    bad = worse(bad, refused("ptrace", ptrace(PTRACE_ATTACH, pid, 0, 0), ESRCH, 0));
    bad = worse(bad, refused("pidfd_open", syscall(SYS_pidfd_open, pid, 0), ESRCH, EINVAL, 0));
    return worse(bad, refused("process_vm_readv", process_vm_readv(pid, &local, 1, &remote, 1, 0), ESRCH, 0));
}
static int kill_all(void) {
    kill(-1, SIGKILL);
    kill(0, 0);
    return refused("kill 1", kill(1, 0) ? -1 : (errno = EPERM, -1), EPERM, ESRCH, 0);
}
static int abstract_socket(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(a.sun_path + 1, args[0], strlen(args[0]));
    return refused("connect", connect(fd, (void *)&a, sizeof a.sun_family + 1 + strlen(args[0])), ECONNREFUSED, 0);
}
static int shared_segment(void) { return refused("shmat", shmget(atoi(args[0]), 1, 0), ENOENT, 0); }
static int raw_socket(void) {
    int bad = refused("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM, 0);
    bad = worse(bad, refused("packet", socket(AF_PACKET, SOCK_RAW, htons(3)), EAFNOSUPPORT, EPERM, 0));
    bad = worse(bad, refused("vsock", socket(40, SOCK_STREAM, 0), EAFNOSUPPORT, 0));
    return worse(bad, refused("alg", socket(38, SOCK_SEQPACKET, 0), EAFNOSUPPORT, 0));
}
static int netlink_rules(void) { return refused("nfnetlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), EPROTONOSUPPORT, EPERM, 0); }
static int transparent(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    return refused("IP_TRANSPARENT", setsockopt(fd, IPPROTO_IP, 19, &one, sizeof one), EPERM, 0);
}
static int change_address(void) {
    struct { struct nlmsghdr h; struct ifaddrmsg a; struct rtattr r; unsigned char ip[4]; } m = {
        {sizeof m, RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0}, {AF_INET, 32, 0, 0, 2}, {8, IFA_LOCAL}, {10, 88, 9, 9}};
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    char answer[512];
    if (fd < 0 || send(fd, &m, sizeof m, 0) < 0 || recv(fd, answer, sizeof answer, 0) < 0) return UNCLEAR;
    errno = -*(int *)(answer + sizeof(struct nlmsghdr));
    return refused("RTM_NEWADDR", errno ? -1 : 0, EPERM, 0);
}
// Sends a datagram to each address given; the harness looks who received one. Then proves that
// the network works by one to the last.
static int send_datagrams(void) {
    for (int i = 0; args[i]; i += 2) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(args[i + 1]))};
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        inet_pton(AF_INET, args[i], &a.sin_addr);
        long n = sendto(fd, "probe", 5, 0, (void *)&a, sizeof a);
        printf("%s: %s\n", args[i], n < 0 ? strerror(errno) : "sent");
        close(fd);
    }
    return STOPPED;
}
static int forge_source(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_port = htons(atoi(args[2]))};
    inet_pton(AF_INET, args[0], &from.sin_addr);
    inet_pton(AF_INET, args[1], &to.sin_addr);
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
    if (bind(fd, (void *)&from, sizeof from)) return refused("bind", -1, EADDRNOTAVAIL, EPERM, 0);
    long n = sendto(fd, "forged", 6, 0, (void *)&to, sizeof to);
    return n < 0 ? refused("sendto", -1, EINVAL, ENETUNREACH, EPERM, 0) : (printf("sent; the harness looks\n"), STOPPED);
}
static int tcp_refused(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(args[1]))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, args[0], &a.sin_addr);
    return refused("connect", connect(fd, (void *)&a, sizeof a), ECONNREFUSED, ENETUNREACH, 0);
}

// Says that it is ready and waits for the word to go on, over TCP to the harness outside.
static int meet(const char *address, const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char word;
    inet_pton(AF_INET, address, &a.sin_addr);
    if (connect(fd, (void *)&a, sizeof a) || write(fd, "r", 1) != 1) return -1;
    return read(fd, &word, 1) == 1 ? fd : -1;
}
static int watch_dev(void) {
    int fd = inotify_init1(IN_NONBLOCK), watched = 0;
    const char *places[] = {"/dev", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/tty", NULL};
    for (int i = 0; places[i]; i++) watched += inotify_add_watch(fd, places[i], IN_OPEN | IN_CLOSE | IN_ACCESS | IN_MODIFY | IN_ATTRIB) >= 0;
    if (!watched) return printf("nothing can be watched\n"), STOPPED;
    if (meet(args[0], args[1]) < 0) return UNCLEAR;
    char events[4096];
    long n = read(fd, events, sizeof events);
    printf("%ld bytes of events\n", n);
    return n > 0 ? ESCAPED : STOPPED;
}
static int touch_dev(void) {
    char b;
    int fd = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY);
    return write(fd, "x", 1) == 1 && read(zero, &b, 1) == 1 ? STOPPED : UNCLEAR;
}
static int hog_inotify(void) {
    int count = 0;
    while (count < 100000 && inotify_init1(0) >= 0) count++;
    printf("%d instances: %s\n", count, strerror(errno));
    return meet(args[0], args[1]) < 0 ? UNCLEAR : STOPPED;
}
static int one_inotify(void) { return inotify_init1(0) >= 0 ? STOPPED : (printf("%s\n", strerror(errno)), ESCAPED); }
static int hog_ptys(void) {
    int count = 0, limit = atoi(args[2]);
    for (int child = 0; child < 64; child++) {
        int pipes[2], got = 0;
        if (pipe(pipes)) break;
        if (fork() == 0) {
            while (got < 900 && posix_openpt(O_RDWR | O_NOCTTY) >= 0) got++;
            if (write(pipes[1], &got, sizeof got) < 0) _exit(1);
            pause();
        }
        close(pipes[1]);
        if (read(pipes[0], &got, sizeof got) != sizeof got) break;
        count += got;
        if (got < 900 || count > 20000) break;
    }
    printf("%d terminals, at most %d may be\n", count, limit);
    fflush(stdout);
    if (meet(args[0], args[1]) < 0) return UNCLEAR;
    return count > limit ? ESCAPED : STOPPED;
}
static int one_pty(void) { return posix_openpt(O_RDWR | O_NOCTTY) >= 0 ? STOPPED : (printf("%s\n", strerror(errno)), ESCAPED); }

// Class: bombs.
static int fork_bomb(void) {
    int limit = atoi(args[0]), count = 0;
    for (; count <= limit; count++) {
        pid_t pid = fork();
        if (pid < 0) break;
        if (pid == 0) pause(), _exit(0);
    }
    printf("%d processes, then %s\n", count, strerror(errno));
    return count >= limit ? ESCAPED : errno == EAGAIN ? STOPPED : UNCLEAR;
}
static int memory_bomb(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        size_t limit = strtoull(args[0], NULL, 10);
        for (size_t used = 0; used < limit * 2; used += 1 << 20) memset(malloc(1 << 20), 1, 1 << 20);
        _exit(ESCAPED);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("%s\n", WIFSIGNALED(status) ? "killed" : "lived");
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? STOPPED : ESCAPED;
}
static int shm_bomb(void) {
    size_t limit = strtoull(args[0], NULL, 10), used = 0;
    static char block[1 << 20];
    int fd = open("/dev/shm/big", O_CREAT | O_WRONLY, 0600);
    if (fd < 0) return UNCLEAR;
    while (used < limit * 2) {
        long n = write(fd, block, sizeof block);
        if (n <= 0) break;
        used += n;
    }
    printf("%zu bytes, then %s\n", used, strerror(errno));
    return used > limit ? ESCAPED : errno == ENOSPC || errno == ENOMEM ? STOPPED : UNCLEAR;
}
static int inode_bomb(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char name[64];
        for (int i = 0; i < 2000000; i++) {
            snprintf(name, sizeof name, "/dev/shm/%d", i);
            int fd = open(name, O_CREAT | O_WRONLY, 0600);
            if (fd < 0) { printf("%d files, then %s\n", i, strerror(errno)); fflush(stdout); _exit(errno == ENOSPC || errno == ENOMEM ? STOPPED : UNCLEAR); }
            close(fd);
        }
        _exit(ESCAPED);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? (printf("killed\n"), STOPPED) : WEXITSTATUS(status);
}
static int disk_bomb(void) {
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    long limit = atol(args[0]), written = 0;
    int fd = open("/var/bomb", O_CREAT | O_WRONLY, 0600);
    if (fd < 0) return UNCLEAR;
    while (written <= limit) {
        long n = write(fd, block, sizeof block);
        if (n < 0) { printf("%ld bytes, then %s\n", written, strerror(errno)); return errno == ENOSPC ? STOPPED : UNCLEAR; }
        written += n;
    }
    return ESCAPED;
}
static int file_bomb(void) {
    char name[64];
    for (int i = 0; i < 200000; i++) {
        snprintf(name, sizeof name, "/var/%d", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) { printf("%d files, then %s\n", i, strerror(errno)); return errno == ENOSPC ? STOPPED : UNCLEAR; }
        close(fd);
    }
    return ESCAPED;
}
static int fd_bomb(void) {
    int limit = atoi(args[0]), count = 0;
    while (count <= limit && dup(0) >= 0) count++;
    printf("%d descriptors, then %s\n", count, strerror(errno));
    return count >= limit ? ESCAPED : errno == EMFILE ? STOPPED : UNCLEAR;
}
static int log_bomb(void) {
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    block[sizeof block - 1] = '\n';
    for (int i = 0; i < 16 * 64; i++) if (write(1, block, sizeof block) < 0) return UNCLEAR;
    return STOPPED;
}
static int log_seek(void) {
    // Whatever standard output is, it must not let the program place bytes in a file of the host.
    if (lseek(1, 1L << 40, SEEK_SET) >= 0 && write(1, "x", 1) == 1) return ESCAPED;
    return refused("ftruncate", ftruncate(1, 1L << 40), EINVAL, EPERM, EBADF, 0);
}

// Class: files.
static int hidden_paths(void) {
    int bad = STOPPED;
    for (int i = 0; args[i]; i++) bad = worse(bad, absent(args[i]));
    return bad;
}
static int unreadable_paths(void) {
    int bad = STOPPED;
    for (int i = 0; args[i]; i++) bad = worse(bad, unreadable(args[i]));
    return bad;
}
static int plant_link(void) { return symlink(args[0], args[1]) ? UNCLEAR : STOPPED; }
static int leave_file(void) {
    int fd = open(args[0], O_CREAT | O_WRONLY | O_TRUNC, 0644);
    return fd >= 0 && write(fd, "left by the sandbox", 19) == 19 ? STOPPED : (printf("%s\n", strerror(errno)), UNCLEAR);
}
static int read_only_volume(void) { return refused("writing", open(args[0], O_CREAT | O_WRONLY, 0644), EROFS, 0); }
static int nothing(void) { return STOPPED; }

#include "shared.c"
#include "network.c"
#include "kernel.c"
#include "files.c"
#include "control.c"

#define CASE(name) {#name, name}
static const struct { const char *name; int (*run)(void); } cases[] = {
    CASE(fds_own), CASE(cwd_inside), CASE(pid1_fd_open), CASE(pid1_getfd), CASE(pid1_ptrace), CASE(pid1_mem), CASE(pid1_exe),
    CASE(token_hidden), CASE(mountinfo_clean), CASE(proc_sys_kernel), CASE(proc_sys_vm), CASE(proc_sys_fs), CASE(proc_sys_net),
    CASE(sysrq), CASE(kcore), CASE(kallsyms), CASE(kmsg), CASE(proc_keys), CASE(timers), CASE(machine_info), CASE(sys_write),
    CASE(id_map), CASE(oom_score), CASE(host_processes), CASE(mount_tmpfs), CASE(mount_proc), CASE(mount_bind), CASE(remount_rw),
    CASE(unmount_mask), CASE(mount_overlay), CASE(pivot), CASE(new_mount_api), CASE(chroot_escape), CASE(under_the_root), CASE(mknod_mem), CASE(mknod_kmsg),
    CASE(mknod_disk), CASE(dev_absent), CASE(dev_fixed), CASE(cgroup_mount), CASE(release_agent), CASE(cgroup_leave), CASE(cgroup_raise),
    CASE(unshare_user), CASE(unshare_mount), CASE(unshare_net), CASE(unshare_rest), CASE(clone_user), CASE(clone_three), CASE(join_pid1),
    CASE(join_self), CASE(i_am_root), CASE(setuid_program), CASE(setuid_own), CASE(capabilities), CASE(capset_raise), CASE(has_sys_admin),
    CASE(file_capability), CASE(locked_in), CASE(keyring), CASE(bpf_load), CASE(perf), CASE(uring), CASE(uffd), CASE(by_handle),
    CASE(fanotify), CASE(modules), CASE(kexec), CASE(machine), CASE(hardware), CASE(other_abi), CASE(personalities), CASE(new_calls),
    CASE(scheduling), CASE(raise_limits), CASE(terminal), CASE(host_pid), CASE(kill_all), CASE(abstract_socket), CASE(shared_segment),
    CASE(raw_socket), CASE(netlink_rules), CASE(transparent), CASE(change_address), CASE(send_datagrams), CASE(forge_source),
    CASE(tcp_refused), CASE(watch_dev), CASE(touch_dev), CASE(hog_inotify), CASE(one_inotify), CASE(hog_ptys), CASE(one_pty),
    CASE(fork_bomb), CASE(memory_bomb), CASE(shm_bomb), CASE(inode_bomb), CASE(disk_bomb), CASE(file_bomb), CASE(fd_bomb), CASE(log_bomb), CASE(log_seek),
    CASE(hidden_paths), CASE(unreadable_paths), CASE(plant_link), CASE(leave_file), CASE(read_only_volume), CASE(nothing),
    CASE(netlink_hog), CASE(ping_hog), CASE(netlink_takeover), CASE(tcp_memory), CASE(udp_memory), CASE(neighbour_table), CASE(socket_filter), CASE(aio), CASE(default_files), CASE(page_cache_spy), CASE(secret_memory),
    CASE(pid1_limits), CASE(core_limit), CASE(oom_order), CASE(default_limits), CASE(sys_devices), CASE(proc_machine), CASE(sys_useful), CASE(leave_privileges), CASE(leaked_directory), CASE(watch_file), CASE(lock_file), CASE(lock_again),
    CASE(other_families), CASE(other_netlinks), CASE(packet_filter), CASE(socket_mark), CASE(new_link), CASE(change_link), CASE(change_route), CASE(change_neighbour), CASE(traffic_control),
    CASE(source_route), CASE(to_everybody), CASE(connection_table), CASE(tcp_unreachable), CASE(old_calls), CASE(pid1_memory), CASE(pid1_signals), CASE(kernel_filesystems), CASE(binary_formats),
    CASE(page_frames), CASE(kernel_stacks), CASE(random_pool), CASE(thread_bomb), CASE(nameless_memory), CASE(processor_hog), CASE(overlay_attributes), CASE(whiteout), CASE(volume_device),
    CASE(moved_directory), CASE(file_flags), CASE(freeze_filesystem), CASE(host_programs_fixed), CASE(spoil_image), CASE(image_is_whole), CASE(deep_tree), CASE(execd_without_token), CASE(connection_flood),
    CASE(unix_sockets), CASE(make_segment), CASE(remove_segment),
};

int main(int argc, char **argv) {
    if (argc < 2) return UNCLEAR;
    args = argv + 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1])) {
            int verdict = cases[i].run();
            fflush(stdout);
            return verdict;
        }
    printf("no case %s\n", argv[1]);
    return UNCLEAR;
}
