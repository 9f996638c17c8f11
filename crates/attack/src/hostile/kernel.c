// Attacks on the kernel's older and rarer interfaces, on PID 1 and on limits. Part of hostile.c.

// Calls that were removed or that nobody should use any more.
static int old_calls(void) {
    int bad = STOPPED;
#ifdef __x86_64__
    // uselib, ustat, sysfs, _sysctl, create_module, get_kernel_syms, query_module, nfsservctl, getpmsg, putpmsg,
    // afs_syscall, tuxcall, security, lookup_dcookie, vserver, remap_file_pages is left out: programs use it.
    int numbers[] = {134, 136, 139, 156, 174, 177, 178, 180, 181, 182, 183, 184, 185, 212, 236};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        bad = worse(bad, refused("an old call", syscall(numbers[i], -1L, -1L, -1L, -1L, -1L), ENOSYS, EPERM, 0));
#endif
    return bad;
}
static int pid1_memory(void) {
    char word[8] = "x";
    struct iovec local = {word, sizeof word}, remote = {(void *)0x400000, sizeof word};
    int pidfd = syscall(SYS_pidfd_open, 1, 0);
    int bad = refused("process_vm_readv", process_vm_readv(1, &local, 1, &remote, 1, 0), EPERM, 0);
    bad = worse(bad, refused("process_vm_writev", process_vm_writev(1, &local, 1, &remote, 1, 0), EPERM, 0));
    bad = worse(bad, refused("kcmp", syscall(SYS_kcmp, 1, getpid(), 0, 0, 0), EPERM, ENOSYS, 0));
    return worse(bad, refused("process_madvise", syscall(440, pidfd, &remote, 1, 21 /* MADV_PAGEOUT */, 0), EPERM, EACCES, ENOSYS, 0));
}
// PID 1 of a namespace takes no signal from inside that it has not asked for (pid_namespaces(7)).
static int pid1_signals(void) {
    int signals[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGABRT, SIGBUS, SIGTRAP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) kill(1, signals[i]);
    char line[512] = "";
    FILE *f = fopen("/proc/1/stat", "r");
    if (!f || !fgets(line, sizeof line, f)) return UNCLEAR;
    char *state = strrchr(line, ')');
    printf("PID 1 is %c\n", state ? state[2] : '?');
    return state && strchr("RSD", state[2]) ? STOPPED : ESCAPED;
}
static int kernel_filesystems(void) {
    const char *kinds[] = {"debugfs", "tracefs", "securityfs", "configfs", "bpf", "binfmt_misc", "fusectl", "pstore", "efivarfs",
                           "nfsd", "devtmpfs", "mqueue", "ramfs", "ext4", "fuse", "9p", NULL};
    int bad = STOPPED;
    for (int i = 0; kinds[i]; i++) bad = worse(bad, refused(kinds[i], mount("none", "/tmp", kinds[i], 0, ""), EPERM, 0));
    return bad;
}
static int binary_formats(void) {
    const char *places[] = {"/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/binfmt_misc/status", NULL};
    int bad = STOPPED;
    for (int i = 0; places[i]; i++) bad = worse(bad, writes(places[i]));
    return bad;
}
// Where a page is in the machine's memory is what attacks on the memory itself begin with.
static int page_frames(void) {
    static char page[8192];
    uint64_t entry = 0;
    page[0] = 1;
    int fd = open("/proc/self/pagemap", O_RDONLY), bad = STOPPED;
    if (fd >= 0) {
        off_t at = (uintptr_t)page / 4096 * sizeof entry;
        if (pread(fd, &entry, sizeof entry, at) != sizeof entry) return printf("pagemap: %s\n", strerror(errno)), UNCLEAR;
        printf("pagemap: %llx\n", (unsigned long long)entry);
        if (!(entry >> 63)) return UNCLEAR;
        if (entry & ((1ULL << 55) - 1)) bad = ESCAPED;
    }
    const char *paths[] = {"/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", NULL};
    for (int i = 0; paths[i]; i++) bad = worse(bad, unreadable(paths[i]));
    return bad;
}
static int kernel_stacks(void) {
    const char *paths[] = {"/proc/self/stack", "/proc/1/stack", "/proc/1/syscall", "/proc/1/auxv", "/proc/1/maps", "/proc/1/personality", NULL};
    int bad = STOPPED;
    for (int i = 0; paths[i]; i++) bad = worse(bad, unreadable(paths[i]));
    return bad;
}
// The machine's pool of randomness must not be told how good it is.
static int random_pool(void) {
    int fd = open("/dev/random", O_RDWR), count = 4096;
    if (fd < 0) return UNCLEAR;
    int bad = refused("RNDADDTOENTCNT", ioctl(fd, 0x40045201, &count), EPERM, 0);
    bad = worse(bad, refused("RNDCLEARPOOL", ioctl(fd, 0x5206), EPERM, 0));
    return worse(bad, refused("RNDRESEEDCRNG", ioctl(fd, 0x5207), EPERM, 0));
}
static int sleeping_thread(void *unused) { (void)unused; for (;;) pause(); return 0; }
static int thread_bomb(void) {
    int limit = atoi(args[0]), count = 0;
    for (; count <= limit; count++) {
        char *stack = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack == MAP_FAILED) return UNCLEAR;
        if (clone(sleeping_thread, stack + 16384, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, 0) < 0) break;
    }
    printf("%d threads, then %s\n", count, strerror(errno));
    return count >= limit ? ESCAPED : errno == EAGAIN ? STOPPED : UNCLEAR;
}
// Memory without a name, in a child: being killed for it is what must happen.
static int nameless_memory(void) {
    size_t limit = strtoull(args[0], NULL, 10);
    int status;
    fflush(stdout);
    if (fork() == 0) {
        static char block[1 << 20];
        int fd = syscall(SYS_memfd_create, "bomb", 0);
        if (fd < 0) _exit(UNCLEAR);
        memset(block, 1, sizeof block);
        for (size_t used = 0; used < limit * 2; used += sizeof block) if (write(fd, block, sizeof block) <= 0) _exit(errno == ENOMEM ? STOPPED : UNCLEAR);
        _exit(ESCAPED);
    }
    if (wait(&status) < 0) return UNCLEAR;
    printf("%s\n", WIFSIGNALED(status) ? "killed" : "ended by itself");
    return WIFSIGNALED(status) ? STOPPED : WEXITSTATUS(status);
}
static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
// Processes that compute as fast as they can, for two seconds. Told is how much of a processor they may have.
static int processor_hog(void) {
    double share = atoi(args[0]) / 1000.0, begin = seconds(CLOCK_MONOTONIC), span = 2;
    struct rusage used;
    for (int i = 0; i < 8; i++)
        if (fork() == 0) {
            while (seconds(CLOCK_MONOTONIC) - begin < span) for (volatile int n = 0; n < 100000; n++) {}
            _exit(0);
        }
    while (wait(NULL) > 0) {}
    double passed = seconds(CLOCK_MONOTONIC) - begin;
    getrusage(RUSAGE_CHILDREN, &used);
    double spent = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("%.2f s of processor time in %.2f s, allowed are %.2f of each\n", spent, passed, share);
    // A burst of one period and a slice of each processor may come on top.
    return spent <= share * passed * 1.5 + 0.3 ? STOPPED : ESCAPED;
}
