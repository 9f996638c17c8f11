//! The statements of the SQL stores, and the one body that both share.
//!
//! Both databases understand `$1`, `ON CONFLICT` and `RETURNING`, so the statements are the same
//! text; only the migrations differ. Rows hold the record as a JSON document beside the few
//! columns that are searched. Times are microseconds since 1970.

use jiff::Timestamp;

pub(super) const PUT_SANDBOX: &str = "INSERT INTO sandboxes (id, state, created_at, expires_at, document) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET \
     state = excluded.state, expires_at = excluded.expires_at, document = excluded.document";
pub(super) const REMOVE_SANDBOX: &str = "DELETE FROM sandboxes WHERE id = $1";
pub(super) const ALL_SANDBOXES: &str = "SELECT document FROM sandboxes ORDER BY created_at, id";

pub(super) const PUT_SNAPSHOT: &str = "INSERT INTO snapshots (id, sandbox_id, state, created_at, document) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET \
     state = excluded.state, document = excluded.document";
pub(super) const REMOVE_SNAPSHOT: &str = "DELETE FROM snapshots WHERE id = $1";
pub(super) const ALL_SNAPSHOTS: &str = "SELECT document FROM snapshots ORDER BY created_at, id";

/// Takes a free or expired key, or one that is this sandbox's already; else changes no row.
pub(super) const CLAIM_KEY: &str = "INSERT INTO idempotency_keys (name, fingerprint, sandbox_id, expires_at) \
     VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO UPDATE SET \
     fingerprint = excluded.fingerprint, sandbox_id = excluded.sandbox_id, \
     expires_at = excluded.expires_at \
     WHERE idempotency_keys.expires_at <= $5 \
     OR idempotency_keys.sandbox_id = excluded.sandbox_id";
pub(super) const FIND_KEY: &str =
    "SELECT fingerprint, sandbox_id, expires_at FROM idempotency_keys WHERE name = $1";
pub(super) const RELEASE_KEYS: &str = "DELETE FROM idempotency_keys WHERE sandbox_id = $1";
pub(super) const PRUNE_KEYS: &str = "DELETE FROM idempotency_keys WHERE expires_at < $1";

pub(super) const APPEND_EVENT: &str =
    "INSERT INTO events (at, sandbox_id, document) VALUES ($1, $2, $3) RETURNING id";
pub(super) const EVENTS_AFTER: &str =
    "SELECT id, document FROM events WHERE id > $1 ORDER BY id LIMIT $2";
pub(super) const EVENTS_OF: &str =
    "SELECT id, document FROM events WHERE sandbox_id = $1 ORDER BY id DESC LIMIT $2";
pub(super) const OLDEST_EVENT: &str = "SELECT MIN(id) FROM events";
pub(super) const NEWEST_EVENT: &str = "SELECT MAX(id) FROM events";
pub(super) const PRUNE_EVENTS: &str =
    "DELETE FROM events WHERE id <= (SELECT MAX(id) FROM events) - $1";

pub(super) const APPEND_AUDIT: &str =
    "INSERT INTO audit (at, tenant, actor, target, document) VALUES ($1, $2, $3, $4, $5)";
pub(super) const AUDIT: &str = "SELECT id, document FROM audit \
     WHERE tenant = $1 AND (CAST($2 AS TEXT) IS NULL OR target = $2) \
     AND (CAST($3 AS TEXT) IS NULL OR actor = $3) AND id < $4 ORDER BY id DESC LIMIT $5";
pub(super) const AMEND_AUDIT: &str = "UPDATE audit SET document = $4 WHERE id = \
     (SELECT MAX(id) FROM audit WHERE target = $1 AND actor = $2 AND tenant = $3)";
pub(super) const PUT_ENDED: &str =
    "INSERT INTO ended (sandbox_id, ended_at, summary, document) VALUES ($1, $2, $3, $4)";
pub(super) const LIMIT_ENDED: &str =
    "DELETE FROM ended WHERE number <= (SELECT MAX(number) FROM ended) - $1";
pub(super) const ENDED: &str =
    "SELECT document FROM ended WHERE sandbox_id = $1 ORDER BY number DESC LIMIT 1";
/// Without the output, which is most of it.
pub(super) const ALL_ENDED: &str = "SELECT summary FROM ended ORDER BY number";
pub(super) const PRUNE_ENDED: &str = "DELETE FROM ended WHERE ended_at < $1";
pub(super) const PRUNE_AUDIT: &str =
    "DELETE FROM audit WHERE id <= (SELECT MAX(id) FROM audit) - $1";

pub(super) const PUT_API_KEY: &str = "INSERT INTO api_keys (id, document) VALUES ($1, $2) \
     ON CONFLICT (id) DO UPDATE SET document = excluded.document";
pub(super) const TOUCH_API_KEY: &str = "UPDATE api_keys SET last_used_at = $2 WHERE id = $1";
pub(super) const REMOVE_API_KEY: &str = "DELETE FROM api_keys WHERE id = $1";
pub(super) const ALL_API_KEYS: &str = "SELECT last_used_at, document FROM api_keys ORDER BY id";

pub(super) const PUT_TENANT: &str = "INSERT INTO tenants (name, document) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET document = excluded.document";
pub(super) const REMOVE_TENANT: &str = "DELETE FROM tenants WHERE name = $1";
pub(super) const ALL_TENANTS: &str = "SELECT document FROM tenants ORDER BY name";

pub(super) const GET_META: &str = "SELECT value FROM meta WHERE name = $1";
pub(super) const PUT_META: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// The rows of `meta`.
pub(super) const SCHEMA: &str = "schema";
pub(super) const IDENTITY: &str = "identity";
pub(super) const SETTLED: &str = "settled";

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// Everything but opening and migrating, for one kind of database.
///
/// A macro because the driver's types differ and its generic bounds would be longer than this
/// body; the statements above and the code here exist once.
macro_rules! sql_store {
    ($store:ty, $kind:literal, $begin:literal, $fail:expr) => {
        impl $store {
            async fn meta(&self, name: &str) -> Result<Option<String>, Error> {
                let row = sqlx::query_scalar(sql::GET_META)
                    .bind(name)
                    .fetch_optional(&self.pool);
                row.await.map_err(|e| $fail(self, "read its settings", &e))
            }

            fn parse<T: serde::de::DeserializeOwned>(&self, text: &str) -> Result<T, Error> {
                serde_json::from_str(text).map_err(|error| Error::Corrupt {
                    store: $kind,
                    location: self.location.clone(),
                    message: format!("a record cannot be read: {error}"),
                })
            }

            async fn documents<T: serde::de::DeserializeOwned>(
                &self,
                statement: &'static str,
            ) -> Result<Vec<T>, Error> {
                let rows = sqlx::query_scalar(statement).fetch_all(&self.pool).await;
                let rows: Vec<String> = rows.map_err(|e| $fail(self, "read its records", &e))?;
                rows.iter().map(|text| self.parse(text)).collect()
            }

            async fn api_keys(&self) -> Result<Vec<ApiKey>, Error> {
                let rows = sqlx::query_as(sql::ALL_API_KEYS)
                    .fetch_all(&self.pool)
                    .await;
                let rows: Vec<(Option<i64>, String)> =
                    rows.map_err(|e| $fail(self, "read its keys", &e))?;
                let read = |(used, text): (Option<i64>, String)| {
                    let mut key: ApiKey = self.parse(&text)?;
                    key.last_used_at = used.and_then(|at| Timestamp::from_second(at).ok());
                    Ok(key)
                };
                rows.into_iter().map(read).collect()
            }

            fn event(&self, (id, text): (i64, String)) -> Result<Event, Error> {
                let mut event: Event = self.parse(&text)?;
                event.id = id;
                Ok(event)
            }

            async fn write_all(&self, batches: &[Batch]) -> Result<Vec<BatchOutcome>, sqlx::Error> {
                let mut transaction = self.pool.begin_with($begin).await?;
                let mut outcomes = Vec::with_capacity(batches.len());
                for batch in batches {
                    // Claims come first: a batch that is refused has written nothing yet.
                    match taken_key(&mut transaction, batch).await? {
                        Some(used) => outcomes.push(BatchOutcome::KeyTaken(used)),
                        None => {
                            let mut numbers = Vec::new();
                            for write in &batch.writes {
                                put(&mut transaction, write, &mut numbers).await?;
                            }
                            outcomes.push(BatchOutcome::Written(numbers));
                        }
                    }
                }
                transaction.commit().await?;
                Ok(outcomes)
            }
        }

        async fn taken_key(
            connection: &mut Connection,
            batch: &Batch,
        ) -> Result<Option<KeyRecord>, sqlx::Error> {
            for write in &batch.writes {
                let Write::ClaimKey { record, now } = write else {
                    continue;
                };
                let claimed = sqlx::query(sql::CLAIM_KEY)
                    .bind(&record.key)
                    .bind(&record.fingerprint)
                    .bind(record.sandbox_id.as_str())
                    .bind(sql::micros(record.expires_at))
                    .bind(sql::micros(*now))
                    .execute(&mut *connection)
                    .await?;
                if claimed.rows_affected() == 0 {
                    return find_key(connection, &record.key).await;
                }
            }
            Ok(None)
        }

        async fn find_key(
            connection: &mut Connection,
            key: &str,
        ) -> Result<Option<KeyRecord>, sqlx::Error> {
            let row: Option<(String, String, i64)> = sqlx::query_as(sql::FIND_KEY)
                .bind(key)
                .fetch_optional(connection)
                .await?;
            let Some((fingerprint, sandbox_id, expires_at)) = row else {
                return Ok(None);
            };
            let decode = |error: String| sqlx::Error::Decode(error.into());
            Ok(Some(KeyRecord {
                key: key.to_owned(),
                fingerprint,
                sandbox_id: sandbox_id.try_into().map_err(|e| decode(format!("{e}")))?,
                expires_at: Timestamp::from_microsecond(expires_at)
                    .map_err(|e| decode(e.to_string()))?,
            }))
        }

        async fn put(
            connection: &mut Connection,
            write: &Write,
            numbers: &mut Vec<EventId>,
        ) -> Result<(), sqlx::Error> {
            let encode = |error: serde_json::Error| sqlx::Error::Encode(error.into());
            match write {
                Write::PutSandbox(record) => {
                    let sandbox = &record.sandbox;
                    sqlx::query(sql::PUT_SANDBOX)
                        .bind(sandbox.id.as_str())
                        .bind(sandbox.status.state.as_str())
                        .bind(sql::micros(sandbox.created_at))
                        .bind(sandbox.expires_at.map(sql::micros))
                        .bind(serde_json::to_string(&**record).map_err(encode)?)
                        .execute(connection)
                        .await?;
                }
                Write::RemoveSandbox(id) => {
                    run(connection, sql::REMOVE_SANDBOX, id.as_str()).await?
                }
                Write::PutSnapshot(snapshot) => {
                    sqlx::query(sql::PUT_SNAPSHOT)
                        .bind(snapshot.id.as_str())
                        .bind(snapshot.sandbox_id.as_str())
                        .bind(snapshot.state.as_str())
                        .bind(sql::micros(snapshot.created_at))
                        .bind(serde_json::to_string(&**snapshot).map_err(encode)?)
                        .execute(connection)
                        .await?;
                }
                Write::RemoveSnapshot(id) => {
                    run(connection, sql::REMOVE_SNAPSHOT, id.as_str()).await?
                }
                // Done before everything else.
                Write::ClaimKey { .. } => {}
                Write::ReleaseKeys(id) => run(connection, sql::RELEASE_KEYS, id.as_str()).await?,
                Write::AppendEvent(event) => {
                    let number: EventId = sqlx::query_scalar(sql::APPEND_EVENT)
                        .bind(sql::micros(event.at))
                        .bind(event.sandbox_id.as_ref().map(|id| id.as_str()))
                        .bind(serde_json::to_string(event).map_err(encode)?)
                        .fetch_one(connection)
                        .await?;
                    numbers.push(number);
                }
                Write::AppendAudit(entry) => {
                    sqlx::query(sql::APPEND_AUDIT)
                        .bind(sql::micros(entry.at))
                        .bind(entry.tenant.as_str())
                        .bind(&entry.actor)
                        .bind(&entry.target)
                        .bind(serde_json::to_string(entry).map_err(encode)?)
                        .execute(connection)
                        .await?;
                }
                Write::AmendAudit(entry) => {
                    sqlx::query(sql::AMEND_AUDIT)
                        .bind(&entry.target)
                        .bind(&entry.actor)
                        .bind(entry.tenant.as_str())
                        .bind(serde_json::to_string(entry).map_err(encode)?)
                        .execute(connection)
                        .await?;
                }
                Write::PutEnded(record) => {
                    sqlx::query(sql::PUT_ENDED)
                        .bind(record.ended.sandbox_id.as_str())
                        .bind(sql::micros(record.ended.ended_at))
                        .bind(serde_json::to_string(&record.ended).map_err(encode)?)
                        .bind(serde_json::to_string(&**record).map_err(encode)?)
                        .execute(&mut *connection)
                        .await?;
                    run(
                        connection,
                        sql::LIMIT_ENDED,
                        i64::from(lifecycle::ENDED_MAX),
                    )
                    .await?;
                }
                Write::PutApiKey(_)
                | Write::TouchApiKey { .. }
                | Write::RemoveApiKey(_)
                | Write::PutTenant(_)
                | Write::RemoveTenant(_) => put_access(connection, write).await?,
                Write::Settle => {
                    let row = sqlx::query(sql::PUT_META).bind(sql::SETTLED).bind("yes");
                    row.execute(connection).await?;
                }
                Write::Prune {
                    keys_before,
                    ended_before,
                    keep_events,
                    keep_audit,
                } => {
                    let keys_before = sql::micros(*keys_before);
                    run(connection, sql::PRUNE_KEYS, keys_before).await?;
                    run(connection, sql::PRUNE_ENDED, sql::micros(*ended_before)).await?;
                    run(connection, sql::PRUNE_EVENTS, i64::from(*keep_events)).await?;
                    run(connection, sql::PRUNE_AUDIT, i64::from(*keep_audit)).await?;
                }
            }
            Ok(())
        }

        /// Writes keys and tenants.
        async fn put_access(connection: &mut Connection, write: &Write) -> Result<(), sqlx::Error> {
            let encode = |error: serde_json::Error| sqlx::Error::Encode(error.into());
            let query = match write {
                Write::PutApiKey(key) => sqlx::query(sql::PUT_API_KEY)
                    .bind(key.id.as_ref())
                    .bind(serde_json::to_string(&**key).map_err(encode)?),
                Write::TouchApiKey { id, at } => {
                    sqlx::query(sql::TOUCH_API_KEY).bind(id.as_ref()).bind(*at)
                }
                Write::RemoveApiKey(id) => sqlx::query(sql::REMOVE_API_KEY).bind(id.as_ref()),
                Write::PutTenant(record) => sqlx::query(sql::PUT_TENANT)
                    .bind(record.name.as_str())
                    .bind(serde_json::to_string(&**record).map_err(encode)?),
                Write::RemoveTenant(name) => sqlx::query(sql::REMOVE_TENANT).bind(name.as_str()),
                _ => return Ok(()),
            };
            query.execute(connection).await.map(drop)
        }

        /// Runs a statement with one parameter.
        async fn run<'q, T>(
            connection: &mut Connection,
            statement: &'static str,
            value: T,
        ) -> Result<(), sqlx::Error>
        where
            T: 'q + Send + sqlx::Encode<'q, Database> + sqlx::Type<Database>,
        {
            let query = sqlx::query(statement).bind(value);
            query.execute(connection).await.map(drop)
        }

        #[async_trait::async_trait]
        impl lifecycle::store::Store for $store {
            fn name(&self) -> &'static str {
                $kind
            }

            async fn load(&self) -> Result<Contents, Error> {
                let newest: Option<i64> = sqlx::query_scalar(sql::NEWEST_EVENT)
                    .fetch_one(&self.pool)
                    .await
                    .map_err(|e| $fail(self, "read its events", &e))?;
                Ok(Contents {
                    identity: self.identity.clone(),
                    is_settled: self.meta(sql::SETTLED).await?.is_some(),
                    sandboxes: self.documents(sql::ALL_SANDBOXES).await?,
                    snapshots: self.documents(sql::ALL_SNAPSHOTS).await?,
                    ended: self.documents(sql::ALL_ENDED).await?,
                    api_keys: self.api_keys().await?,
                    tenants: self.documents(sql::ALL_TENANTS).await?,
                    last_event: newest.unwrap_or(0),
                })
            }

            async fn apply(&self, batches: &[Batch]) -> Result<Vec<BatchOutcome>, Error> {
                self.write_all(batches)
                    .await
                    .map_err(|e| $fail(self, "write", &e))
            }

            async fn key(&self, key: &str) -> Result<Option<KeyRecord>, Error> {
                let look_up = async {
                    let mut connection = self.pool.acquire().await?;
                    find_key(&mut connection, key).await
                };
                look_up.await.map_err(|e| $fail(self, "look up a key", &e))
            }

            async fn events_after(&self, after: EventId, limit: u32) -> Result<Vec<Event>, Error> {
                let rows: Vec<(i64, String)> = sqlx::query_as(sql::EVENTS_AFTER)
                    .bind(after)
                    .bind(i64::from(limit))
                    .fetch_all(&self.pool)
                    .await
                    .map_err(|e| $fail(self, "read events", &e))?;
                rows.into_iter().map(|row| self.event(row)).collect()
            }

            async fn oldest_event(&self) -> Result<Option<EventId>, Error> {
                let oldest = sqlx::query_scalar(sql::OLDEST_EVENT)
                    .fetch_one(&self.pool)
                    .await;
                oldest.map_err(|e| $fail(self, "read events", &e))
            }

            async fn events_of(
                &self,
                sandbox: &SandboxId,
                limit: u32,
            ) -> Result<Vec<Event>, Error> {
                let rows: Vec<(i64, String)> = sqlx::query_as(sql::EVENTS_OF)
                    .bind(sandbox.as_str())
                    .bind(i64::from(limit))
                    .fetch_all(&self.pool)
                    .await
                    .map_err(|e| $fail(self, "read events", &e))?;
                rows.into_iter().rev().map(|row| self.event(row)).collect()
            }

            async fn ended(
                &self,
                sandbox: &SandboxId,
            ) -> Result<Option<lifecycle::EndedRecord>, Error> {
                let row: Option<String> = sqlx::query_scalar(sql::ENDED)
                    .bind(sandbox.as_str())
                    .fetch_optional(&self.pool)
                    .await
                    .map_err(|e| $fail(self, "read the last logs", &e))?;
                row.map(|text| self.parse(&text)).transpose()
            }

            async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, Error> {
                let rows: Vec<(i64, String)> = sqlx::query_as(sql::AUDIT)
                    .bind(query.tenant.as_str())
                    .bind(&query.target)
                    .bind(&query.actor)
                    .bind(query.before.unwrap_or(i64::MAX))
                    .bind(i64::from(query.limit))
                    .fetch_all(&self.pool)
                    .await
                    .map_err(|e| $fail(self, "read the audit trail", &e))?;
                let read = |(id, text): (i64, String)| {
                    let mut entry: AuditEntry = self.parse(&text)?;
                    entry.id = id;
                    Ok(entry)
                };
                rows.into_iter().map(read).collect()
            }

            async fn health(&self) -> Result<(), Error> {
                self.check().await
            }
        }
    };
}

pub(super) use sql_store;
