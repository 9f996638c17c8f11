//! What can be reached over the network, and what changes how.

use super::{REACHES_INSIDE, TAKES_THE_HOST};
use crate::case::{Case, plain};
use crate::protection::Protection::{
    Capabilities, EgressGate, Firewall, KernelRules, NetworkNamespace, Seccomp, UserNamespace,
};
use crate::scenes::{egress, neighbours, network};

const PASSES_THE_POLICY: &str = "the sandbox sends what it knows to where its policy forbids";
const OWN_RULES: &str = "the sandbox passes by the host's rules of its network";

pub(super) const CASES: [Case; 27] = [
    plain(
        "raw_socket",
        "forges packets by raw sockets, and speaks to hypervisors and the kernel's ciphers",
        &[Seccomp, Capabilities],
        REACHES_INSIDE,
    ),
    plain(
        "other_families",
        "opens sockets of every other protocol that the kernel knows",
        &[Seccomp],
        TAKES_THE_HOST,
    ),
    plain(
        "other_netlinks",
        "opens netlink sockets to other parts of the kernel",
        &[Seccomp],
        TAKES_THE_HOST,
    ),
    plain(
        "netlink_rules",
        "opens the interface of packet filters, where escapes of late years began",
        &[Seccomp],
        TAKES_THE_HOST,
    ),
    plain(
        "packet_filter",
        "replaces tables of the old packet filter, as in CVE-2021-22555",
        &[Capabilities, UserNamespace],
        TAKES_THE_HOST,
    ),
    plain(
        "transparent",
        "sends from addresses that are not its own",
        &[Capabilities],
        REACHES_INSIDE,
    ),
    plain(
        "change_address",
        "gives itself another address",
        &[Capabilities, Seccomp],
        REACHES_INSIDE,
    ),
    plain(
        "change_link",
        "changes or removes its link to the host",
        &[Capabilities, Seccomp],
        OWN_RULES,
    ),
    plain(
        "change_route",
        "makes routes and rules of its own",
        &[Capabilities, Seccomp],
        OWN_RULES,
    ),
    plain(
        "change_neighbour",
        "says what hardware address its gateway has",
        &[Capabilities, Seccomp],
        OWN_RULES,
    ),
    plain(
        "traffic_control",
        "changes how its packets are queued, where the kernel has had many holes",
        &[Capabilities, Seccomp],
        TAKES_THE_HOST,
    ),
    plain(
        "new_link",
        "makes links of its own: bridges, tunnels, copies of its link",
        &[Capabilities, Seccomp],
        TAKES_THE_HOST,
    ),
    plain(
        "socket_mark",
        "marks its packets, by which hosts decide, and forces its buffers past limits",
        &[Capabilities],
        OWN_RULES,
    ),
    plain(
        "reach_nobody",
        "sends to a neighbour, to the host, to metadata and to addresses nobody has",
        &[Firewall],
        REACHES_INSIDE,
    )
    .staged(|w| Box::pin(neighbours::reach_nobody(w))),
    plain(
        "to_everybody",
        "sends to everybody on its link, over both versions of the protocol",
        &[Firewall],
        REACHES_INSIDE,
    )
    .staged(|w| Box::pin(network::to_everybody(w))),
    plain(
        "source_route",
        "sends packets that name the way they want to go",
        &[Firewall, KernelRules],
        REACHES_INSIDE,
    )
    .staged(|w| Box::pin(network::source_route(w))),
    plain(
        "forge_source",
        "sends from somebody else's address",
        &[Firewall, Capabilities, KernelRules],
        REACHES_INSIDE,
    )
    .staged(|w| Box::pin(neighbours::forge_source(w))),
    plain(
        "host_loopback",
        "connects to what listens on the host's loopback",
        &[NetworkNamespace],
        REACHES_INSIDE,
    )
    .staged(|w| Box::pin(neighbours::host_loopback(w))),
    plain(
        "no_network",
        "connects to the outside where it was given no network",
        &[NetworkNamespace],
        PASSES_THE_POLICY,
    )
    .staged(|w| Box::pin(neighbours::no_network(w))),
    plain(
        "connection_table",
        "fills the host's table of connections",
        &[Firewall],
        "nobody on the host can connect any more",
    )
    .staged(|w| Box::pin(network::connection_table(w))),
    plain(
        "egress_allowed",
        "reaches what its policy allows, or the other cases show nothing",
        &[EgressGate],
        "a sandbox with a policy has no network",
    )
    .staged(|w| Box::pin(egress::what_a_policy_allows_works(w))),
    plain(
        "egress_bypass",
        "reaches what its policy does not allow, in 56 ways",
        &[EgressGate],
        PASSES_THE_POLICY,
    )
    .staged(|w| Box::pin(egress::a_policy_is_not_passed_by(w))),
    plain(
        "egress_bypass_open",
        "tries the same without a policy: all 56 work, or the case above shows nothing",
        &[EgressGate],
        "the case above shows nothing",
    )
    .staged(|w| Box::pin(egress::the_attempts_succeed_without_a_policy(w))),
    plain(
        "egress_never",
        "reaches what no rule may open: the host, metadata, the gate, neighbours",
        &[EgressGate],
        REACHES_INSIDE,
    )
    .staged(|w| Box::pin(egress::what_nobody_may_reach_no_rule_opens(w))),
    plain(
        "egress_change",
        "goes on with a connection that a new policy forbids",
        &[EgressGate],
        PASSES_THE_POLICY,
    )
    .staged(|w| Box::pin(egress::a_change_cuts_what_it_does_not_allow(w))),
    plain(
        "egress_later",
        "goes on as before when it gets rules later, made without any or without a network",
        &[EgressGate],
        PASSES_THE_POLICY,
    )
    .staged(|w| Box::pin(egress::rules_that_come_later_hold(w))),
    plain(
        "egress_gate_killed",
        "reaches what it likes while the gate is dead",
        &[EgressGate],
        PASSES_THE_POLICY,
    )
    .staged(|w| Box::pin(egress::nothing_passes_without_a_gate(w))),
];
