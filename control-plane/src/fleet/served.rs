//! Writes the status of policies, which the fleet API may not take: Karmada's definitions have no
//! such subresource.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::Api;
use kube::{Resource, ResourceExt as _};
use muster_shared::client::{self, is_conflict, is_not_found};
use muster_shared::merge;
use muster_shared::queue::Next;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::memory::Backoff;
use super::write::merge_status;

/// First and longest time for which an API that took no status is not asked again: definitions may
/// be upgraded a little after this process.
const FIRST: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(1);
/// Time after which a status is written again that came too late: the next version of the object
/// comes by itself, and may be on its way already.
const OVERTAKEN: Duration = Duration::from_secs(2);

/// Whether the fleet API takes the status of a kind, and when it is asked again after it did not.
#[derive(Debug)]
pub struct Served(Backoff<()>);

impl Default for Served {
    fn default() -> Self {
        Self(Backoff::between(FIRST, LONGEST))
    }
}

impl Served {
    /// Returns the time until a status may be written; `None` if it may be written now.
    pub fn wait(&self) -> Option<Duration> {
        self.0.rest(&())
    }

    /// Writes a status upon an object as it was read, unless it has that status or none may be
    /// written now. `is_kept` says of what the API has stored whether that is what was written,
    /// rather than what was left by a definition that lacks fields.
    ///
    /// # Errors
    /// The write has failed for another reason than that the API takes no status of this kind.
    pub async fn write<K, S>(
        &self,
        api: &Api<K>,
        object: &K,
        wanted: &S,
        status: impl Fn(&K) -> Option<&S>,
        is_kept: impl Fn(&S) -> bool,
    ) -> Result<Next, kube::Error>
    where
        K: Resource + Clone + Debug + DeserializeOwned,
        S: Serialize,
    {
        if let Some(wait) = self.wait() {
            return Ok(Next::After(wait));
        }
        let name = object.name_any();
        let Some(difference) = merge::difference(&json!(status(object)), &json!(wanted)) else {
            return Ok(Next::Done);
        };
        let patch = json!({
            "metadata": { "resourceVersion": object.resource_version() },
            "status": difference,
        });
        match merge_status(api, &name, &patch).await {
            Ok(written) if status(&written).is_some_and(&is_kept) => {
                self.0.forget(&());
                Ok(Next::Done)
            }
            Ok(_) => Ok(self.refused(api, "drops it")),
            Err(error) if is_conflict(&error) => Ok(Next::After(OVERTAKEN)),
            // The answer names the object whether the object or its subresource is missing.
            Err(error) if is_not_found(&error) => {
                let there = client::get_metadata_opt(api, &name).await?;
                Ok(there.map_or(Next::Done, |_| self.refused(api, "does not serve it")))
            }
            Err(kube::Error::Api(answer)) if answer.code == 405 => {
                Ok(self.refused(api, "does not serve it"))
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that the API takes no status of a kind, and says so once.
    fn refused<K: Resource>(&self, api: &Api<K>, what: &str) -> Next {
        if !self.0.has(&()) {
            let plural = api.resource_url().rsplit('/').next();
            tracing::info!(
                "{} get no status, because the fleet API {what}: apply the definitions of this version, unless they are Karmada's. \
                 What is wrong with a policy is reported by events all the same",
                plural.unwrap_or_default()
            );
        }
        Next::After(self.0.next(&()).time)
    }
}
