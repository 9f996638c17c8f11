// Attacks on what all sandboxes and the host have together: memory that nobody is charged for,
// tables of the kernel, limits, and what the kernel tells about the machine. Part of hostile.c.

// Class: memory that nobody is charged for.
static int open_sockets(int family, int type, int protocol, int at_most, int *list) {
    int count = 0;
    while (count < at_most && (list[count] = socket(family, type, protocol)) >= 0) count++;
    return count;
}
// Opens sockets until refused, here and in a child, closes them and opens one again.
static int hog_sockets(int family, int type, int protocol) {
    int limit = atoi(args[0]), more = limit + 64, status;
    int *list = calloc(more, sizeof *list);
    int count = open_sockets(family, type, protocol, more, list), why = errno;
    printf("%d sockets, then %s\n", count, strerror(why));
    if (count > limit) return ESCAPED;
    if (count == 0 || why != EMFILE) return UNCLEAR;
    fflush(stdout);
    if (fork() == 0) _exit(socket(family, type, protocol) >= 0 ? ESCAPED : errno == EMFILE ? STOPPED : UNCLEAR);
    if (wait(&status) < 0 || !WIFEXITED(status)) return UNCLEAR;
    for (int i = 0; i < count; i++) close(list[i]);
    int again = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    if (again < 0) return printf("none after all were closed: %s\n", strerror(errno)), UNCLEAR;
    if (!(fcntl(again, F_GETFD) & FD_CLOEXEC) || !(fcntl(again, F_GETFL) & O_NONBLOCK)) return printf("the flags were lost\n"), UNCLEAR;
    return WEXITSTATUS(status);
}
static int netlink_hog(void) {
    // The sockets are of use: they tell of this sandbox's links.
    struct { struct nlmsghdr h; struct ifinfomsg i; } ask = {{sizeof ask, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {0}};
    char answer[8192];
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct sockaddr_nl own = {.nl_family = AF_NETLINK};
    if (fd < 0 || bind(fd, (void *)&own, sizeof own) || send(fd, &ask, sizeof ask, 0) < 0) return printf("netlink: %s\n", strerror(errno)), UNCLEAR;
    long n = recv(fd, answer, sizeof answer, 0);
    if (n <= 0 || !memmem(answer, n, "lo", 3)) return printf("no link in %ld bytes\n", n), UNCLEAR;
    close(fd);
    return hog_sockets(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
}
static int ping_hog(void) { return hog_sockets(AF_INET, SOCK_DGRAM, IPPROTO_ICMP); }
// A filter of its own must not be able to answer in the spawner's place.
static int netlink_takeover(void) {
    struct sock_filter code[] = {{0x06, 0, 0, 0x7fc00000}};
    struct sock_fprog program = {1, code};
    return refused("a second listener", syscall(SYS_seccomp, 1, 1 << 3, &program), EBUSY, 0);
}
static long fill_stream(int pair[2]) {
    static char block[1 << 16];
    long total = 0;
    for (long n; (n = send(pair[0], block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;) total += n;
    return total;
}
static int connected(int family, int pair[2]) {
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr *a = family == AF_INET ? (void *)&a4 : (void *)&a6;
    socklen_t size = family == AF_INET ? sizeof a4 : sizeof a6;
    int listener = socket(family, SOCK_STREAM, 0);
    if (bind(listener, a, size) || listen(listener, 1) || getsockname(listener, a, &size)) return -1;
    pair[0] = socket(family, SOCK_STREAM, 0);
    if (connect(pair[0], a, size) || (pair[1] = accept(listener, 0, 0)) < 0) return -1;
    return close(listener);
}
// Fills what nobody reads, in a child: being killed for it is as good.
static int queue_bytes(const char *what, long (*fill)(int)) {
    long limit = atol(args[0]), total = 0;
    int status, pipes[2];
    if (pipe(pipes)) return UNCLEAR;
    fflush(stdout);
    if (fork() == 0) {
        for (int i = 0; i < 600 && total <= 2 * limit; i++) {
            long n = fill(i);
            if (n < 0) break;
            total += n;
        }
        if (write(pipes[1], &total, sizeof total) < 0) _exit(UNCLEAR);
        _exit(total > 2 * limit ? ESCAPED : total == 0 ? UNCLEAR : STOPPED);
    }
    close(pipes[1]);
    long n = read(pipes[0], &total, sizeof total);
    waitpid(-1, &status, 0);
    printf("%s: %ld bytes wait, the limit is %ld%s\n", what, n > 0 ? total : -1, limit, WIFSIGNALED(status) ? "; killed" : "");
    return WIFSIGNALED(status) ? STOPPED : WEXITSTATUS(status);
}
static long fill_tcp(int i) {
    int pair[2];
    return connected(i % 2 ? AF_INET : AF_INET6, pair) ? -1 : fill_stream(pair);
}
static long fill_udp(int i) {
    static char block[60000];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0), room = 1 << 30, waits = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (bind(fd, (void *)&a, sizeof a) || getsockname(fd, (void *)&a, &size)) return -1;
    for (int n = 0; n < 256; n++) if (sendto(from, block, sizeof block, MSG_DONTWAIT, (void *)&a, sizeof a) < 0) break;
    close(from);
    // What arrived: the first message, times how many the buffer can have taken, is asked of the kernel.
    uint32_t info[9];
    size = sizeof info;
    if (getsockopt(fd, SOL_SOCKET, 55 /* SO_MEMINFO */, info, &size)) return -1;
    waits = info[0];
    (void)i;
    return waits;
}
static int tcp_memory(void) { return queue_bytes("TCP", fill_tcp); }
static int udp_memory(void) { return queue_bytes("UDP", fill_udp); }

// Run on the host, to have something to find.
static int make_segment(void) { return printf("%d\n", shmget(atoi(args[0]), 4096, IPC_CREAT | 0666)), STOPPED; }
static int remove_segment(void) { return shmctl(atoi(args[0]), IPC_RMID, NULL) ? UNCLEAR : STOPPED; }

// Class: tables of the kernel.
static int neighbour_table(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), sent = 0, entries = -1;
    char line[256];
    if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5)) return printf("bind: %s\n", strerror(errno)), UNCLEAR;
    for (int i = 1; i <= 200; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
        a.sin_addr.s_addr = htonl(0x0a58fe00 + i);
        sent += sendto(fd, "x", 1, MSG_DONTROUTE, (void *)&a, sizeof a) == 1;
    }
    FILE *f = fopen("/proc/net/arp", "r");
    while (f && fgets(line, sizeof line, f)) entries++;
    printf("%d sent, %d questions\n", sent, entries);
    return !f || sent < 100 ? UNCLEAR : entries > 8 ? ESCAPED : STOPPED;
}
static int socket_filter(void) {
    struct sock_filter code[] = {{0x06, 0, 0, 0xffff}};
    struct sock_fprog program = {1, code};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1, bad = STOPPED;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    for (int option = 50; option <= 52; option++) bad = worse(bad, refused("a BPF option", setsockopt(fd, SOL_SOCKET, option, &program, sizeof program), EPERM, 0));
    return worse(bad, refused("SO_ATTACH_FILTER", setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), EPERM, 0));
}
static int aio(void) {
    unsigned long context = 0;
    int bad = refused("io_setup", syscall(SYS_io_setup, 64, &context), ENOSYS, 0);
    return worse(bad, refused("io_submit", syscall(SYS_io_submit, 0, 0, 0), ENOSYS, 0));
}
static int default_files(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    printf("%lu files\n", (unsigned long)files.rlim_max);
    return files.rlim_max <= (rlim_t)atol(args[0]) ? STOPPED : ESCAPED;
}
static int page_cache_spy(void) {
    char range[16] = {0}, stat[40];
    return refused("cachestat", syscall(451, 0, range, stat, 0), ENOSYS, 0);
}
static int secret_memory(void) { return refused("memfd_secret", syscall(447, 0), ENOSYS, 0); }

// Class: limits.
static int pid1_limits(void) {
    struct rlimit three = {3, 3};
    int bad = STOPPED;
    // A limit belongs to the process, so any of its threads would do.
    for (int id = 1; id <= 8; id++)
        if (id != getpid()) bad = worse(bad, refused("prlimit", prlimit(id, RLIMIT_NOFILE, &three, NULL), EPERM, 0));
    return bad;
}
static int core_limit(void) {
    struct rlimit none = {0, 0}, now;
    setrlimit(RLIMIT_CORE, &none);
    syscall(SYS_setrlimit, RLIMIT_CORE, &none);
    prlimit(0, RLIMIT_CORE, &none, NULL);
    if (getrlimit(RLIMIT_CORE, &now)) return UNCLEAR;
    printf("core limit %lu of %lu\n", (unsigned long)now.rlim_cur, (unsigned long)now.rlim_max);
    return now.rlim_cur == 1 && now.rlim_max == 1 ? STOPPED : ESCAPED;
}
static int score_of(const char *path) {
    FILE *f = fopen(path, "r");
    int score = -10000;
    if (f && fscanf(f, "%d", &score) != 1) score = -10000;
    return score;
}
static int oom_order(void) {
    int own = score_of("/proc/self/oom_score_adj"), first = score_of("/proc/1/oom_score_adj");
    printf("own %d, PID 1 %d\n", own, first);
    if (first <= 0 || own <= first) return ESCAPED;
    // Only who may lower it can forbid others to: see `oom_order` in shared.rs.
    if (strcmp(args[0], "fixed")) return STOPPED;
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    return fd < 0 ? UNCLEAR : refused("lowering it", write(fd, "0", 1), EACCES, 0);
}
static long number_in(const char *paths[]) {
    long value = -1;
    for (int i = 0; paths[i]; i++) {
        FILE *f = fopen(paths[i], "r");
        if (f && fscanf(f, "%ld", &value) == 1) return printf("%s %ld\n", paths[i], value), value;
    }
    return value;
}
static int default_limits(void) {
    const char *memory[] = {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max", NULL};
    const char *cpu[] = {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max", NULL};
    long bytes = number_in(memory), quota = number_in(cpu);
    return bytes > 0 && bytes < 1L << 40 && quota > 0 ? STOPPED : ESCAPED;
}

// Class: what the kernel tells.
static int sys_devices(void) {
    const char *paths[] = {"/sys/block", "/sys/dev", "/sys/devices/virtual/block", "/sys/devices/pci0000:00", "/sys/fs/ext4",
                           "/sys/kernel/slab", "/sys/kernel/notes", "/sys/kernel/vmcoreinfo", "/sys/kernel/boot_params",
                           "/sys/kernel/debug", "/sys/kernel/security", "/sys/bus", "/sys/module", "/sys/power", NULL};
    int bad = STOPPED;
    for (int i = 0; paths[i]; i++) bad = worse(bad, unreadable(paths[i]));
    return bad;
}
static int proc_machine(void) {
    const char *paths[] = {"/proc/cmdline", "/proc/config.gz", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/consoles",
                           "/proc/modules", "/proc/sched_debug", "/proc/timer_stats", "/proc/softirqs", "/proc/vmallocinfo",
                           "/proc/pagetypeinfo", "/proc/slabinfo", "/proc/swaps", "/proc/diskstats", "/proc/partitions", NULL};
    int bad = STOPPED;
    for (int i = 0; paths[i]; i++) bad = worse(bad, unreadable(paths[i]));
    return bad;
}
// What a program needs to know of the machine is there.
static int sys_useful(void) {
    const char *paths[] = {"/sys/class/net/lo/mtu", "/sys/class/net/eth0/address", "/sys/devices/system/cpu/online", "/sys/fs/cgroup", NULL};
    for (int i = 0; paths[i]; i++) if (access(paths[i], R_OK)) return printf("%s: %s\n", paths[i], strerror(errno)), UNCLEAR;
    return STOPPED;
}

// Class: files of the host.
static int leave_privileges(void) {
    // A set-user-id program, one with a file capability, and a file of another user.
    uint32_t attribute[5] = {0x02000001, ~0u, 0, ~0u, 0};
    char path[4200];
    snprintf(path, sizeof path, "%s/setuid", args[0]);
    int fd = open(path, O_CREAT | O_WRONLY, 0755);
    if (fd < 0 || fchmod(fd, 06755)) return printf("%s: %s\n", path, strerror(errno)), UNCLEAR;
    snprintf(path, sizeof path, "%s/capable", args[0]);
    fd = open(path, O_CREAT | O_WRONLY, 0755);
    if (fd < 0 || (fsetxattr(fd, "security.capability", attribute, sizeof attribute, 0) && errno != EPERM)) return printf("%s: %s\n", path, strerror(errno)), UNCLEAR;
    if (chmod(args[0], 0777)) printf("chmod: %s\n", strerror(errno));
    if (setgid(1000) || setuid(1000)) return UNCLEAR;
    snprintf(path, sizeof path, "%s/other", args[0]);
    fd = open(path, O_CREAT | O_WRONLY, 0755);
    if (fd < 0 || fchmod(fd, 04755)) return printf("%s: %s\n", path, strerror(errno)), UNCLEAR;
    return STOPPED;
}
// Gets a descriptor of a directory of the host, as if by another bug, and opens what is in it.
static int leaked_directory(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(a.sun_path + 1, args[2], strlen(args[2]));
    if (bind(fd, (void *)&a, sizeof a.sun_family + 1 + strlen(args[2])) || listen(fd, 1)) return UNCLEAR;
    if (meet(args[0], args[1]) < 0) return UNCLEAR;
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int peer = accept(fd, 0, 0);
    if (peer < 0 || recvmsg(peer, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) return printf("no descriptor came\n"), UNCLEAR;
    int leaked = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
    return refused("a file of the host", openat(leaked, args[3], O_RDONLY), EACCES, 0);
}
static int watch_file(void) {
    int fd = inotify_init1(IN_NONBLOCK);
    char events[4096];
    if (inotify_add_watch(fd, args[2], IN_ALL_EVENTS) < 0) return printf("%s\n", strerror(errno)), UNCLEAR;
    if (meet(args[0], args[1]) < 0) return UNCLEAR;
    long n = read(fd, events, sizeof events);
    printf("%ld bytes of events\n", n);
    return n > 0 ? ESCAPED : STOPPED;
}
static int lock_file(void) {
    int fd = open(args[2], O_RDONLY);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) return printf("%s\n", strerror(errno)), UNCLEAR;
    return meet(args[0], args[1]) < 0 ? UNCLEAR : STOPPED;
}
static int lock_again(void) {
    int fd = open(args[0], O_RDONLY);
    return fd < 0 ? UNCLEAR : flock(fd, LOCK_EX | LOCK_NB) ? (printf("%s\n", strerror(errno)), ESCAPED) : STOPPED;
}
