//! Bringing one object of a Work into the member, keeping what belongs to the member.

use muster_shared::interpreter;
use muster_shared::names::annotation;
use serde_json::Value;

use super::desired::ObjectKey;
use super::marks;
use super::member::{self, FIELD_MANAGER, Member};
use super::settled::settled;
use super::takeover::takeover;

/// Attempts when others change the object between our read and our write.
const ATTEMPTS: usize = 4;

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It was not as desired.
    Updated,
    /// It was as desired.
    None,
}

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest is not an object that could be applied.
    #[error(transparent)]
    Manifest(#[from] super::desired::Error),
    /// The member refused or did not answer.
    #[error(transparent)]
    Member(#[from] member::Error),
    /// The object exists and is not managed. Karmada's words.
    #[error(
        "resource(kind={kind}, {path}) already exists in the cluster {cluster} and the {} strategy value is {strategy}, Karmada will not manage this resource",
        annotation::CONFLICT_RESOLUTION
    )]
    Unmanaged {
        /// Kind of the object.
        kind: String,
        /// Namespace and name of the object.
        path: String,
        /// Name of the cluster.
        cluster: String,
        /// What the manifest says about conflicts; `empty` when nothing.
        strategy: String,
    },
    /// What belongs to the member could not be told from what is ours.
    #[error("retain the member's fields of {object}: {source}")]
    Retain {
        /// The object.
        object: String,
        /// Why.
        #[source]
        source: interpreter::Error,
    },
    /// Others changed the object faster than we could.
    #[error("apply {object}: others keep changing it")]
    Contended {
        /// The object.
        object: String,
    },
}

/// What has to be sent for an object that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// To be applied; `None` when our fields are as desired.
    pub apply: Option<Value>,
    /// Merge patch for leftovers of Karmada's agent.
    pub leftovers: Option<Value>,
}

impl Plan {
    /// Whether the object is as desired.
    pub fn is_empty(&self) -> bool {
        self.apply.is_none() && self.leftovers.is_none()
    }
}

/// Compares an object in the member with what is desired (see [`super::desired::desired`]).
pub fn plan(desired: &Value, observed: &Value) -> Result<Plan, interpreter::Error> {
    let retained = interpreter::retain(desired.clone(), observed)?;
    let apply = (!settled(&retained, observed, FIELD_MANAGER)).then_some(retained);
    Ok(Plan {
        apply,
        leftovers: marks::leftovers(desired, observed),
    })
}

/// Creates or updates one object, and gives it as it was read last.
pub async fn bring(
    member: &Member,
    cluster: &str,
    key: &ObjectKey,
    desired: &Value,
) -> Result<(Change, Value), Error> {
    for _ in 0..ATTEMPTS {
        match attempt(member, cluster, key, desired).await {
            Err(Error::Member(error)) if error.is_conflict() => {}
            outcome => return outcome,
        }
    }
    Err(Error::Contended {
        object: key.to_string(),
    })
}

async fn attempt(
    member: &Member,
    cluster: &str,
    key: &ObjectKey,
    desired: &Value,
) -> Result<(Change, Value), Error> {
    let Some(mut observed) = member.get(key).await? else {
        // Without force: should an object appear in this moment, it is not ours to take.
        return Ok((Change::Created, member.apply(key, desired, false).await?));
    };
    if !marks::may_update(desired, &observed) {
        return Err(Error::Unmanaged {
            kind: key.kind.kind.clone(),
            path: key.path(),
            cluster: cluster.to_owned(),
            strategy: marks::annotation(desired, annotation::CONFLICT_RESOLUTION)
                .unwrap_or("empty")
                .to_owned(),
        });
    }
    if let Some(takeover) = takeover(&observed) {
        observed = member.patch(key, &takeover).await?;
    }
    let plan = plan(desired, &observed).map_err(|source| Error::Retain {
        object: key.to_string(),
        source,
    })?;
    if plan.is_empty() {
        return Ok((Change::None, observed));
    }
    let mut after = observed;
    if let Some(mut apply) = plan.apply {
        // What was retained was read from this version, and so was the permission.
        let version = after.pointer("/metadata/resourceVersion").cloned();
        apply["metadata"]["resourceVersion"] = version.unwrap_or(Value::Null);
        after = member.apply(key, &apply, true).await?;
    }
    if let Some(leftovers) = plan.leftovers {
        after = member.patch(key, &leftovers).await?;
    }
    Ok((Change::Updated, after))
}

/// Removes one object on behalf of a Work, or leaves it to the member with our marks taken off. An object that is gone, was never
/// ours, or belongs to another Work by now is none of our business.
pub async fn remove(
    member: &Member,
    key: &ObjectKey,
    work: (&str, &str),
    preserve: bool,
) -> Result<(), member::Error> {
    let Some(observed) = member.get(key).await? else {
        return Ok(());
    };
    if !marks::may_remove(&observed, work.0, work.1) {
        tracing::info!(object = %key, work = work.1, "left alone: it is not this work's object");
        return Ok(());
    }
    if preserve {
        return match marks::release(&observed) {
            Some(patch) => member.patch(key, &patch).await.map(|_| ()),
            None => Ok(()),
        };
    }
    let uid = observed.pointer("/metadata/uid").and_then(Value::as_str);
    member.delete(key, uid).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_is_as_desired_needs_nothing() {
        let desired = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let mut observed = desired.clone();
        observed["metadata"]["managedFields"] = json!([
            {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {"f:k": {}}}}]);
        assert!(plan(&desired, &observed).unwrap().is_empty());
        observed["data"]["k"] = json!("other");
        assert_eq!(plan(&desired, &observed).unwrap().apply, Some(desired));
    }

    #[test]
    fn what_the_member_decides_is_part_of_what_we_want() {
        let desired = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": []}});
        let observed = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"clusterIP": "10.0.0.1", "ports": []}});
        let apply = plan(&desired, &observed).unwrap().apply.unwrap();
        assert_eq!(apply["spec"]["clusterIP"], "10.0.0.1");
    }
}
