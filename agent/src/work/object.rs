//! Applies one object of a Work to the member, keeping the fields that the member sets.

use muster_shared::fleet_id::FleetId;
use muster_shared::interpreter::{self, Operation, hook_enabled};
use muster_shared::names::{CLUSTER_NAMESPACE, annotation};
use serde_json::{Value, json};

use super::desired::ObjectKey;
use super::member::{self, Member};
use super::normalized::ServerNormalization;
use super::ownership;
use super::pods::with_admitted;
use super::takeover::takeover;
use crate::fleet_id::{self, Foreign};

/// Attempts when others change the object between our read and our write.
const ATTEMPTS: usize = 4;

/// A resourceVersion that no object has: it is that of an empty store.
const NO_VERSION: &str = "1";

/// Result of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was created.
    Created,
    /// The object was updated.
    Updated,
    /// The object was as desired.
    None,
}

/// Reason why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest cannot be applied.
    #[error(transparent)]
    Manifest(#[from] super::desired::Error),
    /// The member rejected a request or did not answer.
    #[error(transparent)]
    Member(#[from] member::Error),
    /// The object does not exist, and could not be created.
    #[error("{0}")]
    NotMade(#[source] member::Error),
    /// The object exists and is not managed by the fleet. The message is Karmada's.
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
        /// Conflict resolution of the manifest; `empty` if it has none.
        strategy: String,
    },
    /// The object is another fleet's, or may be.
    #[error("{}", left_alone(object, foreign))]
    Foreign {
        /// The object.
        object: String,
        /// The ids, and whether the object is certainly another fleet's.
        foreign: Foreign,
    },
    /// The fields that the member sets could not be determined.
    #[error("retain the member's fields of {object}: {source}")]
    Retain {
        /// Object to apply.
        object: String,
        /// Error of the interpreter.
        #[source]
        source: interpreter::Error,
    },
    /// Other writers changed the object faster than it could be applied or removed.
    #[error("{step} {object}: others keep changing it")]
    Contended {
        /// Step that failed.
        step: &'static str,
        /// Object to apply or remove.
        object: String,
    },
    /// An earlier manifest of the Work is about the same object.
    #[error("manifest {ordinal} of the work names {object}, as manifest {first} does")]
    Twice {
        /// Position of the manifest in the Work.
        ordinal: usize,
        /// Position of the earlier manifest.
        first: usize,
        /// Object that both are about.
        object: String,
    },
}

impl Error {
    /// Returns whether the member did not answer at all.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Member(error) if error.is_silence())
    }

    /// Returns whether nothing was sent, because the agent may not act for the member.
    pub fn is_dismissal(&self) -> bool {
        matches!(self, Self::Member(error) if error.is_dismissal())
    }

    /// Returns whether the object is certainly another fleet's.
    pub fn is_other_fleets(&self) -> bool {
        matches!(
            self,
            Self::Foreign {
                foreign: Foreign::OtherFleet { .. },
                ..
            }
        )
    }

    /// Returns whether the member has no object of this fleet, although the Work wants one.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NotMade(_)) || self.is_other_fleets()
    }
}

/// Message about an object that stays as it is because of the id of a fleet that it bears.
fn left_alone(object: &str, foreign: &Foreign) -> String {
    match foreign {
        Foreign::OtherFleet { theirs, ours } => format!(
            "{object} is another fleet's (its annotation {} is {theirs:?}, the id of this fleet {ours}), and stays as it is: take the \
             resource out of one of the two fleets. If that fleet has become this one, add its id to the annotation {} of namespace \
             {CLUSTER_NAMESPACE} at the fleet API; if it is no more, take the annotation off the object",
            annotation::FLEET,
            annotation::FORMER_FLEET_IDS
        ),
        Foreign::Unclear { theirs, ours } => format!(
            "{object} bears the id of a fleet ({theirs:?}) and stays as it is, because the id of this fleet is {ours}"
        ),
    }
}

/// Refuses an object that is another fleet's, or may be.
fn refuse_others(key: &ObjectKey, observed: &Value, fleet: &FleetId) -> Result<(), Error> {
    fleet_id::check(ownership::fleet(observed), fleet).map_err(|foreign| Error::Foreign {
        object: key.to_string(),
        foreign,
    })
}

/// Makes attempts at an object until one meets no conflict with another writer.
///
/// # Errors
/// Error of the attempt; [`Error::Contended`] when all of them met a conflict.
async fn retry_on_conflict<T, A>(
    step: &'static str,
    key: &ObjectKey,
    attempt: impl Fn() -> A,
) -> Result<T, Error>
where
    A: Future<Output = Result<T, Error>>,
{
    for _ in 0..ATTEMPTS {
        match attempt().await {
            Err(Error::Member(error)) if error.is_conflict() => {}
            outcome => return outcome,
        }
    }
    Err(Error::Contended {
        step,
        object: key.to_string(),
    })
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
    /// Returns whether the object is as desired.
    pub fn is_empty(&self) -> bool {
        self.apply.is_none() && self.leftovers.is_none()
    }
}

/// Compares an object in the member with what is desired (see [`super::desired::desired`]).
///
/// What the member decides (a cluster IP, the replicas under an autoscaler) is taken over only when
/// something has to be sent: fields that an apply does not mention and that were never ours stay as
/// they are.
pub fn plan(
    echoes: &ServerNormalization,
    key: &ObjectKey,
    desired: &Value,
    observed: &Value,
) -> Result<Plan, interpreter::Error> {
    let leftovers = ownership::leftovers(desired, observed);
    let desired = &*with_admitted(desired, observed);
    if echoes.settled(key, desired, observed) {
        return Ok(Plan {
            apply: None,
            leftovers,
        });
    }
    let text = |key: &str| desired[key].as_str().unwrap_or_default();
    let keeps = hook_enabled(text("apiVersion"), text("kind"), Operation::Retain);
    let retained = if keeps {
        interpreter::retain(desired.clone(), observed)?
    } else {
        desired.clone()
    };
    let apply = (!echoes.settled(key, &retained, observed)).then_some(retained);
    Ok(Plan { apply, leftovers })
}

/// Creates or updates one object, and gives it as it was read last.
pub async fn ensure_applied(
    member: &Member,
    cluster: &str,
    key: &ObjectKey,
    desired: &Value,
    fleet: &FleetId,
) -> Result<(Change, Value), Error> {
    let apply = || attempt(member, cluster, key, desired, fleet);
    retry_on_conflict("apply", key, apply).await
}

async fn attempt(
    member: &Member,
    cluster: &str,
    key: &ObjectKey,
    desired: &Value,
    fleet: &FleetId,
) -> Result<(Change, Value), Error> {
    let Some(mut observed) = member.get(key).await? else {
        let created = create(member, key, desired).await;
        let created = created.map_err(|error| {
            if error.is_conflict() || error.is_silence() || error.is_dismissal() {
                Error::Member(error)
            } else {
                Error::NotMade(error)
            }
        })?;
        member.echoes().applied(key, desired, &created);
        return Ok((Change::Created, created));
    };
    refuse_others(key, &observed, fleet)?;
    if !ownership::may_update(desired, &observed) {
        return Err(Error::Unmanaged {
            kind: key.kind.kind.clone(),
            path: key.path(),
            cluster: cluster.to_owned(),
            strategy: ownership::annotation(desired, annotation::CONFLICT_RESOLUTION)
                .unwrap_or("empty")
                .to_owned(),
        });
    }
    if let Some(takeover) = takeover(&observed) {
        observed = member.patch(key, &takeover).await?;
    }
    let plan = plan(member.echoes(), key, desired, &observed).map_err(|source| Error::Retain {
        object: key.to_string(),
        source,
    })?;
    if plan.is_empty() {
        return Ok((Change::None, observed));
    }
    let mut after = observed;
    if let Some(apply) = plan.apply {
        let mut versioned = apply.clone();
        // What was retained was read from this version, and so was the permission.
        versioned["metadata"]["resourceVersion"] = json!(version_of(&after));
        after = member.apply(key, &versioned, true).await?;
        member.echoes().applied(key, &apply, &after);
    }
    if let Some(leftovers) = plan.leftovers {
        after = member.patch(key, &leftovers).await?;
    }
    Ok((Change::Updated, after))
}

/// Makes an object that was not there a moment ago.
///
/// One that appears in this moment may be another fleet's, whose agent has the same field manager.
/// With a version that no object has, an apply makes an object and changes none.
async fn create(member: &Member, key: &ObjectKey, desired: &Value) -> Result<Value, member::Error> {
    let mut new = desired.clone();
    new["metadata"]["resourceVersion"] = json!(NO_VERSION);
    match member.apply(key, &new, false).await {
        Err(error) if error.refuses_version_of_new() => member.apply(key, desired, false).await,
        // A server that refuses the version although there is no object must not keep it from ever
        // being made.
        Err(error) if error.is_conflict() && member.get(key).await?.is_none() => {
            member.apply(key, desired, false).await
        }
        outcome => outcome,
    }
}

/// Removes one object on behalf of a Work, or leaves it to the member with our marks taken off. An
/// object that is gone, was never ours, or belongs to another Work by now is none of our business;
/// nor is one of a kind that the member serves in no version, or one that is still `wanted` in
/// another API group.
///
/// # Errors
/// [`Error::Foreign`] when the object is another fleet's by now, and stays.
pub async fn remove(
    member: &Member,
    key: &ObjectKey,
    wanted: &[ObjectKey],
    work: (&str, &str),
    preserve: bool,
    fleet: &FleetId,
) -> Result<(), Error> {
    member.echoes().forget(key);
    let Some(key) = &member.served(key).await? else {
        return Ok(());
    };
    let remove = || attempt_removal(member, key, wanted, work, preserve, fleet);
    retry_on_conflict("remove", key, remove).await
}

async fn attempt_removal(
    member: &Member,
    key: &ObjectKey,
    wanted: &[ObjectKey],
    work: (&str, &str),
    preserve: bool,
    fleet: &FleetId,
) -> Result<(), Error> {
    let Some(observed) = member.get(key).await? else {
        return Ok(());
    };
    if !ownership::may_remove(&observed, work.0, work.1) {
        tracing::info!(object = %key, work = work.1, "left alone: it is not this work's object");
        return Ok(());
    }
    refuse_others(key, &observed, fleet)?;
    let uid = uid_of(&observed);
    for wanted in wanted {
        let found = member.get(wanted).await?;
        if uid.is_some() && found.as_ref().and_then(uid_of) == uid {
            tracing::info!(object = %key, group = wanted.kind.group, "left alone: it is wanted in another API group");
            return Ok(());
        }
    }
    // Another Work may take the object over in this moment. The permission is that of the version
    // that was read.
    if preserve {
        if let Some(mut patch) = ownership::without_our_marks(&observed) {
            patch["metadata"]["resourceVersion"] = json!(version_of(&observed));
            patch["metadata"]["uid"] = json!(uid);
            member.patch(key, &patch).await?;
        }
        return Ok(());
    }
    Ok(member.delete(key, uid, version_of(&observed)).await?)
}

fn uid_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid")?.as_str()
}

fn version_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}

#[cfg(test)]
mod tests;
