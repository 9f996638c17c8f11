//! The kernel's own view of the layers: an overlay of them shows what the image means.

use serde_json::json;

use crate::registry::Registry;
use crate::registry::image::{Family, Form, Image, Layer, Pusher};
use crate::{Place, image, in_own_mounts, join, run};

#[test]
fn an_overlay_of_the_layers_shows_what_the_image_means() {
    if !in_own_mounts("mount::an_overlay_of_the_layers_shows_what_the_image_means") {
        return;
    }
    let bottom = Layer::default()
        .busybox()
        .directory("opaque")
        .file("opaque/below", "x")
        .directory("remade")
        .file("remade/below", "x")
        .file("removed", "x")
        .file("replaced", "old")
        .directory("merged")
        .file("merged/below", "x");
    let top = Layer::default()
        .directory("opaque")
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/above", "x")
        .file(".wh.remade", "")
        .directory("remade")
        .file("remade/above", "x")
        .file(".wh.removed", "")
        .file("replaced", "new")
        .directory("merged")
        .file("merged/above", "x");
    let layers = vec![(bottom.tar(), Form::Gzip), (top.tar(), Form::Zstd)];
    let pushed = Image::new(Family::Oci, layers, &json!({}));
    let target = tempfile::tempdir().unwrap();
    let path = target.path().to_str().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let place = Place::new();
    let prepared = runtime.block_on(async {
        let registry = Registry::start();
        Pusher::to(registry.host()).push("app", "1", &pushed).await;
        place
            .store
            .prepare(&image(format!("{}/app:1", registry.host())), None)
            .await
            .unwrap()
    });
    let options = format!("lowerdir={}", join(&prepared.layers));
    run("mount", &["-t", "overlay", "-o", &options, "overlay", path]);
    let list = |name: &str| run("ls", &["-A", target.path().join(name).to_str().unwrap()]);
    assert_eq!(list("opaque"), "above\n");
    assert_eq!(list("remade"), "above\n");
    assert_eq!(list("merged"), "above\nbelow\n");
    assert_eq!(
        list(""),
        "bin\netc\nmerged\nopaque\nremade\nreplaced\ntmp\n"
    );
    assert_eq!(run("chroot", &[path, "/bin/cat", "/replaced"]), "new");
}
