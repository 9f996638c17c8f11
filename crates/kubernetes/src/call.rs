//! The API server: one place that connects, bounds every call and sorts what can go wrong.

use std::time::Duration;

use api::error_chain;
use k8s_openapi::NamespaceResourceScope;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Resource};
use lifecycle::backend::Error;

use crate::config::Config;

/// The API server answers this from memory.
const HEALTH: Duration = Duration::from_secs(5);

/// A connection to a cluster, and where its sandboxes are. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    timeout: Duration,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The API server said no.
    #[error("{action}: {message}")]
    Refused {
        action: &'static str,
        status: u16,
        message: String,
    },
    /// It did not answer.
    #[error("{action}: the API server did not answer within {} s", after.as_secs())]
    Silent {
        action: &'static str,
        after: Duration,
    },
    /// It could not be reached, or spoke nonsense.
    #[error("{action}: {message}")]
    Broken {
        action: &'static str,
        message: String,
    },
}

impl CallError {
    pub(crate) fn new(action: &'static str, cause: &kube::Error) -> Self {
        match cause {
            kube::Error::Api(status) => Self::Refused {
                action,
                status: status.code,
                message: status.message.clone(),
            },
            other => Self::Broken {
                action,
                message: error_chain(other).to_string(),
            },
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// As the caller of the backend sees it, where nothing more is known.
    pub(crate) fn into_error(self) -> Error {
        match &self {
            Self::Refused {
                status: 403,
                message,
                ..
            } if message.contains("exceeded quota") => Error::Exhausted {
                what: "the namespace's quota",
                message: message.clone(),
            },
            _ => unavailable(self.to_string()),
        }
    }
}

pub(crate) fn unavailable(message: impl Into<String>) -> Error {
    Error::Unavailable {
        backend: "kubernetes",
        message: message.into(),
    }
}

impl Cluster {
    /// Reads how the cluster is reached. Makes no call yet.
    pub(crate) async fn connect(config: &Config) -> Result<Self, Error> {
        let read = match &config.kubeconfig {
            None => kube::Config::infer()
                .await
                .map_err(|error| error_chain(&error).to_string()),
            Some(path) => from_file(path).await,
        };
        let settings = read.map_err(|message| {
            unavailable(format!(
                "no cluster is known: {message}; set kubernetes.kubeconfig_path, or run the server in the cluster"
            ))
        })?;
        let namespace = config.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| settings.default_namespace.clone());
        let client = Client::try_from(settings)
            .map_err(|error| unavailable(error_chain(&error).to_string()))?;
        Ok(Self {
            client,
            namespace,
            timeout: config.call_timeout,
        })
    }

    /// Objects of one kind in the sandboxes' namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits for one call, for as long as the configuration allows.
    pub(crate) async fn call<T>(
        &self,
        action: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        self.call_within(self.timeout, action, call).await
    }

    async fn call_within<T>(
        &self,
        after: Duration,
        action: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(after, call).await {
            Err(_) => Err(CallError::Silent { action, after }),
            Ok(answer) => answer.map_err(|cause| CallError::new(action, &cause)),
        }
    }

    /// The API server's version, where it answers.
    pub(crate) async fn version(&self) -> Result<String, Error> {
        let call = self.client.apiserver_version();
        let asked = self.call_within(HEALTH, "asking the API server how it is", call);
        let version = asked.await.map_err(CallError::into_error)?;
        Ok(version.git_version)
    }
}

async fn from_file(path: &std::path::Path) -> Result<kube::Config, String> {
    let text = |error: &dyn std::error::Error| error_chain(error).to_string();
    let file = Kubeconfig::read_from(path).map_err(|error| text(&error))?;
    let options = KubeConfigOptions::default();
    let read = kube::Config::from_custom_kubeconfig(file, &options).await;
    read.map_err(|error| text(&error))
}
