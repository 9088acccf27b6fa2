//! Parses a Work, and as much as possible of a Work that does not decode.

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::{ManifestStatus, ResourceIdentifier, Work, WorkStatus};
use muster_shared::conditions;
use muster_shared::k8s::{Condition, ObjectMeta};
use muster_shared::names::condition::APPLIED;
use muster_shared::text;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{CachedWork, Content, TERMINATING, Unreadable, distinct, wish};
use crate::digest::digest;
use crate::work::manifests::{self, has_finalizer, named};
use crate::work::texts::Text;

/// Maximum bytes of the reason why a Work cannot be read. The reason may quote the Work.
const LONGEST_REASON: usize = 512;

/// A Work with parsed metadata; the rest stays text.
#[derive(Serialize, Deserialize)]
struct Parts<'a> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(borrow, default, deserialize_with = "present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    status: Option<&'a RawValue>,
}

/// Reads a spec that is present: null cannot be read, while an absent spec is empty.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(spec: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(spec).map(Some)
}

/// A status without those of the objects, which are skipped at any depth.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Outline {
    conditions: Vec<Condition>,
    manifest_statuses: Vec<OutlineOfObject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutlineOfObject {
    identifier: ResourceIdentifier,
    health: Option<ResourceHealth>,
}

impl From<Outline> for WorkStatus {
    fn from(outline: Outline) -> Self {
        let objects = outline.manifest_statuses.into_iter();
        Self {
            conditions: outline.conditions,
            manifest_statuses: objects
                .map(|object| ManifestStatus {
                    identifier: object.identifier,
                    health: object.health,
                    status: None,
                })
                .collect(),
        }
    }
}

/// Reads a Work from its JSON.
///
/// # Errors
/// When its metadata cannot be read.
pub(super) fn read(raw: &RawValue) -> Result<CachedWork, serde_json::Error> {
    let mut parts: Parts<'_> = serde_json::from_str(raw.get())?;
    parts.metadata.managed_fields = None;
    // The stored text is parsed as a whole, so that each later read succeeds as well. The parts
    // alone could be read at a depth at which the whole cannot.
    let text = serde_json::to_string(&parts)?;
    Ok(match serde_json::from_str::<Work>(&text) {
        Ok(work) => readable(&work, text, Some(CachedWork::fingerprint(named(&work)))),
        Err(error) => without_reports(&parts).unwrap_or_else(|| unread(&parts, &error)),
    })
}

/// Returns a Work whose manifests can be read although the statuses of its objects cannot, as when
/// a member reports a status that is nested too deep.
fn without_reports(parts: &Parts<'_>) -> Option<CachedWork> {
    let wish = Parts {
        metadata: parts.metadata.clone(),
        spec: parts.spec,
        status: None,
    };
    let mut work: Work = serde_json::from_str(&serde_json::to_string(&wish).ok()?).ok()?;
    work.status = Some(outline(parts)?);
    let text = serde_json::to_string(&work).ok()?;
    Some(readable(&work, text, None))
}

fn outline(parts: &Parts<'_>) -> Option<WorkStatus> {
    let outline: Outline = serde_json::from_str(parts.status?.get()).ok()?;
    Some(outline.into())
}

fn readable(work: &Work, text: String, reported: Option<u64>) -> CachedWork {
    CachedWork {
        metadata: short(&work.metadata),
        content: Content::Text(Text::new(text)),
        wish: wish(&work.metadata, &work.spec),
        reported,
        kinds: distinct(&work.spec, |key| Some(key.kind)),
        namespaces: distinct(&work.spec, |key| {
            Some(key.namespace).filter(|it| !it.is_empty())
        }),
        suspended: work.spec.suspend_dispatching == Some(true),
        applied: applied(manifests::conditions_of(work)),
        has_finalizer: has_finalizer(work),
    }
}

fn unread(parts: &Parts<'_>, error: &serde_json::Error) -> CachedWork {
    let metadata = &parts.metadata;
    let marks = (&metadata.uid, &metadata.finalizers, &metadata.annotations);
    let conditions = outline(parts).unwrap_or_default().conditions;
    CachedWork {
        metadata: short(metadata),
        wish: digest(&(marks, parts.spec.map(RawValue::get))),
        reported: None,
        kinds: Box::default(),
        namespaces: Box::default(),
        suspended: false,
        applied: applied(&conditions),
        has_finalizer: false,
        content: Content::Unreadable(Box::new(unreadable(error, conditions))),
    }
}

/// Returns whether the objects are said to be applied, or not to be. Where only objects that the
/// Work no longer has are not gone yet, the others are applied.
fn applied(conditions: &[Condition]) -> Option<bool> {
    let known = conditions::get(conditions, APPLIED)?;
    match known.status.as_str() {
        conditions::TRUE => Some(true),
        conditions::FALSE if known.reason != TERMINATING => Some(false),
        _ => None,
    }
}

pub(super) fn unreadable(error: &serde_json::Error, conditions: Vec<Condition>) -> Unreadable {
    let reason = text::cut(&error.to_string(), LONGEST_REASON, "...");
    Unreadable { reason, conditions }
}

fn short(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}
