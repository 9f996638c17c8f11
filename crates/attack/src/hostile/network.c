// Attacks on the network beyond plain traffic: other protocols, rules of the kernel, packets that say where to go.
// Part of hostile.c.

// Families besides unix, inet, inet6 and netlink have had more holes than users.
static int other_families(void) {
    int bad = STOPPED, kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    for (int family = 3; family < 46; family++) {
        if (family == AF_INET6 || family == AF_NETLINK) continue;
        for (int kind = 0; kind < 4; kind++) {
            int fd = socket(family, kinds[kind], 0);
            if (fd >= 0) printf("family %d, type %d\n", family, kinds[kind]), bad = ESCAPED;
            else if (errno != EAFNOSUPPORT && errno != EPERM) printf("family %d, type %d: %s\n", family, kinds[kind], strerror(errno)), bad = worse(bad, UNCLEAR);
        }
    }
    return bad;
}
// Of netlink only what tells of the own links and sockets.
static int other_netlinks(void) {
    int bad = STOPPED;
    for (int protocol = 0; protocol < 32; protocol++) {
        if (protocol == NETLINK_ROUTE || protocol == 4 /* SOCK_DIAG */ || protocol == NETLINK_KOBJECT_UEVENT) continue;
        int fd = socket(AF_NETLINK, SOCK_RAW, protocol);
        if (fd >= 0) printf("protocol %d\n", protocol), bad = ESCAPED;
        else bad = worse(bad, refused("netlink", -1, EPROTONOSUPPORT, EPERM, 0));
    }
    return bad;
}
// The old interface to packet filters, which writes tables by copying them from the caller.
static int packet_filter(void) {
    char table[512] = "filter";
    int v4 = socket(AF_INET, SOCK_DGRAM, 0), v6 = socket(AF_INET6, SOCK_DGRAM, 0);
    int bad = refused("IPT_SO_SET_REPLACE", setsockopt(v4, IPPROTO_IP, 64, table, sizeof table), EPERM, ENOPROTOOPT, 0);
    bad = worse(bad, refused("ARPT_SO_SET_REPLACE", setsockopt(v4, IPPROTO_IP, 96, table, sizeof table), EPERM, ENOPROTOOPT, 0));
    return worse(bad, refused("IP6T_SO_SET_REPLACE", setsockopt(v6, IPPROTO_IPV6, 64, table, sizeof table), EPERM, ENOPROTOOPT, 0));
}
// A mark or a forced buffer would pass by what the host decides by marks, and by its limits.
static int socket_mark(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), value = 0x7fffffff, priority = 7;
    int bad = refused("SO_MARK", setsockopt(fd, SOL_SOCKET, SO_MARK, &value, sizeof value), EPERM, 0);
    bad = worse(bad, refused("SO_PRIORITY", setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority), EPERM, 0));
    bad = worse(bad, refused("SO_RCVBUFFORCE", setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &value, sizeof value), EPERM, 0));
    return worse(bad, refused("SO_SNDBUFFORCE", setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &value, sizeof value), EPERM, 0));
}

struct route_request { struct nlmsghdr h; char body[512]; };
static void add_attribute(struct route_request *m, int type, const void *data, int size) {
    struct rtattr *a = (void *)((char *)m + NLMSG_ALIGN(m->h.nlmsg_len));
    a->rta_type = type;
    a->rta_len = RTA_LENGTH(size);
    memcpy(RTA_DATA(a), data, size);
    m->h.nlmsg_len = NLMSG_ALIGN(m->h.nlmsg_len) + RTA_ALIGN(a->rta_len);
}
// What the kernel answers, as errno; 0 where it did as it was told.
static int ask_route(struct route_request *m) {
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    char answer[1024];
    if (fd < 0 || send(fd, m, m->h.nlmsg_len, 0) < 0 || recv(fd, answer, sizeof answer, 0) < 0) return -1;
    close(fd);
    return -*(int *)(answer + sizeof(struct nlmsghdr));
}
static int route_refused(const char *what, struct route_request *m) {
    int found = ask_route(m);
    if (found < 0) return UNCLEAR;
    errno = found;
    return refused(what, found ? -1 : 0, EPERM, 0);
}
static struct route_request link_request(int kind, int flags, int index) {
    struct route_request m = {.h = {NLMSG_LENGTH(sizeof(struct ifinfomsg)), kind, NLM_F_REQUEST | NLM_F_ACK | flags, 1, 0}};
    struct ifinfomsg *info = NLMSG_DATA(&m.h);
    info->ifi_family = AF_UNSPEC;
    info->ifi_index = index;
    return m;
}
static int outer_link(void) { return if_nametoindex("eth0"); }
static int new_link(void) {
    int bad = STOPPED;
    const char *kinds[] = {"dummy", "veth", "bridge", "macvlan", "ipvlan", "vxlan", "gre", "ifb", NULL};
    for (int i = 0; kinds[i]; i++) {
        struct route_request m = link_request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
        char nested[64];
        struct rtattr *kind = (void *)nested;
        kind->rta_type = 1; // IFLA_INFO_KIND
        kind->rta_len = RTA_LENGTH(strlen(kinds[i]));
        memcpy(RTA_DATA(kind), kinds[i], strlen(kinds[i]));
        add_attribute(&m, IFLA_LINKINFO, nested, RTA_ALIGN(kind->rta_len));
        bad = worse(bad, route_refused(kinds[i], &m));
    }
    return bad;
}
static int change_link(void) {
    struct route_request m = link_request(RTM_NEWLINK, 0, outer_link());
    unsigned mtu = 9000;
    add_attribute(&m, IFLA_MTU, &mtu, sizeof mtu);
    int bad = route_refused("the MTU", &m);
    m = link_request(RTM_NEWLINK, 0, outer_link());
    add_attribute(&m, IFLA_ADDRESS, "\2\0\0\0\0\1", 6);
    bad = worse(bad, route_refused("the hardware address", &m));
    m = link_request(RTM_DELLINK, 0, outer_link());
    return worse(bad, route_refused("deleting eth0", &m));
}
static int change_route(void) {
    struct route_request m = {.h = {NLMSG_LENGTH(sizeof(struct rtmsg)), RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0}};
    struct rtmsg *route = NLMSG_DATA(&m.h);
    *route = (struct rtmsg){.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT, .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST};
    int index = outer_link();
    add_attribute(&m, RTA_DST, "\251\376\251\376", 4);
    add_attribute(&m, RTA_OIF, &index, sizeof index);
    int bad = route_refused("a route to the metadata service", &m);
    // A rule that sends everything through a table of its own.
    struct route_request rule = {.h = {NLMSG_LENGTH(sizeof(struct rtmsg)), RTM_NEWRULE, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0}};
    *(struct rtmsg *)NLMSG_DATA(&rule.h) = (struct rtmsg){.rtm_family = AF_INET, .rtm_table = 100, .rtm_type = 1};
    return worse(bad, route_refused("a rule", &rule));
}
static int change_neighbour(void) {
    struct { unsigned char family, pad1; unsigned short pad2; int index; unsigned short state; unsigned char flags, type; } body = {AF_INET, 0, 0, outer_link(), 0x80 /* NUD_PERMANENT */, 0, 0};
    struct route_request m = {.h = {NLMSG_LENGTH(sizeof body), RTM_NEWNEIGH, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, 1, 0}};
    memcpy(NLMSG_DATA(&m.h), &body, sizeof body);
    add_attribute(&m, 1 /* NDA_DST */, "\12\130\0\1", 4);
    add_attribute(&m, 2 /* NDA_LLADDR */, "\2\0\0\0\0\1", 6);
    return route_refused("the gateway's hardware address", &m);
}
static int traffic_control(void) {
    struct { unsigned char family, pad1; unsigned short pad2; int index; unsigned handle, parent, info; } body = {AF_UNSPEC, 0, 0, outer_link(), 0x10000, 0xffffffff /* TC_H_ROOT */, 0};
    struct route_request m = {.h = {NLMSG_LENGTH(sizeof body), RTM_NEWQDISC, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0}};
    memcpy(NLMSG_DATA(&m.h), &body, sizeof body);
    add_attribute(&m, 1 /* TCA_KIND */, "pfifo", 6);
    return route_refused("a queueing discipline", &m);
}
// Packets that name the way they want to go: gateway first, then who must not be reached. The harness looks.
static int source_route(void) {
    for (int kind = 0; kind < 2; kind++) {
        struct sockaddr_in via = {.sin_family = AF_INET, .sin_port = htons(atoi(args[2]))};
        unsigned char option[12] = {1 /* no operation */, kind ? 137 : 131, 7, 4};
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        inet_pton(AF_INET, args[0], &via.sin_addr);
        inet_pton(AF_INET, args[1], option + 4);
        if (setsockopt(fd, IPPROTO_IP, IP_OPTIONS, option, 8)) printf("IP_OPTIONS: %s\n", strerror(errno));
        else printf("sendto: %s\n", sendto(fd, "routed", 6, 0, (void *)&via, sizeof via) < 0 ? strerror(errno) : "sent");
    }
    return STOPPED;
}
// To everybody on the link, over both versions. The harness looks who received one.
static int to_everybody(void) {
    int port = atoi(args[0]), one = 1, index = outer_link();
    const char *places[] = {"255.255.255.255", "10.88.255.255", "224.0.0.1", "224.0.0.251", NULL};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
    for (int i = 0; places[i]; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
        inet_pton(AF_INET, places[i], &a.sin_addr);
        printf("%s: %s\n", places[i], sendto(fd, "all", 3, 0, (void *)&a, sizeof a) < 0 ? strerror(errno) : "sent");
    }
    const char *everybody[] = {"ff02::1", "ff02::2", "ff02::fb", NULL};
    fd = socket(AF_INET6, SOCK_DGRAM, 0);
    for (int i = 0; everybody[i]; i++) {
        struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = index};
        inet_pton(AF_INET6, everybody[i], &a.sin6_addr);
        printf("%s: %s\n", everybody[i], sendto(fd, "all", 3, 0, (void *)&a, sizeof a) < 0 ? strerror(errno) : "sent");
    }
    return STOPPED;
}
// Opens more connections than the host's table has room for, each by a datagram from a port of its own. The
// harness counts those that came through.
static int connection_table(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(args[1]))};
    int count = atoi(args[2]), sent = 0;
    inet_pton(AF_INET, args[0], &a.sin_addr);
    for (int i = 0; i < count; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (fd < 0) return printf("socket: %s\n", strerror(errno)), UNCLEAR;
        sent += sendto(fd, "flow", 4, 0, (void *)&a, sizeof a) == 4;
        close(fd);
    }
    printf("%d of %d sent\n", sent, count);
    return STOPPED;
}
// A connection that must not come about. One attempt is answered with silence, so it is not repeated often.
static int tcp_unreachable(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(args[1]))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), tries = 1;
    inet_pton(AF_INET, args[0], &a.sin_addr);
    setsockopt(fd, IPPROTO_TCP, 7 /* TCP_SYNCNT */, &tries, sizeof tries);
    return refused("connect", connect(fd, (void *)&a, sizeof a), ETIMEDOUT, ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EPERM, 0);
}
