//! Cached Works: text, plus the fields that are read too often to parse the text for them.
//!
//! A manifest as a tree of values takes about six times the memory of its text. An agent caches
//! every Work of its member, and reads one only when it or its objects change. A text that finds no
//! room (see [`texts`]) is read from the fleet API then.

mod reading;

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use muster_shared::api::work::{ManifestStatus, Work, WorkSpec};
use muster_shared::interner::Interner;
use muster_shared::k8s::{Condition, GroupVersionKind, ObjectMeta};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use super::desired::{Container, ObjectKey};
use super::texts::{self, Text, Texts};
use crate::digest::digest;

/// Reason of the condition `Applied` while nothing is wrong but that objects are not gone yet.
pub const TERMINATING: &str = "Terminating";

/// A Work in the cache.
#[derive(Clone, Debug)]
pub struct CachedWork {
    /// Namespace, name, uid, version and time of deletion. All of it is in the text.
    pub metadata: ObjectMeta,
    content: Content,
    /// Fingerprint of the uid and of everything that is applied, apart from the metadata above.
    wish: u64,
    /// Fingerprint of the reported statuses of its objects; `None` if the text does not have all of
    /// them.
    reported: Option<u64>,
    /// The kinds of its objects, each once.
    kinds: Box<[Arc<GroupVersionKind>]>,
    /// The namespaces of its objects, each once.
    namespaces: Box<[Arc<String>]>,
    /// Whether dispatching is suspended.
    pub suspended: bool,
    /// Whether the condition `Applied` is true or false; `None` if it is neither.
    applied: Option<bool>,
    /// Whether it has the agent's finalizer.
    pub has_finalizer: bool,
}

#[derive(Clone, Debug)]
enum Content {
    /// The whole Work as JSON, without `managedFields`.
    Text(Text),
    /// A text of so many bytes that found no room. The fleet API has it.
    Elsewhere(usize),
    /// A Work whose manifests cannot be read.
    Unreadable(Box<Unreadable>),
}

/// Reason why a Work cannot be applied at all: a part of it has another type, or is nested too
/// deep.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the Work cannot be read, so nothing of it is applied and its objects stay as they are: {reason}"
)]
pub struct Unreadable {
    reason: String,
    conditions: Vec<Condition>,
}

impl Unreadable {
    /// Returns the conditions of the Work, to which the reason is added.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

impl CachedWork {
    /// Parses the Work from the text at each call; `None` if the text is not kept, so that the Work
    /// has to be read. An error says that the Work could not be read as it was received.
    pub fn open(&self) -> Option<Result<Work, Unreadable>> {
        match &self.content {
            Content::Text(text) => {
                let work = serde_json::from_str(text);
                Some(work.map_err(|error| reading::unreadable(&error, Vec::new())))
            }
            Content::Elsewhere(_) => None,
            Content::Unreadable(unreadable) => Some(Err((**unreadable).clone())),
        }
    }

    /// Gives up the text if there is no room for it.
    pub fn fit(&mut self, texts: &Texts) {
        if let Content::Text(text) = &mut self.content
            && !texts.keep(text)
        {
            self.content = Content::Elsewhere(text.len());
        }
    }

    /// Returns whether it is too large to be kept, however much room there is.
    pub fn is_large(&self) -> bool {
        matches!(self.content, Content::Elsewhere(bytes) if bytes > texts::LONGEST)
    }

    /// Returns a number that is the same for two states of one Work that want the same objects.
    pub fn wish(&self) -> u64 {
        self.wish
    }

    fn is_readable(&self) -> bool {
        !matches!(self.content, Content::Unreadable(_))
    }

    /// Returns the kinds of its objects, each once. Manifests that cannot be read have none.
    pub fn kinds(&self) -> impl Iterator<Item = &GroupVersionKind> {
        self.kinds.iter().map(AsRef::as_ref)
    }

    /// Shares kinds and namespaces with other Works, to save memory.
    pub fn share(&mut self, kinds: &Interner<GroupVersionKind>, namespaces: &Interner<String>) {
        self.kinds.iter_mut().for_each(|kind| kinds.share(kind));
        self.namespaces
            .iter_mut()
            .for_each(|it| namespaces.share(it));
    }

    /// Returns whether an object of the Work may be in a container, which is a namespace or the
    /// definition of a kind. Those of a Work that cannot be read may be anywhere.
    pub fn may_be_in(&self, container: &Container<'_>) -> bool {
        !self.is_readable()
            || match container {
                Container::Namespace(name) => self.namespaces.iter().any(|it| **it == *name),
                Container::Definition { group, kind } => self
                    .kinds()
                    .any(|it| (&*it.group, &*it.kind) == (*group, *kind)),
            }
    }

    /// Returns whether a change of a Work has to be applied. Changes of its status do not.
    pub fn concerns_us(old: Option<&Self>, new: &Self) -> bool {
        old.is_none_or(|old| {
            old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
                || old.wish != new.wish
        })
    }

    /// Returns whether the condition `Applied` changed. Unless the agent wrote that, it was lost or
    /// restored.
    pub fn changes_applied(old: Option<&Self>, new: &Self) -> bool {
        old.is_some_and(|old| old.applied != new.applied)
    }

    /// Returns whether the reported statuses of its objects changed.
    pub fn changes_reported(old: Option<&Self>, new: &Self) -> bool {
        old.is_some_and(|old| old.reported != new.reported)
    }

    /// Returns whether it can be read and could not before: what its objects reported meanwhile was
    /// not reported.
    pub fn becomes_readable(old: Option<&Self>, new: &Self) -> bool {
        new.is_readable() && old.is_some_and(|old| !old.is_readable())
    }

    /// Returns whether its status has this report about its objects, by the
    /// [`fingerprint`](Self::fingerprint).
    pub fn reports(&self, fingerprint: u64) -> bool {
        self.reported == Some(fingerprint)
    }

    /// Returns a number that differs if the statuses differ.
    pub fn fingerprint(statuses: &[ManifestStatus]) -> u64 {
        if statuses.is_empty() {
            return 0;
        }
        digest(&serde_json::to_value(statuses).unwrap_or_default())
    }

    /// Returns whether something is left to do for the Work: it is being deleted, or was not
    /// applied.
    pub fn is_pending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.applied != Some(true)
    }

    /// Returns whether changes of the Work's objects are repaired. A Work that could not be applied
    /// is retried by its queue instead.
    pub fn is_to_be_kept(&self) -> bool {
        self.applied != Some(false) && !self.is_held() && self.is_readable()
    }

    /// Returns whether its objects are not applied, because it is suspended or being deleted.
    pub fn is_held(&self) -> bool {
        self.suspended || self.metadata.deletion_timestamp.is_some()
    }

    /// Returns whether it is suspended, and says that objects are missing.
    pub fn is_held_and_unapplied(&self) -> bool {
        self.suspended && self.applied == Some(false)
    }
}

/// Returns a number that differs if the Work is another one, or the content to apply differs. The
/// pattern names all fields, so that a new one is not forgotten.
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
        (&metadata.uid, &metadata.finalizers, &metadata.annotations),
        (suspend_dispatching, preserve_resources_on_deletion),
        manifests,
    ))
}

/// Returns a part of the keys of the objects, each once. Manifests that cannot be read have none.
fn distinct<T: Clone + Eq + Hash>(
    spec: &WorkSpec,
    part: impl Fn(ObjectKey) -> Option<T>,
) -> Box<[Arc<T>]> {
    let mut known = HashSet::new();
    let manifests = spec.workload.manifests.iter().enumerate();
    manifests
        .filter_map(|(ordinal, manifest)| part(ObjectKey::of(&manifest.0, ordinal).ok()?))
        .filter(|part| known.insert(part.clone()))
        .map(Arc::new)
        .collect()
}

impl<'de> Deserialize<'de> for CachedWork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        reading::read(&raw).map_err(D::Error::custom)
    }
}

muster_shared::resource_as!(CachedWork as Work);

#[cfg(test)]
mod tests;
