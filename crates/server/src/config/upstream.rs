//! Settings of the published server that mean nothing here, and what becomes of them: passed over
//! where nothing would behave otherwise, refused where the user counts on behaviour we lack.

use daemon::config::{Verdict, WithoutMeaning};

const fn unused(path: &'static str, why: &'static str) -> WithoutMeaning {
    WithoutMeaning {
        path,
        verdict: Verdict::Unused,
        why,
    }
}

const fn refused(path: &'static str, why: &'static str) -> WithoutMeaning {
    WithoutMeaning {
        path,
        verdict: Verdict::Refused,
        why,
    }
}

const fn only(path: &'static str, value: &'static str, why: &'static str) -> WithoutMeaning {
    WithoutMeaning {
        path,
        verdict: Verdict::RefusedUnless(value),
        why,
    }
}

const NO_THREADS: &str = "there is no thread pool and no choice of event loop to tune";
const NO_LOG_FILES: &str =
    "logs go to standard error; let systemd or your container engine keep and rotate them";
const NO_TENANT_SERVICE: &str =
    "tenants are not asked for from another server; list them in a file, or make them by API";
const NO_REDIS: &str = "renewals are kept in the store; no Redis is needed";
const NO_AGENT_SANDBOX: &str = "sandboxes are pods; objects of agent-sandbox are not made yet";
const ONE_WATCH: &str = "one watch keeps what the cluster has, without periods or limits to tune";
const NO_POOLS: &str = "there are no pools on Kubernetes yet";
const NO_FSB: &str = "there is no fast-sandbox backend";
const NO_EGRESS: &str = "rules are enforced outside the sandbox by this server's own gate; there is no sidecar to set up";
const NO_POOL: &str = "the store needs few connections, and their number and patience are fixed";
const NO_PORTS: &str = "sandboxes publish no ports on the host; the proxy reaches them inside";

/// All of them.
pub const WITHOUT_MEANING: &[WithoutMeaning] = &[
    unused("server.thread_pool_size", NO_THREADS),
    unused("server.loop", NO_THREADS),
    unused("server.http", NO_THREADS),
    only(
        "proxy.resolve_internal",
        "true",
        "the proxy always connects inside the sandbox",
    ),
    only("log.file_enabled", "false", NO_LOG_FILES),
    unused("log.file_path", NO_LOG_FILES),
    unused("log.access_file_path", NO_LOG_FILES),
    unused("log.file_max_bytes", NO_LOG_FILES),
    unused("log.file_backup_count", NO_LOG_FILES),
    refused("tenants.endpoint", NO_TENANT_SERVICE),
    refused("tenants.max_stale_seconds", NO_TENANT_SERVICE),
    refused("tenants.timeout_seconds", NO_TENANT_SERVICE),
    refused("tenants.auth_header", NO_TENANT_SERVICE),
    refused("tenants.auth_token", NO_TENANT_SERVICE),
    only("renew_intent.redis.enabled", "false", NO_REDIS),
    unused("renew_intent.redis.dsn", NO_REDIS),
    unused("renew_intent.redis.queue_key", NO_REDIS),
    unused("renew_intent.redis.consumer_concurrency", NO_REDIS),
    unused(
        "runtime.execd_run_as_init",
        "execd is PID 1 of every sandbox",
    ),
    unused("docker.host_ip", NO_PORTS),
    unused("docker.port_range_min", NO_PORTS),
    unused("docker.port_range_max", NO_PORTS),
    unused("docker.publish_host", NO_PORTS),
    only(
        "kubernetes.insecure_skip_tls_verify",
        "false",
        "the API server's certificate is always checked; name its authority in the kubeconfig",
    ),
    refused(
        "kubernetes.workload_provider",
        "sandboxes are pods; objects of the published operator are not made yet",
    ),
    refused(
        "kubernetes.service_account",
        "sandboxes get no service account; a pod template may name one",
    ),
    unused("kubernetes.informer_enabled", ONE_WATCH),
    unused("kubernetes.informer_resync_seconds", ONE_WATCH),
    unused("kubernetes.informer_watch_timeout_seconds", ONE_WATCH),
    unused("kubernetes.read_qps", ONE_WATCH),
    unused("kubernetes.read_burst", ONE_WATCH),
    unused("kubernetes.write_qps", ONE_WATCH),
    unused("kubernetes.write_burst", ONE_WATCH),
    unused("kubernetes.sandbox_create_poll_interval_seconds", ONE_WATCH),
    unused(
        "kubernetes.snapshot_create_timeout_seconds",
        "sandboxes on Kubernetes have no snapshots yet",
    ),
    unused("kubernetes.pool_acquisition_timeout_seconds", NO_POOLS),
    unused("kubernetes.fastpath_endpoint", NO_FSB),
    unused("kubernetes.fastpath_timeout_seconds", NO_FSB),
    unused("kubernetes.fastpath_wait_ready_seconds", NO_FSB),
    unused("kubernetes.fastpath_resource_pool", NO_FSB),
    unused("kubernetes.template_s3_publish_secret", NO_FSB),
    refused("agent_sandbox", NO_AGENT_SANDBOX),
    unused(
        "storage.ossfs_mount_root",
        "requests with an ossfs volume are refused",
    ),
    unused(
        "store.postgresql.snapshot_recovery_interval_seconds",
        "differences are repaired as they are seen",
    ),
    unused("store.postgresql.min_pool_size", NO_POOL),
    unused("store.postgresql.max_pool_size", NO_POOL),
    unused("store.postgresql.connect_timeout_seconds", NO_POOL),
    unused("store.postgresql.pool_timeout_seconds", NO_POOL),
    unused("egress.image", NO_EGRESS),
    unused("egress.mode", NO_EGRESS),
    unused("egress.disable_ipv6", NO_EGRESS),
    unused("egress.otlp_endpoint", NO_EGRESS),
    unused("egress.readiness_timeout_seconds", NO_EGRESS),
    unused("egress.requests", NO_EGRESS),
    unused("egress.limits", NO_EGRESS),
    refused("egress.upstream_proxy", NO_EGRESS),
];
