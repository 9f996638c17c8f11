//! Settings as users write them.

use super::*;

fn problems(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    let environment = environment
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    match load(&sources(Some(path.clone()), Vec::new(), environment)) {
        Ok(loaded) => Ok(loaded.settings),
        Err(problems) => Err(problems.to_string().replace(path.to_str().unwrap(), "FILE")),
    }
}

const HASH: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

#[test]
fn the_defaults_listen_on_loopback_without_a_key() {
    let config = problems("", &[]).unwrap();
    assert_eq!(
        config.server.address(),
        Some("127.0.0.1:8080".parse().unwrap())
    );
    assert_eq!(config.runtime.kind, RuntimeKind::Embedded);
}

#[test]
fn an_address_others_can_reach_needs_a_key() {
    for host in ["0.0.0.0", "::", "192.0.2.7", "[::]"] {
        let text = format!("[server]\nhost = '{host}'\n");
        let problem = problems(&text, &[]).unwrap_err();
        assert!(problem.contains("there is no API key"), "{host}: {problem}");
        problems(&text, &[("OPENSANDBOX_SERVER_API_KEY", "k")]).unwrap();
        let named = format!("{text}api_keys = [{{ name = 'ci', sha256 = '{HASH}' }}]");
        problems(&named, &[]).unwrap();
    }
    for host in ["127.0.0.1", "::1", "localhost", "127.9.9.9"] {
        problems(&format!("[server]\nhost = '{host}'\n"), &[]).unwrap();
    }
    // The published server's switch does not open this door.
    let insecure = [("OPENSANDBOX_INSECURE_SERVER", "YES")];
    assert!(problems("[server]\nhost = '0.0.0.0'\n", &insecure).is_err());
    assert!(
        problems("[server]\napi_key = ' '\n", &[])
            .unwrap_err()
            .contains("blank")
    );
}

#[test]
fn named_keys_are_checked() {
    let text = format!(
        "server.api_keys = [
            {{ name = 'ci', sha256 = '{HASH}' }}, {{ name = 'ci', sha256 = '{HASH}' }},
            {{ name = 'a b', sha256 = '{HASH}' }}, {{ name = 'short', sha256 = 'abc' }},
            {{ name = 'default', sha256 = '{HASH}' }}]"
    );
    let problem = problems(&text, &[]).unwrap_err();
    for expected in [
        "\"ci\" is taken",
        "\"a b\" must have 1 to 64",
        "sha256 of \"short\" must have 64 hexadecimal digits",
        "\"default\" is taken",
    ] {
        assert!(problem.contains(expected), "{expected} not in {problem}");
    }
    let problem = problems("server.api_keys = [{ name = 'x', sha265 = 'y' }]", &[]).unwrap_err();
    assert!(
        problem.contains("must be a list of { name, sha256 }"),
        "{problem}"
    );
}

#[test]
fn settings_that_exclude_each_other_are_refused_together() {
    let problem = problems(
        "[server]\nhost = 'example'\nmax_sandbox_timeout_seconds = 59\n\
         [runtime]\ntype = 'kubernetes'\n[store]\ntype = 'postgresql'\n\
         [log]\nlevel = 'loud'\nformat = 'xml'\n[storage]\nallowed_host_paths = ['data']\n",
        &[],
    )
    .unwrap_err();
    for expected in [
        "server.host must be an IP address",
        "max_sandbox_timeout_seconds must be at least 60",
        "needs runtime.execd_image",
        "needs store.postgresql.dsn",
        "log.level: \"loud\"",
        "log.format: \"xml\"",
        "data must be an absolute path",
    ] {
        assert!(problem.contains(expected), "{expected} not in {problem}");
    }
}

#[test]
fn directories_of_the_host_need_a_key_and_an_id_that_is_not_roots() {
    let problem = problems("[storage]\nallowed_host_paths = ['/data']\n", &[]).unwrap_err();
    assert!(
        problem.contains("storage.allowed_host_paths needs an API key"),
        "{problem}"
    );
    let with_key = "[server]\napi_key = 'k'\n[storage]\nallowed_host_paths = ['/data']\n";
    let read = problems(with_key, &[]).unwrap();
    assert_eq!(
        crate::backends::embedded_settings(&read)
            .unwrap()
            .host_path_root,
        runtime::HostPathRoot::Owner
    );
    let root = |more: &str| problems(&format!("{with_key}{more}"), &[]);
    let problem = root("host_path_id = 0\n").unwrap_err();
    assert!(problem.contains("must not be root's"), "{problem}");
    let problem = root("host_path_id = 7\nhost_paths_as_root = true\n").unwrap_err();
    assert!(problem.contains("has no effect"), "{problem}");
    let read = root("host_paths_as_root = true\n").unwrap();
    assert_eq!(
        crate::backends::embedded_settings(&read)
            .unwrap()
            .host_path_root,
        runtime::HostPathRoot::Root
    );
}

#[test]
fn default_limits_are_read_and_can_be_left_out() {
    let limits = |text: &str| {
        let config = problems(text, &[]).unwrap();
        crate::backends::embedded_settings(&config)
            .unwrap()
            .default_limits
    };
    assert_eq!(limits(""), runtime::DEFAULT_LIMITS);
    let none = limits(
        "[embedded]\ndefault_cpu = ''\ndefault_memory = ''\ndefault_pids = 0\n\
         default_open_files = 0\n",
    );
    assert_eq!(none, lifecycle::backend::Limits::default());
    let some = limits("[embedded]\ndefault_cpu = '500m'\ndefault_memory = '1Gi'\n");
    assert_eq!(
        (some.cpu_millis, some.memory_bytes),
        (Some(500), Some(1 << 30))
    );
    let problem = problems("[embedded]\ndefault_memory = 'much'\n", &[]).unwrap_err();
    assert!(problem.contains("embedded.default_memory"), "{problem}");
}

#[test]
fn a_config_of_the_published_server_is_read_or_refused_with_reasons() {
    let config = "\
[server]
host = '127.0.0.1'
port = 8090
api_key = 'k'
thread_pool_size = 200
loop = 'auto'
[runtime]
type = 'embedded'
execd_image = 'opensandbox/execd:v1'
[docker]
network_mode = 'bridge'
drop_capabilities = ['NET_ADMIN']
pids_limit = 10
port_range_min = 1
[ingress]
mode = 'direct'
[egress]
image = 'x'
[storage]
allowed_host_paths = ['/data']
[renew_intent]
enabled = false
redis.enabled = false
";
    let read = problems(config, &[]).unwrap();
    assert_eq!((read.docker.pids_limit, read.server.port), (10, 8090));
    let problem = problems(
        "[tenants]\nendpoint = 'x'\n[renew_intent]\nredis.enabled = true\n",
        &[],
    )
    .unwrap_err();
    for expected in [
        "FILE line 2: tenants.endpoint is not supported: tenants are not asked for",
        "FILE line 4: renew_intent.redis.enabled is not supported: renewals are kept",
    ] {
        assert!(problem.contains(expected), "{expected} not in {problem}");
    }
    let problem = problems("[secure_runtime]\ntype = 'gvisor'\n", &[]).unwrap_err();
    assert!(
        problem.contains("secure_runtime.type needs runtime.type"),
        "{problem}"
    );
}

#[test]
fn the_docker_runtime_is_checked() {
    let docker = |rest: &str| problems(&format!("[runtime]\ntype = 'docker'\n{rest}"), &[]);
    let secure = |rest: &str| docker(&format!("[secure_runtime]\n{rest}"));
    assert_eq!(docker("").unwrap().secure_runtime.runtime(), None);
    let runtime = |rest: &str| secure(rest).unwrap().secure_runtime.runtime().unwrap();
    assert_eq!(runtime("type = 'gvisor'"), "runsc");
    assert_eq!(
        runtime("type = 'kata'\ndocker_runtime = 'kata-qemu'"),
        "kata-qemu"
    );
    for (rest, expected) in [
        ("type = 'firecracker'", "docker_runtime"),
        ("docker_runtime = 'runsc'", "no effect"),
    ] {
        let problem = secure(rest).unwrap_err();
        assert!(problem.contains(expected), "{expected} not in {problem}");
    }
    let remote = docker("[docker]\nhost = 'tcp://10.0.0.1:2375'").unwrap_err();
    assert!(
        remote.contains("docker.host: an engine at tcp://"),
        "{remote}"
    );
}

#[test]
fn a_tilde_is_the_home() {
    let config = problems("embedded.data_dir = '~/osb'", &[("HOME", "/home/me")]).unwrap();
    assert_eq!(config.embedded.data_dir, Path::new("/home/me/osb"));
}

#[test]
fn the_page_about_the_settings_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == reference_page(),
        "docs/configuration.md is stale; run: osb server config-reference > docs/configuration.md"
    );
}

#[test]
fn the_example_files_are_valid() {
    for (key, value) in [("runtime.type", "\"embedded\""), ("server.port", "8080")] {
        let text = daemon::config::example::<Config>("An example.", &[(key, value)]);
        problems(&text, &[]).unwrap();
    }
}

#[cfg(feature = "otlp")]
#[test]
fn an_export_needs_a_collector() {
    let problem = problems("[otel]\nenabled = true\n", &[]).unwrap_err();
    assert!(problem.contains("http://127.0.0.1:4318"), "{problem}");
    let text = "[otel]\nenabled = true\nendpoint = 'http://127.0.0.1:4318'\n";
    let settings = problems(text, &[]).unwrap().otel.settings().unwrap();
    assert_eq!(settings.interval, std::time::Duration::from_secs(60));
    assert!(problems("", &[]).unwrap().otel.settings().is_none());
}

#[cfg(not(feature = "otlp"))]
#[test]
fn an_export_that_was_not_built_in_is_refused() {
    let problem = problems("[otel]\nenabled = true\n", &[]).unwrap_err();
    assert!(problem.contains("--features otlp"), "{problem}");
}

#[test]
fn the_gateway_is_checked() {
    let gateway = |rest: &str| problems(&format!("[ingress]\nmode = 'gateway'\n{rest}"), &[]);
    let key = "{ key_id = 'a', key = 'c2VjcmV0' }";
    for right in [
        "".to_owned(),
        "gateway.address = 'gateway.example:28888'\ngateway.route.mode = 'uri'".to_owned(),
        "gateway.address = 'https://*.sandboxes.example'\ngateway.route.mode = 'wildcard'"
            .to_owned(),
        format!("secure_access.keys = [{key}]"),
        format!("secure_access.active_key = 'a'\nsecure_access.keys = [{key}]"),
    ] {
        gateway(&right).unwrap_or_else(|problem| panic!("{right}: {problem}"));
    }
    let other = "{ key_id = 'b', key = 'c2VjcmV0' }";
    for (wrong, expected) in [
        (
            "gateway.host = 'x'".to_owned(),
            "ingress.gateway.host must be",
        ),
        (
            "gateway.route.mode = 'wildcard'".to_owned(),
            "needs ingress.gateway.address",
        ),
        (
            "gateway.address = '*.a.example'".to_owned(),
            "ingress.gateway.address",
        ),
        (
            "gateway.address = 'a/b'".to_owned(),
            "ingress.gateway.address",
        ),
        (
            "gateway.address = 'http://a'".to_owned(),
            "ingress.gateway.address",
        ),
        (
            "secure_access.active_key = 'a'".to_owned(),
            "there are no keys",
        ),
        (
            format!("secure_access.keys = [{key}, {other}]"),
            "active_key must name",
        ),
        (
            format!("secure_access.active_key = 'c'\nsecure_access.keys = [{key}]"),
            "one of the keys",
        ),
        (
            format!("secure_access.active_key = 'a'\nsecure_access.keys = [{key}, {key}]"),
            "be there once",
        ),
        (
            "secure_access.keys = [{ key_id = 'A', key = 'c2VjcmV0' }]".to_owned(),
            "one of 0-9 and a-z",
        ),
        (
            "secure_access.keys = [{ key_id = 'a', key = '?' }]".to_owned(),
            "must be base64",
        ),
    ] {
        let problem = gateway(&wrong).unwrap_err();
        assert!(problem.contains(expected), "{wrong}: {problem}");
    }
}

#[test]
fn a_cluster_needs_an_image_of_execd_and_limits_that_the_service_keeps() {
    let cluster = "[runtime]\ntype = 'kubernetes'\nexecd_image = 'execd:1'\n";
    let config = problems(cluster, &[]).unwrap();
    assert_eq!(config.runtime.kind, RuntimeKind::Kubernetes);
    let wrong = format!(
        "{cluster}[kubernetes]\nsecurity = 'restricted'\nrun_as_user = 0\nsandbox_create_timeout_seconds = 60\n\
         [secure_runtime]\ntype = 'own'\n"
    );
    let problem = problems(&wrong, &[]).unwrap_err();
    for expected in [
        "kubernetes.run_as_user must not be root's",
        "sandbox_create_timeout_seconds must be 1 to 55",
        "name the RuntimeClass in secure_runtime.k8s_runtime_class",
    ] {
        assert!(problem.contains(expected), "{expected} not in {problem}");
    }
    let objects = format!("{cluster}[kubernetes]\nworkload_provider = 'batchsandbox'\n");
    assert!(
        problems(&objects, &[])
            .unwrap_err()
            .contains("workload_provider")
    );
    // What the published server tunes and nothing here does is passed over.
    let tuned = format!("{cluster}[kubernetes]\nread_qps = 20\ninformer_enabled = true\n");
    problems(&tuned, &[]).unwrap();
}
