//! Pulls that go well.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::backend::PullProgress;
use runtime::image::Config;
use serde_json::json;
use tokio::sync::mpsc;

use crate::registry::image::{Family, Form, Image, Layer, Pusher, architecture, digest, index};
use crate::registry::proxy::Proxy;
use crate::registry::token::Service;
use crate::registry::{Auth, PASSWORD, Registry, USER};
use crate::{Place, auth, config, image, platform, read};

fn three_layers(family: Family) -> Image {
    let layer = |name: &str| Layer::default().file("shared", name).file(name, name).tar();
    let config = json!({ "config": {
        "Entrypoint": ["/bin/run"], "Cmd": ["a"], "Env": ["A=1", "B=x=y"], "WorkingDir": "/srv",
        "User": "10:20", "ExposedPorts": { "80/tcp": {} }, "Labels": { "k": "v" }, "StopSignal": "SIGINT",
    }});
    let forms = match family {
        Family::Oci => [Form::Plain, Form::Gzip, Form::Zstd],
        Family::Docker => [Form::Gzip, Form::Gzip, Form::Zstd],
    };
    let names = ["bottom", "middle", "top"];
    let layers = names
        .into_iter()
        .zip(forms)
        .map(|(name, form)| (layer(name), form))
        .collect();
    Image::new(family, layers, &config)
}

#[tokio::test]
async fn every_family_and_compression_is_pulled_and_survives_a_restart() {
    let registry = Registry::start();
    for (tag, family) in [("oci", Family::Oci), ("docker", Family::Docker)] {
        let pushed = three_layers(family);
        Pusher::to(registry.host())
            .push("team/app", tag, &pushed)
            .await;
        let reference = format!("{}/team/app:{tag}", registry.host());
        let place = Place::new();
        assert!(!place.store.is_local(&image(&reference), None));
        let (sender, mut progress) = mpsc::channel(100);
        let id = place
            .store
            .pull(&reference, None, None, Some(sender))
            .await
            .unwrap();
        assert_eq!(id.as_str(), pushed.id());
        let mut events = Vec::new();
        while let Ok(event) = progress.try_recv() {
            events.push(event);
        }
        let total_bytes = pushed.layers.iter().map(|layer| layer.len() as u64).sum();
        assert_eq!(
            events[0],
            PullProgress::Resolved {
                layers: 3,
                total_bytes
            }
        );
        assert!(
            events.contains(&PullProgress::Downloaded { bytes: total_bytes }),
            "{events:?}"
        );
        for tar in &pushed.tars {
            assert!(
                events.contains(&PullProgress::Unpacked {
                    digest: digest(tar)
                }),
                "{events:?}"
            );
        }
        let place = place.reopen();
        assert!(place.store.is_local(&image(&reference), None));
        let prepared = place.store.prepare(&image(&reference), None).await.unwrap();
        assert_eq!(prepared.id, id);
        let shared: Vec<String> = prepared.layers.iter().map(|l| read(l, "shared")).collect();
        assert_eq!(shared, ["top", "middle", "bottom"], "topmost first");
        let config = &prepared.config;
        assert_eq!(config.command(), ["/bin/run", "a"]);
        assert_eq!(config.env[1], ("B".to_owned(), "x=y".to_owned()));
        assert_eq!(
            (config.workdir.as_str(), config.user.as_str()),
            ("/srv", "10:20")
        );
        assert_eq!(config.exposed_ports, ["80/tcp"]);
        assert_eq!(config.stop_signal.as_deref(), Some("SIGINT"));
        let listed = place.store.list();
        assert_eq!(listed[0].references, [reference]);
        assert_eq!(listed[0].users, 1);
        place.assert_tidy();
        assert_eq!(
            place.count("downloads"),
            0,
            "compressed layers are not kept"
        );
    }
}

#[tokio::test]
async fn the_platform_is_chosen_from_an_index() {
    let registry = Registry::start();
    let pusher = Pusher::to(registry.host());
    let other = if architecture() == "arm64" {
        "amd64"
    } else {
        "arm64"
    };
    let built = |arch: &str| {
        let layer = Layer::default().file("arch", arch).tar();
        Image::new(
            Family::Oci,
            vec![(layer, Form::Gzip)],
            &json!({ "architecture": arch }),
        )
    };
    let (ours, theirs) = (built(architecture()), built(other));
    for image in [&ours, &theirs] {
        pusher.push("multi", &image.id()[7..20], image).await;
    }
    let bytes = index(&[(other, &theirs), (architecture(), &ours)]);
    pusher
        .manifest(
            "multi",
            "1",
            "application/vnd.oci.image.index.v1+json",
            &bytes,
        )
        .await;
    let place = Place::new();
    let reference = format!("{}/multi:1", registry.host());
    let prepared = place.store.prepare(&image(&reference), None).await.unwrap();
    assert_eq!(read(&prepared.layers[0], "arch"), architecture());
    assert!(
        !place
            .store
            .is_local(&image(&reference), Some(&platform(other)))
    );
    let prepared = place
        .store
        .prepare(&image(&reference), Some(&platform(other)))
        .await
        .unwrap();
    assert_eq!(read(&prepared.layers[0], "arch"), other);
    // By the index's own digest, as a pinned deployment writes it.
    let pinned = format!("{}/multi@{}", registry.host(), digest(&bytes));
    let id = place.store.pull(&pinned, None, None, None).await.unwrap();
    assert_eq!(id.as_str(), ours.id());
}

#[tokio::test]
async fn passwords_and_tokens_open_private_registries() {
    let service = Service::start().await;
    let pushed = Image::of(Layer::default().file("secret", "x"));
    for is_token in [false, true] {
        let kind = if is_token {
            Auth::Token(&service)
        } else {
            Auth::Password
        };
        let registry = Registry::with_auth(&kind);
        let authorization = if is_token {
            format!("Bearer {}", service.token("private/app"))
        } else {
            let pair = format!("{USER}:{PASSWORD}");
            format!("Basic {}", STANDARD.encode(pair))
        };
        let pusher = Pusher {
            host: registry.host(),
            authorization: Some(authorization),
        };
        pusher.push("private/app", "1", &pushed).await;
        let reference = format!("{}/private/app:1", registry.host());
        let place = Place::new();
        for wrong in [
            None,
            Some(auth(USER, "wrong")),
            Some(auth("nobody", PASSWORD)),
        ] {
            let result = place
                .store
                .pull(&reference, wrong.as_ref(), None, None)
                .await;
            let Err(runtime::image::Error::Unauthorized { message, .. }) = result else {
                panic!("token {is_token}, {wrong:?}: {result:?}");
            };
            assert!(message.contains("user name"), "{message}");
            place.assert_empty();
        }
        let id = place
            .store
            .pull(&reference, Some(&auth(USER, PASSWORD)), None, None)
            .await
            .unwrap();
        assert_eq!(id.as_str(), pushed.id());
    }
    assert_eq!(service.issued(), 1, "one token serves a whole pull");
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_the_registry_when_it_fails() {
    let (registry, mirror) = (Registry::start(), Registry::start());
    let (here, there) = (
        Image::of(Layer::default().file("from", "mirror")),
        Image::of(Layer::default().file("from", "registry")),
    );
    Pusher::to(mirror.host()).push("app", "both", &here).await;
    Pusher::to(registry.host())
        .push("app", "both", &there)
        .await;
    Pusher::to(registry.host()).push("app", "one", &there).await;
    let mut config = config();
    config.mirrors.insert(registry.host(), vec![mirror.host()]);
    let place = Place::with(config);
    let from = async |tag: &str| {
        let reference = format!("{}/app:{tag}", registry.host());
        let prepared = place.store.prepare(&image(reference), None).await.unwrap();
        read(&prepared.layers[0], "from")
    };
    assert_eq!(from("both").await, "mirror");
    assert_eq!(from("one").await, "registry");
}

#[tokio::test]
async fn a_moved_tag_is_seen_by_the_next_pull() {
    let registry = Registry::start();
    let pusher = Pusher::to(registry.host());
    let reference = format!("{}/app:latest", registry.host());
    let place = Place::new();
    let pull = async |version: &str| {
        let pushed = Image::of(Layer::default().file("version", version));
        pusher.push("app", "latest", &pushed).await;
        place
            .store
            .pull(&reference, None, None, None)
            .await
            .unwrap();
        let prepared = place.store.prepare(&image(&reference), None).await.unwrap();
        assert_eq!(read(&prepared.layers[0], "version"), version);
        prepared
    };
    drop(pull("1").await);
    drop(pull("2").await);
    // A restarted server may have sandboxes on the first: nothing goes before it has said so.
    assert_eq!(place.store.list().len(), 2);
    place.store.gc().await.unwrap();
    assert_eq!(place.store.list().len(), 1);
    let second = pull("2").await;
    drop(pull("3").await);
    assert_eq!(place.store.list().len(), 2, "the second is in use");
    drop(second);
    drop(pull("4").await);
    assert_eq!(
        place.store.list().len(),
        1,
        "what lost its name and its users goes by itself"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_waiters_share_one_pull_and_none_ends_it_for_the_others() {
    const BYTES: usize = 4 << 20;
    let registry = Registry::start();
    let pushed = Image::of(Layer::default().noise("noise", BYTES));
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let proxy = Proxy::to(registry.port()).await;
    let reference: Arc<str> = format!("{}/app:1", proxy.host()).into();
    let place = Place::new();
    proxy.hold(true);
    let mut waiters = Vec::new();
    for _ in 0..50 {
        let (store, reference) = (place.store.clone(), Arc::clone(&reference));
        waiters.push(tokio::spawn(async move {
            store.pull(&reference, None, None, None).await
        }));
    }
    // Half of them go before anything came, the first one among them.
    for waiter in waiters.drain(..25) {
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    proxy.hold(false);
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().unwrap().as_str(), pushed.id());
    }
    let once = pushed.layers[0].len() as u64;
    assert!(
        proxy.passed() < once + (64 << 10),
        "{} bytes for a layer of {once}",
        proxy.passed()
    );
    place.assert_tidy();
}

#[tokio::test]
async fn a_pull_that_nobody_waits_for_stops_and_can_be_had_again() {
    let registry = Registry::start();
    let pushed = Image::of(Layer::default().noise("noise", 1 << 20));
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let proxy = Proxy::to(registry.port()).await;
    let reference = format!("{}/app:1", proxy.host());
    let place = Place::new();
    proxy.hold(true);
    let (sender, mut progress) = mpsc::channel(10);
    let pull = place.store.pull(&reference, None, None, Some(sender));
    let gone = tokio::time::timeout(std::time::Duration::from_millis(50), pull).await;
    assert!(gone.is_err(), "nothing can have come through");
    // The task drops its listeners when it ends.
    assert_eq!(progress.recv().await, None);
    proxy.hold(false);
    place
        .store
        .pull(&reference, None, None, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_layer_that_is_here_is_not_downloaded_again() {
    let registry = Registry::start();
    let pusher = Pusher::to(registry.host());
    let shared = || (Layer::default().noise("noise", 1 << 20).tar(), Form::Gzip);
    let own = |name: &str| (Layer::default().file(name, name).tar(), Form::Gzip);
    pusher
        .push(
            "a",
            "1",
            &Image::new(Family::Oci, vec![shared(), own("a")], &json!({})),
        )
        .await;
    pusher
        .push(
            "b",
            "1",
            &Image::new(Family::Oci, vec![shared(), own("b")], &json!({})),
        )
        .await;
    let proxy = Proxy::to(registry.port()).await;
    let place = Place::new();
    place
        .store
        .pull(&format!("{}/a:1", proxy.host()), None, None, None)
        .await
        .unwrap();
    let before = proxy.passed();
    place
        .store
        .pull(&format!("{}/b:1", proxy.host()), None, None, None)
        .await
        .unwrap();
    assert!(
        proxy.passed() - before < 64 << 10,
        "the shared layer came twice"
    );
    assert_eq!(place.count("layers"), 3);
}

#[tokio::test]
async fn credentials_are_not_shown_to_a_mirror() {
    let (registry, mirror) = (Registry::start(), Registry::with_auth(&Auth::Password));
    let here = Image::of(Layer::default().file("from", "mirror"));
    let there = Image::of(Layer::default().file("from", "registry"));
    let pair = format!("{USER}:{PASSWORD}");
    let authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
    Pusher {
        host: mirror.host(),
        authorization,
    }
    .push("app", "1", &here)
    .await;
    Pusher::to(registry.host()).push("app", "1", &there).await;
    let mut config = config();
    config.mirrors.insert(registry.host(), vec![mirror.host()]);
    let place = Place::with(config);
    let reference = format!("{}/app:1", registry.host());
    let auth = Some(auth(USER, PASSWORD));
    let source = lifecycle::backend::Source::Image { reference, auth };
    let prepared = place.store.prepare(&source, None).await.unwrap();
    assert_eq!(
        read(&prepared.layers[0], "from"),
        "registry",
        "the mirror was given the password"
    );
}

#[tokio::test]
async fn short_names_mean_the_default_registry() {
    let registry = Registry::start();
    let pushed = Image::of(Layer::default().file("a", "a"));
    Pusher::to(registry.host())
        .push("library/app", "latest", &pushed)
        .await;
    Pusher::to(registry.host())
        .push("app", "latest", &pushed)
        .await;
    // Docker Hub's names, answered by a mirror of it; and another default registry.
    let mut hub = config();
    hub.mirrors
        .insert("docker.io".to_owned(), vec![registry.host()]);
    let own = Config {
        default_registry: registry.host(),
        ..config()
    };
    for (config, full) in [
        (hub, "docker.io/library/app:latest".to_owned()),
        (own, format!("{}/app:latest", registry.host())),
    ] {
        let place = Place::with(config);
        place.store.pull("app", None, None, None).await.unwrap();
        assert_eq!(place.store.list()[0].references, [full]);
    }
}

#[test]
fn tls_is_spoken_with_the_certificates_the_machine_trusts() {
    const TEST: &str = "pull::tls_is_spoken_with_the_certificates_the_machine_trusts";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // The second run is a process that trusts the authority; this one does not.
    let Ok(port) = std::env::var("OSB_TEST_TLS_PORT") else {
        let directory = tempfile::tempdir().unwrap();
        let plain = Registry::over(directory.path(), &Auth::Everyone);
        let pushed = Image::of(Layer::default().file("a", "a"));
        runtime.block_on(Pusher::to(plain.host()).push("app", "1", &pushed));
        let registry = Registry::with_tls(directory.path());
        assert!(
            runtime.block_on(pull_by_tls(registry.port())).is_err(),
            "nobody vouches for it"
        );
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env("OSB_TEST_TLS_PORT", registry.port().to_string())
            .env("SSL_CERT_FILE", registry.authority())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("1 passed"),
            "{output:?}"
        );
        return;
    };
    runtime
        .block_on(pull_by_tls(port.parse().unwrap()))
        .unwrap();
}

async fn pull_by_tls(port: u16) -> Result<(), runtime::image::Error> {
    let mut config = config();
    let address = format!("https://127.0.0.1:{port}");
    // As a mirror, because an address on loopback alone would be spoken to without TLS. The
    // registry that it mirrors does not exist.
    config
        .mirrors
        .insert("127.0.0.1:1".to_owned(), vec![address]);
    let place = Place::with(config);
    let result = place
        .store
        .pull("127.0.0.1:1/app:1", None, None, None)
        .await;
    result.map(drop)
}

#[tokio::test]
async fn who_has_no_credentials_does_not_ride_on_a_pull_of_one_who_has() {
    let registry = Registry::with_auth(&Auth::Password);
    let authorization = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    let pusher = Pusher {
        host: registry.host(),
        authorization: Some(authorization),
    };
    pusher
        .push("app", "1", &Image::of(Layer::default().file("a", "a")))
        .await;
    let proxy = Proxy::to(registry.port()).await;
    let reference = format!("{}/app:1", proxy.host());
    let place = Place::new();
    proxy.hold(true);
    let known = auth(USER, PASSWORD);
    let allowed = place.store.pull(&reference, Some(&known), None, None);
    let refused = place.store.pull(&reference, None, None, None);
    let (allowed, refused, ()) = tokio::join!(allowed, refused, async { proxy.hold(false) });
    assert!(
        matches!(refused, Err(runtime::image::Error::Unauthorized { .. })),
        "{refused:?}"
    );
    allowed.unwrap();
}

#[tokio::test]
async fn a_registry_on_this_machine_is_asked_only_if_the_operator_lists_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let place = Place::with(Config {
        insecure_registries: vec![format!("127.0.0.1:{}", port ^ 1)],
        ..Config::default()
    });
    for host in ["127.0.0.1", "127.0.0.2", "localhost", "0.0.0.0"] {
        let reference = format!("{host}:{port}/app:1");
        let result = place.store.pull(&reference, None, None, None).await;
        let Err(runtime::image::Error::Registry { message, .. }) = result else {
            panic!("{reference}: {result:?}");
        };
        assert!(message.contains("insecure_registries"), "{message}");
    }
    let asked = listener.accept();
    assert!(asked.is_err(), "somebody asked: {asked:?}");
    place.assert_empty();
}
