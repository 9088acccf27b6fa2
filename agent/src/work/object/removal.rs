//! Removes one object of a Work from the member, or releases it.

use muster_shared::fencing::{self, Orders};
use muster_shared::fleet_id::FleetId;
use muster_shared::k8s::PropagationPolicy;
use serde_json::{Value, json};

use super::{
    Error, Objects, refuse_others, refuse_terminating, retry_on_conflict, terminates_since, text,
};
use crate::work::desired::{Container, ObjectKey};
use crate::work::ownership::{self, Origin};

/// Parameters of the removal of one object.
pub struct Removal<'a> {
    /// The Work on behalf of which the object is removed.
    pub work: Origin<'a>,
    /// Objects that the Work wants and that may be the same object in another API group.
    pub wanted: &'a [ObjectKey],
    /// Whether the object is released to the member instead of deleted.
    pub preserve: bool,
    /// Returns the name of another Work whose objects would go with a container.
    pub user: &'a (dyn Fn(&Container<'_>) -> Option<String> + Sync),
    /// Whether an object that is being deleted counts as one that is there. A fenced one always
    /// does.
    pub waits: bool,
    /// The id of the fleet.
    pub fleet: &'a FleetId,
}

impl Objects {
    /// Removes one object on behalf of a Work, or releases it to the member. Leaves an object alone
    /// that is gone, was never managed, or belongs to another Work by now, whose kind the member
    /// serves in no version, or that is still wanted in another API group. Returns whether anything
    /// was done.
    ///
    /// # Errors
    /// [`Error::Foreign`] when the object is another fleet's by now, and stays.
    /// [`Error::Terminating`] while the object is being deleted, and is not gone.
    pub async fn remove(&self, key: &ObjectKey, removal: &Removal<'_>) -> Result<bool, Error> {
        self.drift.gone(key);
        let Some(key) = &self.member.served(key).await? else {
            return Ok(false);
        };
        retry_on_conflict("remove", key, || self.attempt_removal(key, removal)).await
    }

    /// Returns how the dependents of an object are deleted with it. An object that owns pods goes
    /// after them, so that none of them runs when it is gone. The pods of kinds without a rule for
    /// replicas are not known.
    fn dependents(&self, observed: &Value) -> PropagationPolicy {
        let api_version = observed["apiVersion"].as_str().unwrap_or_default();
        let kind = observed["kind"].as_str().unwrap_or_default();
        let is_workload = match api_version.split_once('/') {
            Some(("apps" | "batch", _)) => true,
            Some(_) => false,
            None => kind == "ReplicationController",
        };
        if is_workload || Orders::of(observed).is_some() || self.drift.has_replicas(observed) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        }
    }

    async fn attempt_removal(&self, key: &ObjectKey, removal: &Removal<'_>) -> Result<bool, Error> {
        let Some(observed) = self.member.get(key).await? else {
            return Ok(false);
        };
        let work = removal.work.name;
        if !ownership::may_remove(&observed, removal.work) {
            tracing::info!(object = %key, work, "left alone: it is not this work's object");
            return Ok(false);
        }
        refuse_others(key, &observed, removal.fleet)?;
        let uid = text(&observed, "uid");
        for wanted in removal.wanted {
            let found = self.member.get(wanted).await?;
            if uid.is_some() && found.as_ref().and_then(|it| text(it, "uid")) == uid {
                tracing::info!(object = %key, group = wanted.kind.group, "left alone: it is wanted in another API group");
                return Ok(false);
            }
        }
        // Another Work may take the object over in this moment. The permission is that of the
        // version that was read.
        let version = text(&observed, "resourceVersion");
        if !removal.preserve
            && let Some(user) = Container::of(&observed).and_then(|it| (removal.user)(&it))
        {
            let object = key.to_string();
            return Err(Error::InUse { object, user });
        }
        if !removal.preserve {
            let left = if terminates_since(&observed).is_some() {
                Some(observed.clone())
            } else {
                let policy = self.dependents(&observed);
                if self.member.delete(key, uid, version, policy).await? {
                    self.member.get(key).await?
                } else {
                    None
                }
            };
            // An accepted deletion is no absence: finalizers and pods may take their time.
            let left = left.filter(|left| text(left, "uid") == uid);
            return match left {
                Some(left) if removal.waits || Orders::of(&left).is_some() => {
                    refuse_terminating(key, &left).map(|()| true)
                }
                _ => Ok(true),
            };
        }
        if let Some(mut patch) = ownership::released(&observed) {
            if fencing::stopped(&observed).is_some() {
                self.release_dependents(key, &observed).await?;
            }
            patch["metadata"]["resourceVersion"] = json!(version);
            patch["metadata"]["uid"] = json!(uid);
            self.member.patch(key, &patch).await?;
        }
        Ok(true)
    }
}
