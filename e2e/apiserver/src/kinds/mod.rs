//! What single kinds do: the table of the built-in ones, and the strategies by which they are
//! created, changed and deleted.

mod certificate_requests;
mod daemon_sets;
pub mod definitions;
mod jobs;
mod namespaces;
mod nodes;
mod pods;
mod roles;
pub mod scale;
mod secrets;
mod services;
mod volumes;

use serde_json::Value;

use crate::context::RequestContext;
use crate::registry::Resource;
use crate::wire::field_error::FieldError;
use crate::wire::status_error::StatusError;

/// How the objects of a kind are created, changed and deleted, where that differs from the plain
/// way. The methods are in the order in which a write meets them.
#[expect(unused_variables, reason = "the plain way does nothing")]
pub trait Strategy: Sync {
    /// Returns whether clients may bring a status along in a new object although a subresource
    /// writes it.
    fn brings_status(&self) -> bool {
        false
    }

    /// Reads a new object as the API's decoder and defaults do beyond the schema. What is set here
    /// counts as set by the client.
    fn prepare_for_create(&self, object: &mut Value) {}

    /// Reads a changed object in the same way; not for subresources.
    fn prepare_for_update(&self, old: &Value, new: &mut Value) {}

    /// Completes a status that its subresource writes.
    fn prepare_status(&self, new: &mut Value) {}

    /// Puts back what a change through this path may not touch.
    fn keep(&self, context: &RequestContext<'_>, old: &Value, new: &mut Value) {}

    /// Fills in what a changed object leaves open, after the defaults of the schema.
    fn complete_update(&self, old: &Value, new: &mut Value) {}

    /// Changes a new object as the server's own admission plugins do, before any webhook is asked.
    fn admit(&self, object: &mut Value) {}

    /// Fills in what is the server's to say about a new object.
    fn complete(&self, context: &RequestContext<'_>, object: &mut Value) {}

    /// Refuses rights that the user does not have. Before validation.
    fn may_grant(
        &self,
        context: &RequestContext<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), StatusError> {
        Ok(())
    }

    /// Finds what is wrong with a change beyond what the schema knows.
    fn validate_update(
        &self,
        context: &RequestContext<'_>,
        old: &Value,
        new: &Value,
    ) -> Vec<FieldError> {
        Vec::new()
    }

    /// Refuses what a plugin of the server's own refuses. After validation.
    fn may_write(
        &self,
        context: &RequestContext<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), StatusError> {
        Ok(())
    }

    /// Refuses deletions that are never allowed.
    fn may_delete(&self, name: &str) -> Result<(), StatusError> {
        Ok(())
    }

    /// Seconds that a deletion leaves the object; `None` for kinds that go at once.
    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Returns the finalizer that an object gets when its deletion begins.
    fn deletion_finalizer(&self) -> Option<&'static str> {
        None
    }

    /// Changes an object besides its metadata when its deletion begins.
    fn begin_deletion(&self, context: &RequestContext<'_>, object: &mut Value) {}

    /// Returns whether an object's deletion begins without grace and without counting as a change
    /// of what is wanted: the registries of namespaces and CRDs mark them by themselves.
    fn marks_deletion(&self, object: &Value) -> bool {
        false
    }

    /// Returns whether something besides finalizers in the metadata holds the object.
    fn holds(&self, object: &Value) -> bool {
        false
    }
}

/// The plain way.
struct Plain;

impl Strategy for Plain {}

/// Returns the strategy of a resource.
pub fn strategy(resource: &Resource) -> &'static dyn Strategy {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => &namespaces::Namespaces,
        ("", "nodes") => &nodes::Nodes,
        ("", "pods") => &pods::Pods,
        ("", "secrets") => &secrets::Secrets,
        ("", "services") => &services::Services,
        ("", "persistentvolumes" | "persistentvolumeclaims") => &volumes::Volumes,
        ("apps", "daemonsets") => &daemon_sets::DaemonSets,
        ("batch", "jobs") => &jobs::Jobs,
        ("apiextensions.k8s.io", _) => &definitions::Definitions,
        ("certificates.k8s.io", "certificatesigningrequests") => {
            &certificate_requests::CertificateRequests
        }
        ("rbac.authorization.k8s.io", _) => &roles::Roles,
        _ => &Plain,
    }
}

/// Sets a member of an object, or takes it away.
fn put(object: &mut Value, member: &str, value: Option<Value>) {
    match value {
        Some(value) => object[member] = value,
        None => {
            if let Some(members) = object.as_object_mut() {
                members.remove(member);
            }
        }
    }
}
