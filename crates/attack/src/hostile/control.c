// Attacks on what controls the sandbox: execd's interface, from inside and from a neighbour. Part of hostile.c.

// The status that execd answers a request with; 0 when it does not answer.
static int status_of(const char *request) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(44772), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    char answer[512] = "";
    int fd = socket(AF_INET, SOCK_STREAM, 0), status = 0;
    if (connect(fd, (void *)&a, sizeof a)) return printf("connect: %s\n", strerror(errno)), 0;
    if (write(fd, request, strlen(request)) < 0) return 0;
    for (size_t have = 0; have < sizeof answer - 1;) {
        long n = read(fd, answer + have, sizeof answer - 1 - have);
        if (n <= 0) break;
        have += n;
    }
    close(fd);
    sscanf(answer, "HTTP/1.1 %d", &status);
    return status;
}
static int with_token(const char *what, const char *header) {
    const char *routes[] = {"GET /files/download?path=/etc/passwd", "POST /command", "GET /metrics", "DELETE /files?path=/etc/passwd", "POST /code", NULL};
    int bad = STOPPED;
    for (int i = 0; routes[i]; i++) {
        char request[1024];
        snprintf(request, sizeof request, "%s HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\nContent-Length: 0\r\n\r\n", routes[i], header);
        int status = status_of(request);
        printf("%s, %s: %d\n", what, routes[i], status);
        bad = worse(bad, status == 401 || status == 403 ? STOPPED : status == 0 ? UNCLEAR : ESCAPED);
    }
    return bad;
}
// A process of the sandbox that is not its owner commands nothing.
static int execd_without_token(void) {
    char header[512], front[128];
    int bad = with_token("no token", "");
    bad = worse(bad, with_token("an empty token", "X-EXECD-ACCESS-TOKEN: \r\n"));
    snprintf(front, sizeof front, "%.6s", args[0]);
    snprintf(header, sizeof header, "X-EXECD-ACCESS-TOKEN: %s\r\n", front);
    bad = worse(bad, with_token("the front of the token", header));
    bad = worse(bad, with_token("a wrong token twice", "X-EXECD-ACCESS-TOKEN: x\r\nX-EXECD-ACCESS-TOKEN: y\r\n"));
    return worse(bad, with_token("a bearer", "Authorization: Bearer x\r\n"));
}
// Holds as many connections to execd as it gets, and says nothing on them.
static int connection_flood(void) {
    int count = 0;
    for (; count < 2000; count++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(44772), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd < 0) break;
        connect(fd, (void *)&a, sizeof a);
        if (write(fd, "GET /ping HTTP/1.1\r\nHost:", 25) < 0 && errno != EAGAIN && errno != EPIPE && errno != ENOTCONN && errno != ECONNRESET) break;
    }
    printf("%d connections\n", count);
    return meet(args[0], args[1]) < 0 || count < 100 ? UNCLEAR : STOPPED;
}
// What the kernel lists of sockets names no file of the host.
static int unix_sockets(void) { return contains("/proc/net/unix", args[0]); }
