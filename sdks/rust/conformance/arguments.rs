//! What calls are made with: JSON, read as the types that the SDK takes.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use opensandbox::wire::exec::file::Permission;
use opensandbox::wire::file_mode::FileMode;
use opensandbox::{
    Client, ConnectionConfig, CreateSandbox, Page, RetryPolicy, SandboxFilter, SnapshotFilter,
    WriteFile,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Failure;

/// The arguments of one call.
pub(crate) struct With(pub(crate) Map<String, Value>);

impl With {
    /// An argument, or nothing where it is absent or null.
    pub(crate) fn optional<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value.clone())
                .map(Some)
                .map_err(|error| Failure::Runner(format!("{name}: {error}"))),
        }
    }

    /// An argument that must be there.
    pub(crate) fn need<T: DeserializeOwned>(&self, name: &str) -> Result<T, Failure> {
        self.optional(name)?
            .ok_or_else(|| Failure::Runner(format!("{name} is missing")))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// Text, empty where it is absent.
    pub(crate) fn string(&self, name: &str) -> &str {
        self.text(name).unwrap_or("")
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    /// A time in milliseconds or seconds, as its name says.
    pub(crate) fn time(&self, name: &str) -> Option<Duration> {
        let count = self.0.get(name)?.as_f64()?;
        let unit = if name.ends_with("_ms") { 1000.0 } else { 1.0 };
        Duration::try_from_secs_f64(count / unit).ok()
    }

    pub(crate) fn config(&self) -> Result<ConnectionConfig, Failure> {
        let mut config = ConnectionConfig::new()
            .domain(self.string("domain"))
            .api_key(self.string("api_key"))
            .use_server_proxy(self.is("use_server_proxy"));
        if let Some(protocol) = self.text("protocol") {
            config = config.protocol(protocol.parse()?);
        }
        if let Some(timeout) = self.time("request_timeout_ms") {
            config = config.request_timeout(timeout);
        }
        let headers: BTreeMap<String, String> = self.optional("headers")?.unwrap_or_default();
        for (name, value) in headers {
            config = config.header(name, value);
        }
        if let Some(retry) = self.optional("retry")? {
            let retry = Self(retry);
            let mut policy = RetryPolicy::default();
            policy.attempts = retry.optional("attempts")?.unwrap_or(policy.attempts);
            policy.first_delay = retry.time("first_delay_ms").unwrap_or(policy.first_delay);
            policy.longest_delay = retry
                .time("longest_delay_ms")
                .unwrap_or(policy.longest_delay);
            config = config.retry(policy);
        }
        Ok(config)
    }

    /// A sandbox to make, by everything that is said of it.
    pub(crate) fn create(&self, client: &Client) -> Result<CreateSandbox, Failure> {
        let mut create = if let Some(id) = self.text("snapshot_id") {
            CreateSandbox::from_snapshot(id)
        } else if let Some(id) = self.text("template_id") {
            CreateSandbox::from_template(id)
        } else {
            CreateSandbox::from_image(self.string("image"))
        };
        create = create.client(client);
        if let Some(name) = self.text("name") {
            create = create.name(name);
        }
        if let Some(by) = self.time("renew_on_access_s") {
            create = create.renew_on_access(by);
        }
        if let Some(key) = self.text("idempotency_key") {
            create = create.idempotency_key(key);
        }
        if let Some(lifetime) = self.time("lifetime_s") {
            create = create.timeout(lifetime);
        } else if self.0.get("lifetime_s").is_some() {
            create = create.forever();
        }
        type Texts = BTreeMap<String, String>;
        for (name, value) in self.optional::<Texts>("env")?.unwrap_or_default() {
            create = create.env(name, value);
        }
        for (name, value) in self.optional::<Texts>("metadata")?.unwrap_or_default() {
            create = create.metadata(name, value);
        }
        for (name, value) in self.optional::<Texts>("extensions")?.unwrap_or_default() {
            create = create.extension(name, value);
        }
        if let Some(limits) = self.optional("resources")? {
            create = create.resources(limits);
        }
        if let Some(argv) = self.optional::<Vec<String>>("entrypoint")? {
            create = create.entrypoint(argv);
        }
        for volume in self.optional::<Vec<_>>("volumes")?.unwrap_or_default() {
            create = create.volume(volume);
        }
        if let Some(policy) = self.optional("network_policy")? {
            create = create.network_policy(policy);
        }
        if let Some(enabled) = self.optional("credential_proxy")? {
            create = create.credential_proxy(enabled);
        }
        if let Some(secure) = self.optional("secure_access")? {
            create = create.secure_access(secure);
        }
        if let Some(platform) = self.optional::<Texts>("platform")? {
            let part = |name: &str| platform.get(name).cloned().unwrap_or_default();
            create = create.platform(part("os"), part("arch"));
        }
        if let Some(hooks) = self.optional("lifecycle")? {
            create = create.lifecycle(hooks);
        }
        if let Some(timeout) = self.time("ready_timeout_ms") {
            create = create.ready_timeout(timeout);
        }
        if self.is("skip_ready") {
            create = create.skip_health_check();
        }
        Ok(create)
    }

    pub(crate) fn page(&self) -> Page {
        let usual = Page::default();
        Page {
            number: self.number("page").unwrap_or(usual.number),
            size: self.number("page_size").unwrap_or(usual.size),
        }
    }

    pub(crate) fn sandbox_filter(&self) -> Result<SandboxFilter, Failure> {
        Ok(SandboxFilter {
            states: self.optional("states")?.unwrap_or_default(),
            metadata: self.optional("metadata")?.unwrap_or_default(),
            page: self.page(),
        })
    }

    pub(crate) fn snapshot_filter(&self) -> Result<SnapshotFilter, Failure> {
        Ok(SnapshotFilter {
            sandbox_id: self.optional("sandbox_id")?,
            name: self.optional("name")?,
            states: self.optional("states")?.unwrap_or_default(),
            page: self.page(),
        })
    }

    /// The octal digits of a mode.
    fn mode(&self) -> Result<Option<u32>, Failure> {
        let digits = self.text("mode");
        digits
            .map(|digits| u32::from_str_radix(digits, 8))
            .transpose()
            .map_err(|error| Failure::Runner(format!("mode: {error}")))
    }

    pub(crate) fn permission(&self) -> Result<Permission, Failure> {
        Ok(Permission {
            mode: self.mode()?.map(FileMode::from_bits),
            owner: self.optional("owner")?,
            group: self.optional("group")?,
        })
    }

    /// What is to be written: text, or bytes as base64.
    fn contents(&self) -> Result<Bytes, Failure> {
        match self.text("base64") {
            Some(text) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .map(Bytes::from)
                .map_err(|error| Failure::Runner(format!("base64: {error}"))),
            None => Ok(Bytes::copy_from_slice(self.string("text").as_bytes())),
        }
    }

    pub(crate) fn file(&self) -> Result<WriteFile, Failure> {
        let mut file = WriteFile::new(self.string("path"), self.contents()?);
        if let Some(mode) = self.mode()? {
            file = file.mode(mode);
        }
        if let Some(owner) = self.text("owner") {
            file = file.owner(owner);
        }
        if let Some(group) = self.text("group") {
            file = file.group(group);
        }
        Ok(file)
    }
}
