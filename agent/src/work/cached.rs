//! Cached Works: text, plus the fields that are read too often to parse the text for them.
//!
//! A manifest as a tree of values takes about six times the memory of its text. An agent caches
//! every Work of its member, and reads one only when it or its objects change.

mod reading;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use muster_shared::api::work::{ManifestStatus, Work, WorkSpec};
use muster_shared::interner::Interner;
use muster_shared::k8s::{Condition, GroupVersionKind, ObjectMeta, Resource};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use super::desired::ObjectKey;
use crate::digest::digest;

/// A Work in the cache.
#[derive(Clone, Debug)]
pub struct CachedWork {
    /// Namespace, name, uid, version and time of deletion. All of it is in the text.
    pub metadata: ObjectMeta,
    content: Content,
    /// The fingerprint of what asks for work here, apart from the metadata above.
    wish: u64,
    /// The fingerprint of what its status says of its objects; `None` where the text does not have
    /// all of that.
    reported: Option<u64>,
    /// The kinds of its objects, each once.
    kinds: Box<[Arc<GroupVersionKind>]>,
    /// Whether nothing is created or updated for now.
    pub suspended: bool,
    /// Whether its status says that everything was applied.
    applied: bool,
    /// Whether its status says that something could not be applied.
    failed: bool,
}

#[derive(Clone, Debug)]
enum Content {
    /// The whole Work as JSON, without `managedFields`.
    Text(Box<str>),
    /// What it wants cannot be told.
    Unreadable(Box<Unreadable>),
}

/// Why a Work cannot be applied at all: a part of it is no Work's, or is nested deeper than can be
/// read.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the Work cannot be read, so nothing of it is applied and its objects stay as they are: {reason}"
)]
pub struct Unreadable {
    reason: String,
    conditions: Vec<Condition>,
}

impl Unreadable {
    /// The conditions that the Work has, by which it is told what is wrong.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

impl CachedWork {
    /// The Work itself; read from the text at each call.
    ///
    /// # Errors
    /// When it could not be read as it came.
    pub fn open(&self) -> Result<Work, Unreadable> {
        match &self.content {
            Content::Text(text) => {
                serde_json::from_str(text).map_err(|error| reading::unreadable(&error, Vec::new()))
            }
            Content::Unreadable(unreadable) => Err((**unreadable).clone()),
        }
    }

    /// The kinds of its objects, each once. Manifests that cannot be read have none.
    pub fn kinds(&self) -> impl Iterator<Item = &GroupVersionKind> {
        self.kinds.iter().map(AsRef::as_ref)
    }

    /// Keeps kinds that others have, too, once for all.
    pub fn share(&mut self, kinds: &Interner<GroupVersionKind>) {
        self.kinds.iter_mut().for_each(|kind| kinds.share(kind));
    }

    /// Whether a change of a Work asks for work here: status is ours and Karmada's to write, and
    /// says nothing new.
    pub fn concerns_us(old: Option<&Self>, new: &Self) -> bool {
        old.is_none_or(|old| {
            old.metadata.uid != new.metadata.uid
                || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
                || old.wish != new.wish
        })
    }

    /// Whether its status says otherwise than before whether it was applied. If we did not write
    /// that, it was lost or put back.
    pub fn tells_otherwise(old: Option<&Self>, new: &Self) -> bool {
        old.is_some_and(|old| (old.applied, old.failed) != (new.applied, new.failed))
    }

    /// Whether its status says otherwise than before what became of its objects.
    pub fn reports_otherwise(old: Option<&Self>, new: &Self) -> bool {
        old.is_some_and(|old| old.reported != new.reported)
    }

    /// Whether its status says this of its objects, by its [`fingerprint`](Self::fingerprint).
    pub fn reports(&self, fingerprint: u64) -> bool {
        self.reported == Some(fingerprint)
    }

    /// A number that differs when what is said of objects does.
    pub fn fingerprint(statuses: &[ManifestStatus]) -> u64 {
        if statuses.is_empty() {
            return 0;
        }
        digest(&serde_json::to_value(statuses).unwrap_or_default())
    }

    /// Whether something is left to do for the Work: it goes, or was not applied.
    pub fn is_pending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || !self.applied
    }

    /// Whether the objects of the Work shall be as it says. While it cannot be applied, its queue
    /// keeps the time of the next attempt.
    pub fn is_to_be_kept(&self) -> bool {
        !self.failed
            && self.metadata.deletion_timestamp.is_none()
            && !self.suspended
            && matches!(self.content, Content::Text(_))
    }
}

/// A number that differs when what is asked of us does. The names say all fields, so that a further
/// one is not forgotten.
fn wish(metadata: &ObjectMeta, spec: &WorkSpec) -> u64 {
    let WorkSpec {
        workload,
        suspend_dispatching,
        preserve_resources_on_deletion,
    } = spec;
    let manifests: Vec<_> = workload
        .manifests
        .iter()
        .map(|manifest| &manifest.0)
        .collect();
    digest(&(
        (&metadata.finalizers, &metadata.annotations),
        (suspend_dispatching, preserve_resources_on_deletion),
        manifests,
    ))
}

fn kinds(spec: &WorkSpec) -> Box<[Arc<GroupVersionKind>]> {
    let mut known = HashSet::new();
    let manifests = spec.workload.manifests.iter().enumerate();
    manifests
        .filter_map(|(ordinal, manifest)| Some(ObjectKey::of(&manifest.0, ordinal).ok()?.kind))
        .filter(|kind| known.insert(kind.clone()))
        .map(Arc::new)
        .collect()
}

impl<'de> Deserialize<'de> for CachedWork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        reading::read(&raw).map_err(D::Error::custom)
    }
}

impl Resource for CachedWork {
    type DynamicType = ();
    type Scope = <Work as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Work::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        Work::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        Work::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        Work::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;
