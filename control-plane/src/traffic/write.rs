//! Writes DNSEndpoints, and what became of a host name into the binding of its template.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ObjectReference;
use muster_shared::conditions::{self, TRUE};
use muster_shared::events::EventType;
use muster_shared::k8s::{Api, Client, DynamicObject};
use muster_shared::names::condition::HOSTNAME_PUBLISHED;
use muster_shared::queue::Next;
use muster_shared::write::{delete_params, post_params};

use super::decide::Targets;
use super::endpoint;
use super::explain::{self, Outcome};
use super::request::Request;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::last_patches::LastPatches;
use crate::fleet::write::{self, Written};
use crate::settings::COMPONENT;

/// The template that is worked on, and the way to the API.
pub struct Writing<'a> {
    /// The fleet.
    pub fleet: &'a Fleet,
    /// Client for the writes.
    pub client: &'a Client,
    /// Key of the binding, whose name the DNSEndpoint has.
    pub key: &'a BindingKey,
    /// Binding of the template.
    pub binding: &'a AnyBinding,
}

impl Writing<'_> {
    /// Creates or changes the DNSEndpoint of the template `owner`; `None` where it is as it is
    /// wanted. A patch that had no effect is not written again. Another process that leads now
    /// counts as one that was faster.
    pub async fn endpoint(
        &self,
        held: Option<&DynamicObject>,
        owner: &ObjectReference,
        request: &Request,
        targets: &Targets,
        patches: &LastPatches<BindingKey>,
    ) -> Result<Option<Written<()>>, ApiError> {
        let (key, api) = (self.key, endpoints(self.client, self.key));
        let is_leader = || self.fleet.leadership.is_current();
        let Some(held) = held else {
            let object = endpoint::new(&key.name, owner, request, targets);
            let created = match serde_json::from_value(object) {
                Ok(_) if !is_leader() => return Ok(Some(Written::Overtaken)),
                Ok(object) => api.create(&post_params(COMPONENT), &object).await,
                Err(error) => Err(kube::Error::SerdeError(error)),
            };
            return written(created.map(drop), "create", key).map(Some);
        };
        let version = held.metadata.resource_version.as_deref();
        let Some(patch) = endpoint::patch(held, owner, request, targets) else {
            patches.forget(key);
            return Ok(None);
        };
        if patches.is_repeated(key, version, &patch) {
            return Ok(None);
        }
        if !is_leader() {
            return Ok(Some(Written::Overtaken));
        }
        let answer = write::merge(&api, &key.name, &patch).await;
        if answer.is_ok() {
            patches.record(key.clone(), version, &patch);
        }
        written(answer.map(drop), "change", key).map(Some)
    }

    /// Publishes an event about the binding and about its template.
    pub fn publish(&self, kind: EventType, reason: &str, note: String) {
        self.fleet.publish(self.binding, kind, reason, note);
    }

    /// Writes what became of the host name into the condition of the binding, and an event where
    /// that has changed; `None` removes the condition.
    pub async fn report(&self, outcome: Option<Outcome>) -> Result<Next, ApiError> {
        let status = self.binding.status();
        let mut list = status.conditions.clone();
        let condition = outcome.map(|it| explain::condition(it, self.fleet.clock.now()));
        let is_update = match condition.clone() {
            Some(condition) => conditions::set(&mut list, condition),
            None => conditions::remove(&mut list, HOSTNAME_PUBLISHED),
        };
        if !is_update || !self.fleet.leadership.is_current() {
            return Ok(Next::Done);
        }
        let patch = conditions::patch(&self.binding.metadata, &list);
        let step = "write the status of";
        match self.key.merge_status(self.client, step, &patch).await? {
            Written::Done(_) => {}
            late => return Ok(late.next()),
        }
        let reported = conditions::get(&status.conditions, HOSTNAME_PUBLISHED);
        if let Some(condition) = condition.filter(|it| it.status != TRUE)
            && reported.is_none_or(|reported| reported.reason != condition.reason)
        {
            self.publish(EventType::Warning, "HostnameNotFollowed", condition.message);
        }
        Ok(Next::Done)
    }
}

fn endpoints(client: &Client, key: &BindingKey) -> Api<DynamicObject> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    Api::namespaced_with(client.clone(), namespace, &endpoint::resource())
}

/// Deletes the DNSEndpoint of a binding, if it is as it was read.
pub async fn delete(
    fleet: &Fleet,
    client: &Client,
    key: &BindingKey,
    held: &DynamicObject,
) -> Result<Written<()>, ApiError> {
    if !fleet.leadership.is_current() {
        return Ok(Written::Overtaken);
    }
    let (uid, version) = (&held.metadata.uid, &held.metadata.resource_version);
    let this_one = delete_params(uid.clone(), version.clone());
    let answer = endpoints(client, key).delete(&key.name, &this_one).await;
    written(answer.map(drop), "delete", key)
}

fn written(
    answer: Result<(), kube::Error>,
    step: &'static str,
    key: &BindingKey,
) -> Result<Written<()>, ApiError> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let name = format!("DNSEndpoint {namespace}/{}", key.name);
    Written::of(answer).map_err(ApiError::of(step, &name))
}
