//! Which policy an unclaimed template belongs to.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_shared::api::policy::{PropagationSpec, ResourceSelector};
use muster_shared::selectors::matches_labels;

use super::policy::Policy;
use super::template::{Kind, Template, TemplateKey};

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// What a selector is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Kind of the template.
    pub kind: &'a Kind,
    /// Its namespace, `None` for kinds without one.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Subject<'a> {
    /// A template as policies see it.
    pub fn of(key: &'a TemplateKey, template: &'a Template) -> Self {
        Self {
            kind: &key.kind,
            namespace: key.namespace.as_deref(),
            name: &key.name,
            labels: template.metadata().labels.as_ref(),
        }
    }
}

/// How specifically a selector means a template. The numbers are Karmada's implicit priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Not at all.
    Mismatch = 0,
    /// As one of all of its kind.
    All = 1,
    /// By its labels.
    Labels = 2,
    /// By its name.
    Name = 3,
}

/// How specifically one selector means the template. A name makes the labels irrelevant; an empty label selector means everything and
/// still counts as labels; one that cannot be understood means nothing.
pub fn strength(selector: &ResourceSelector, subject: Subject<'_>) -> Strength {
    if selector.api_version != subject.kind.api_version || selector.kind != subject.kind.kind {
        return Strength::Mismatch;
    }
    if given(selector.namespace.as_ref())
        .is_some_and(|namespace| subject.namespace != Some(namespace))
    {
        return Strength::Mismatch;
    }
    match (given(selector.name.as_ref()), &selector.label_selector) {
        (Some(name), _) if name == subject.name => Strength::Name,
        (None, None) => Strength::All,
        (None, Some(selector))
            if matches_labels(selector, subject.labels.unwrap_or(&NO_LABELS)) =>
        {
            Strength::Labels
        }
        (Some(_), _) | (None, Some(_)) => Strength::Mismatch,
    }
}

/// Absent and empty are the same.
fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// How specifically the most specific selector of a policy means the template.
pub fn implicit_priority(policy: &PropagationSpec, subject: Subject<'_>) -> Strength {
    let strengths = policy
        .resource_selectors
        .iter()
        .map(|selector| strength(selector, subject));
    strengths.max().unwrap_or(Strength::Mismatch)
}

/// Whether a policy selects the template at all.
pub fn selects(policy: &PropagationSpec, subject: Subject<'_>) -> bool {
    implicit_priority(policy, subject) > Strength::Mismatch
}

/// The policy that gets the template among policies of one kind: the highest explicit priority, then the most specific, then the
/// first by name. Policies that are going away take part in nothing.
pub fn winner<'p>(
    policies: impl IntoIterator<Item = &'p Policy>,
    subject: Subject<'_>,
) -> Option<&'p Policy> {
    policies
        .into_iter()
        .filter(|policy| !policy.is_deleting())
        .map(|policy| {
            (
                policy.spec().priority(),
                implicit_priority(policy.spec(), subject),
                policy,
            )
        })
        .filter(|(_, strength, _)| *strength > Strength::Mismatch)
        .max_by_key(|(priority, strength, policy)| (*priority, *strength, Reverse(policy.key())))
        .map(|(_, _, policy)| policy)
}
