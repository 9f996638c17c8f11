//! All contexts of the sandbox, and the default one of each language.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use api::id::ContextId;

use super::context::{Context, StartError};
use super::interpreter::StartOptions;
use super::language::Language;
use crate::limits::{self, Reached};
use crate::process::locked;
use crate::state::Shared;

/// Why there is no context to run in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "{name} is not a language that this sandbox can run; it knows {}; others need an image with their Jupyter kernel",
        known.join(", ")
    )]
    UnknownLanguage { name: String, known: Vec<String> },
    #[error("there is no code context {0}")]
    NotFound(String),
    #[error(transparent)]
    Directory(#[from] crate::command::DirectoryError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Limit(#[from] Reached),
}

pub(super) struct Contexts {
    all: Mutex<HashMap<ContextId, Arc<Context>>>,
    /// The default context of each language. Held while one is made, so that two first runs
    /// share it.
    defaults: tokio::sync::Mutex<HashMap<String, ContextId>>,
}

impl Contexts {
    pub(super) fn new() -> Self {
        Self {
            all: Mutex::default(),
            defaults: tokio::sync::Mutex::default(),
        }
    }

    pub(super) async fn create(
        &self,
        shared: &Arc<Shared>,
        language: &str,
        cwd: Option<String>,
        envs: Vec<(String, String)>,
    ) -> Result<Arc<Context>, Error> {
        let known = find_language(shared, language).await?;
        if locked(&self.all).len() >= limits::CONTEXTS {
            return Err(Error::Limit(Reached {
                name: "CONTEXTS",
                value: limits::CONTEXTS,
                advice: "delete a context that is not used any more",
            }));
        }
        let directory = working_directory(shared, cwd.clone()).await?;
        let options = StartOptions { directory, envs };
        let context = Context::start(shared, language, known, cwd, options).await?;
        locked(&self.all).insert(context.id.clone(), Arc::clone(&context));
        Ok(context)
    }

    /// The context with this id, or the default one of the language, made when it is first asked
    /// for.
    pub(super) async fn find_or_default(
        &self,
        shared: &Arc<Shared>,
        id: Option<&str>,
        language: &str,
        cwd: Option<String>,
    ) -> Result<Arc<Context>, Error> {
        if let Some(id) = id {
            return self.get(id).ok_or_else(|| Error::NotFound(id.to_owned()));
        }
        let mut defaults = self.defaults.lock().await;
        if let Some(context) = defaults.get(language).and_then(|id| self.get(id.as_str())) {
            return Ok(context);
        }
        let context = self.create(shared, language, cwd, Vec::new()).await?;
        defaults.insert(language.to_owned(), context.id.clone());
        Ok(context)
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Context>> {
        let id: ContextId = id.parse().ok()?;
        locked(&self.all).get(&id).cloned()
    }

    /// Sorted by id, which says nothing but is stable.
    pub(super) fn list(&self, language: Option<&str>) -> Vec<Arc<Context>> {
        let mut found: Vec<_> = locked(&self.all)
            .values()
            .filter(|context| language.is_none_or(|language| context.language == language))
            .cloned()
            .collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    /// Ends a context at once; what runs in it is killed.
    pub(super) fn delete(&self, id: &str) -> Option<Arc<Context>> {
        let id: ContextId = id.parse().ok()?;
        locked(&self.all).remove(&id)
    }
}

async fn find_language(shared: &Arc<Shared>, name: &str) -> Result<Language, Error> {
    let (shared, name) = (Arc::clone(shared), name.to_owned());
    let found = tokio::task::spawn_blocking(move || {
        let environment = crate::command::environment(&shared, &[]);
        Language::find(&name, &environment).map_err(|known| Error::UnknownLanguage { name, known })
    });
    found.await.expect("looking for kernels does not panic")
}

async fn working_directory(
    shared: &Arc<Shared>,
    cwd: Option<String>,
) -> Result<Option<PathBuf>, crate::command::DirectoryError> {
    let Some(cwd) = cwd.filter(|cwd| !cwd.is_empty()) else {
        return Ok(None);
    };
    let shared = Arc::clone(shared);
    let found = tokio::task::spawn_blocking(move || {
        let environment = crate::command::environment(&shared, &[]);
        crate::command::directory(&cwd, &environment)
    });
    found
        .await
        .expect("looking at a directory does not panic")
        .map(Some)
}
