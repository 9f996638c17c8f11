//! A Kubernetes cluster.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::backend::Backend;
use lifecycle::doctor::Report;

use super::Entry;
use crate::config::kubernetes::{PodSecurity, PullPolicy, check};
use crate::config::{Config, RuntimeKind};
use crate::run::Error;

pub(super) const ENTRY: Entry = Entry {
    kind: RuntimeKind::Kubernetes,
    check,
    open: |config| Box::pin(open(config)),
    doctor,
    data_dir: |config| &config.kubernetes.data_dir,
    data_dir_mut: |config| &mut config.kubernetes.data_dir,
};

async fn open(config: &Config) -> Result<Arc<dyn Backend>, Error> {
    let backend = kubernetes::Kubernetes::open(settings(config)).await;
    Ok(Arc::new(backend.map_err(Error::Backend)?))
}

fn doctor(config: &Config) -> io::Result<Report> {
    let settings = settings(config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let cluster = runtime.block_on(kubernetes::doctor::examine(&settings));
    Ok(Report {
        sections: vec![cluster],
    })
}

/// The Kubernetes backend's own settings.
fn settings(config: &Config) -> kubernetes::Config {
    let ours = &config.kubernetes;
    let image = config.runtime.execd_image.clone();
    let mut settings = kubernetes::Config::new(image.unwrap_or_default());
    settings.kubeconfig.clone_from(&ours.kubeconfig_path);
    settings.namespace.clone_from(&ours.namespace);
    settings.create_timeout = Duration::from_secs(ours.sandbox_create_timeout_seconds);
    settings
        .template
        .clone_from(&ours.batchsandbox_template_file);
    settings.pull_policy = match ours.image_pull_policy {
        PullPolicy::IfNotPresent => kubernetes::PullPolicy::IfNotPresent,
        PullPolicy::Always => kubernetes::PullPolicy::Always,
        PullPolicy::Never => kubernetes::PullPolicy::Never,
    };
    settings
        .init_limits
        .clone_from(&ours.execd_init_resources.limits);
    settings
        .init_requests
        .clone_from(&ours.execd_init_resources.requests);
    settings.security = match ours.security {
        PodSecurity::Baseline => kubernetes::Security::Baseline,
        PodSecurity::Restricted => kubernetes::Security::Restricted {
            user: ours.run_as_user,
        },
    };
    settings.storage_class.clone_from(&ours.storage_class);
    settings.runtime_class = config.secure_runtime.class();
    settings
}
