//! Applies one object of a Work to the member, keeping the fields that the member sets.

mod removal;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_shared::fencing;
use muster_shared::fleet_id::FleetId;
use muster_shared::names::{CLUSTER_NAMESPACE, annotation, label};
use muster_shared::queue::Queue;
use serde_json::{Value, json};

pub use self::removal::Removal;
use super::dependents;
use super::desired::ObjectKey;
use super::drift::{self, Difference, Drift, with_note};
use super::member::{self, Member};
use super::ownership::{self, Origin};
use super::raw::text;
use super::takeover::{adoption, folded, takeover, without_dropped, without_version};
use crate::fleet_id::{self, Foreign};

/// Attempts when other writers change the object between the read and the write.
const ATTEMPTS: usize = 4;

/// A resourceVersion that no object has, because it is that of an empty store.
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

/// An object after its apply.
#[derive(Debug)]
pub struct Applied {
    /// Change that was made.
    pub change: Change,
    /// The object as it was read or written last.
    pub object: Value,
    /// Words of the member about fields of the Work that it does not know and has left out; `None`
    /// if they were reported before.
    pub left_out: Option<String>,
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
        source: muster_interpreter::Error,
    },
    /// Other writers changed the object faster than it could be applied or removed.
    #[error("{step} {object}: others keep changing it")]
    Contended {
        /// Step that failed.
        step: &'static str,
        /// Object to apply or remove.
        object: String,
    },
    /// Objects of another Work would go with the object.
    #[error(
        "{object} is not deleted in the member, because objects of work {user:?} would go with it"
    )]
    InUse {
        /// Object to remove.
        object: String,
        /// Name of the other Work.
        user: String,
    },
    /// The object is being deleted, and is not gone yet.
    #[error("{object} is being deleted in the member since {since:.0}")]
    Terminating {
        /// Object to apply or remove.
        object: String,
        /// Time of the request to delete it.
        since: Timestamp,
    },
    /// An earlier manifest of the Work is about the same object.
    #[error("manifest {ordinal} of the work names {object}, as manifest {first} does")]
    Twice {
        /// Position of the manifest in the Work.
        ordinal: usize,
        /// Position of the earlier manifest.
        first: usize,
        /// Object that both name.
        object: String,
    },
}

impl Error {
    /// Has a Work applied again when a webhook has answered, if that is what the object waits for.
    /// Returns whether it is; then the apply has not failed.
    pub fn waits(&self, works: &Queue<String>, work: &str) -> bool {
        match self {
            Self::Retain { source, .. } => source.waits(works, || work.to_owned()),
            _ => false,
        }
    }

    /// Returns whether the member did not answer at all.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Member(error) if error.is_silence())
    }

    /// Returns whether objects of another Work would go with the object.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }

    /// Returns since when the object is being deleted, if that is all that is wrong.
    pub fn terminates_since(&self) -> Option<Timestamp> {
        match self {
            Self::Terminating { since, .. } => Some(*since),
            _ => None,
        }
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
        matches!(self, Self::NotMade(_) | Self::Unmanaged { .. }) || self.is_other_fleets()
    }

    /// Returns whether nothing can be known of the object: the agent may not read it, or the member
    /// does not serve its kind.
    pub fn is_hidden(&self) -> bool {
        let is_unserved =
            |error: &member::Error| matches!(error, member::Error::UnknownKind { .. });
        matches!(self, Self::Member(error) if error.is_refused_read() || is_unserved(error))
    }
}

/// Returns the message about an object that stays as it is because of the id of a fleet that it
/// bears.
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

/// Applies and removes single objects of one member.
pub struct Objects {
    /// Name of the Cluster, for messages.
    pub cluster: String,
    /// Client of the member.
    pub member: Member,
    /// Memory that says whether an object has to be applied.
    pub drift: Arc<Drift>,
}

impl Objects {
    /// Creates or updates one object.
    pub async fn ensure_applied(
        &self,
        key: &ObjectKey,
        desired: &Value,
        fleet: &FleetId,
    ) -> Result<Applied, Error> {
        retry_on_conflict("apply", key, || self.attempt_apply(key, desired, fleet)).await
    }

    async fn attempt_apply(
        &self,
        key: &ObjectKey,
        desired: &Value,
        fleet: &FleetId,
    ) -> Result<Applied, Error> {
        let Some(observed) = self.member.get(key).await? else {
            return self.create(key, desired).await;
        };
        refuse_others(key, &observed, fleet)?;
        self.refuse_unmanaged(key, desired, &observed)?;
        refuse_terminating(key, &observed)?;
        // An object that is overwritten keeps nothing that its template does not have.
        let is_overwritten = !ownership::is_managed_for(desired, &observed);
        let adoption = || is_overwritten.then(|| adoption(&observed, None)).flatten();
        let observed = match takeover(&observed).or_else(adoption) {
            Some(takeover) => self.member.patch(key, &takeover).await?,
            None => observed,
        };
        let observed = self.release(key, desired, observed).await?;
        let why = self.drift.needs_apply(key, desired, &observed);
        let why = why.map_err(|source| Error::Retain {
            object: key.to_string(),
            source,
        })?;
        match why {
            Some(why) => self.update(key, observed, why).await,
            None => Ok(Applied {
                change: Change::None,
                object: observed,
                left_out: None,
            }),
        }
    }

    /// Starts an object of a Work again that the agent stopped while its member was cut off, as it
    /// was before, whatever the Work says by now. Data gets the role that its manifest has: another
    /// cluster may have the former one.
    pub async fn restart(
        &self,
        key: &ObjectKey,
        manifest: &Value,
        work: Origin<'_>,
        fleet: &FleetId,
    ) -> Result<(), Error> {
        retry_on_conflict("start", key, async || {
            let observed = self.member.get(key).await?;
            let Some(observed) = observed.filter(|it| ownership::may_remove(it, work)) else {
                return Ok(());
            };
            refuse_others(key, &observed, fleet)?;
            let nothing = json!({});
            let has_role = ownership::has_role(manifest) || ownership::has_role(&observed);
            let desired = if has_role { manifest } else { &nothing };
            self.release(key, desired, observed).await.map(drop)
        })
        .await
    }

    /// Releases an object that the agent stopped while its member was cut off.
    async fn release(
        &self,
        key: &ObjectKey,
        desired: &Value,
        observed: Value,
    ) -> Result<Value, Error> {
        let labels = desired.pointer("/metadata/labels");
        let has_role = ownership::has_role(desired) || ownership::has_role(&observed);
        let retains = |undo: &Value| {
            let is_retained =
                || labels.is_some_and(|labels| labels[label::RETAIN_REPLICAS] == "true");
            !has_role && (is_retained() || drift::was_left(desired, &observed, undo))
        };
        let Some(mut patch) = fencing::release(&observed, desired, retains) else {
            return Ok(observed);
        };
        self.release_dependents(key, &observed).await?;
        patch["metadata"]["resourceVersion"] = json!(text(&observed, "resourceVersion"));
        tracing::info!(object = %key, "released: its cluster is not cut off any more");
        metrics::counter!("muster_fenced_objects_total", "kind" => key.kind.kind.clone(), "result" => "released")
            .increment(1);
        Ok(self.member.patch(key, &patch).await?)
    }

    /// Releases what was stopped with an object, before the object itself: what bears the mark of
    /// being stopped is released again after an interruption.
    async fn release_dependents(&self, key: &ObjectKey, owner: &Value) -> Result<(), Error> {
        let Some(kind) = dependents::of(&key.kind) else {
            return Ok(());
        };
        let is_stopped =
            |object: &Value| dependents::is_of(object, owner) && fencing::stopped(object).is_some();
        for object in self.member.list_beside(&kind, key, is_stopped).await? {
            let Some(patch) = fencing::release(&object, &json!({}), |_| true) else {
                continue;
            };
            let name = text(&object, "name");
            let key = ObjectKey {
                kind: kind.clone(),
                name: name.unwrap_or_default().to_owned(),
                namespace: key.namespace.clone(),
            };
            self.member.patch(&key, &patch).await?;
            tracing::info!(object = %key, "released with its owner");
        }
        Ok(())
    }

    async fn create(&self, key: &ObjectKey, desired: &Value) -> Result<Applied, Error> {
        let desired = &with_note(desired.clone(), desired, &Value::Null);
        let created = create(&self.member, key, desired).await;
        let (object, unknown) = created.map_err(|error| {
            if error.is_conflict() || error.is_silence() || error.is_dismissal() {
                Error::Member(error)
            } else {
                Error::NotMade(error)
            }
        })?;
        let left_out = self.note(key, desired, &object, unknown);
        Ok(Applied {
            change: Change::Created,
            object,
            left_out,
        })
    }

    /// Notes the answer to a write, and the words of the member about fields that it does not know.
    /// Returns the words if they are new.
    fn note(
        &self,
        key: &ObjectKey,
        desired: &Value,
        answer: &Value,
        unknown: Option<String>,
    ) -> Option<String> {
        let Some(words) = unknown else {
            self.drift.applied(key, desired, answer);
            return None;
        };
        let is_update = self.drift.left_out(key, desired, answer, &words);
        is_update.then_some(words)
    }

    async fn update(
        &self,
        key: &ObjectKey,
        observed: Value,
        why: Difference,
    ) -> Result<Applied, Error> {
        let mut applied = match &why.apply {
            Some(apply) => self.write(key, observed, apply).await?,
            None => Applied {
                change: Change::None,
                object: observed,
                left_out: None,
            },
        };
        if let Some(leftovers) = why.leftovers {
            applied.object = self.member.patch(key, &leftovers).await?;
            applied.change = Change::Updated;
        }
        Ok(applied)
    }

    /// Writes the desired fields into an object that has others.
    async fn write(
        &self,
        key: &ObjectKey,
        observed: Value,
        apply: &Value,
    ) -> Result<Applied, Error> {
        let observed = match folded(&observed, apply) {
            Some(record) => self.member.patch(key, &record).await?,
            None => observed,
        };
        let mut versioned = apply.clone();
        // Retained fields, and the permission to update, were read from this version.
        versioned["metadata"]["resourceVersion"] = json!(text(&observed, "resourceVersion"));
        let applied = self.member.apply(key, &versioned, true).await;
        let mend = applied.as_ref().err().and_then(|it| {
            let clashes = it.clashes(apply);
            let adoption = adoption(&observed, Some((apply, clashes.as_slice())));
            adoption.or_else(|| without_version(&observed, it.version_of_record()?))
        });
        let mut unknown = None;
        let object = match (applied, mend) {
            // The refusal names a field that somebody set beside one of the template which it
            // excludes, or a part of an entry that the template drops, or a version in the record
            // of fields that the server cannot read.
            (Err(_), Some(mend)) => {
                let mended = self.member.patch(key, &mend).await?;
                versioned["metadata"]["resourceVersion"] = json!(text(&mended, "resourceVersion"));
                self.member.apply(key, &versioned, true).await?
            }
            // A merge patch, whose lists are whole, is taken where an apply does not fit.
            (Err(error), _) if error.is_misfit() => {
                unknown = error.unknown_fields();
                let is_known = |words: &String| {
                    let drift = &self.drift;
                    drift.is_left_out(key, apply, &observed, words)
                };
                if unknown.as_ref().is_some_and(is_known) {
                    observed.clone()
                } else {
                    let whole = without_dropped(versioned, &observed);
                    let whole = drift::without_reset(whole, &observed);
                    self.member.patch(key, &whole).await?
                }
            }
            (outcome, _) => outcome?,
        };
        // The version stays if nothing was written, or if the write has changed nothing.
        let is_same = text(&object, "resourceVersion") == text(&observed, "resourceVersion");
        let change = if unknown.is_some() && is_same {
            Change::None
        } else {
            Change::Updated
        };
        let left_out = self.note(key, apply, &object, unknown);
        Ok(Applied {
            change,
            object,
            left_out,
        })
    }

    /// Refuses an object that exists and is not managed by the fleet.
    fn refuse_unmanaged(
        &self,
        key: &ObjectKey,
        desired: &Value,
        observed: &Value,
    ) -> Result<(), Error> {
        if ownership::may_update(desired, observed) {
            return Ok(());
        }
        let strategy = ownership::annotation(desired, annotation::CONFLICT_RESOLUTION);
        Err(Error::Unmanaged {
            kind: key.kind.kind.clone(),
            path: key.path(),
            cluster: self.cluster.clone(),
            strategy: strategy.unwrap_or("empty").to_owned(),
        })
    }
}

/// Creates an object that did not exist at the last read. Returns it, and the words of the member
/// about fields that it does not know and has left out.
///
/// An object that appears in this moment may be another fleet's, whose agent has the same field
/// manager. An apply with a version that no object has creates an object and changes none.
async fn create(
    member: &Member,
    key: &ObjectKey,
    desired: &Value,
) -> Result<(Value, Option<String>), member::Error> {
    let mut new = desired.clone();
    new["metadata"]["resourceVersion"] = json!(NO_VERSION);
    let made = match member.apply(key, &new, false).await {
        Err(error) if error.refuses_version_of_new() => member.apply(key, desired, false).await,
        // A server may refuse the version although there is no object.
        Err(error) if error.is_conflict() && member.get(key).await?.is_none() => {
            member.apply(key, desired, false).await
        }
        outcome => outcome,
    };
    match made {
        Err(error) if error.is_misfit() => {
            let created = member.create(key, desired).await?;
            Ok((created, error.unknown_fields()))
        }
        outcome => Ok((outcome?, None)),
    }
}

/// Refuses an object that is being deleted: what is written into it goes with it.
fn refuse_terminating(key: &ObjectKey, object: &Value) -> Result<(), Error> {
    match terminates_since(object) {
        Some(since) => Err(Error::Terminating {
            object: key.to_string(),
            since,
        }),
        None => Ok(()),
    }
}

/// Returns when an object was asked to go. Its own time of deletion is the end of the grace period.
pub fn terminates_since(object: &Value) -> Option<Timestamp> {
    let metadata = object.get("metadata")?;
    let end = metadata.get("deletionTimestamp")?.as_str()?;
    let grace = metadata.get("deletionGracePeriodSeconds");
    let grace = grace.and_then(Value::as_i64).unwrap_or_default();
    let end: Timestamp = end.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    end.checked_sub(SignedDuration::from_secs(grace.max(0)))
        .ok()
        .or(Some(end))
}

#[cfg(test)]
mod tests;
