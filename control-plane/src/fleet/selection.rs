//! Compares the resource selectors of policies with resources.

use muster_shared::api::binding::ObjectReference;
use muster_shared::api::policy::ResourceSelector;
use muster_shared::selectors::matches_labels;
use muster_shared::watch::outline::{Labels, Outline};

use crate::fleet::template::{Kind, Template};

/// Resource that selectors are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Kind of the template.
    pub kind: &'a Kind,
    /// Namespace of the template, `None` for kinds without one.
    pub namespace: Option<&'a str>,
    /// Name of the template.
    pub name: &'a str,
    /// Labels of the template.
    pub labels: Labels<'a>,
}

impl<'a> Subject<'a> {
    /// Returns a template of a kind as policies see it.
    pub fn of(kind: &'a Kind, template: &'a Template) -> Self {
        Self::at(kind, Outline::of(template))
    }

    /// Returns an object of a kind as policies see it.
    pub fn at(kind: &'a Kind, outline: Outline<'a>) -> Self {
        let Outline {
            namespace,
            name,
            labels,
        } = outline;
        Self {
            kind,
            namespace,
            name,
            labels,
        }
    }
}

/// Specificity with which a selector matches a template. The numbers are Karmada's implicit
/// priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// No match.
    Mismatch = 0,
    /// Match of every object of the kind.
    All = 1,
    /// Match by labels.
    Labels = 2,
    /// Match by name.
    Name = 3,
}

/// Returns how specifically one selector means the template. A name makes the labels irrelevant; an
/// empty label selector means everything and still counts as labels; one that cannot be understood
/// means nothing.
pub fn strength(selector: &ResourceSelector, subject: Subject<'_>) -> Strength {
    let kind = (&*subject.kind.api_version, &*subject.kind.kind);
    if !may_mean(selector, kind, (subject.namespace, subject.name)) {
        return Strength::Mismatch;
    }
    match (given(selector.name.as_deref()), &selector.label_selector) {
        (Some(_), _) => Strength::Name,
        (None, None) => Strength::All,
        (None, Some(selector)) if matches_labels(selector, |key| subject.labels.get(key)) => {
            Strength::Labels
        }
        (None, Some(_)) => Strength::Mismatch,
    }
}

/// Returns whether a selector may mean an object, which it does if the object has the right labels.
/// The kind is given with its API version, and the name with its namespace.
fn may_mean(
    selector: &ResourceSelector,
    (api_version, kind): (&str, &str),
    (namespace, name): (Option<&str>, &str),
) -> bool {
    selector.api_version == api_version
        && selector.kind == kind
        && given(selector.namespace.as_deref()).is_none_or(|it| namespace == Some(it))
        && given(selector.name.as_deref()).is_none_or(|it| it == name)
}

/// Returns whether a selector may mean a resource, which it does if the resource has the right
/// labels.
pub fn may_select(selector: &ResourceSelector, resource: &ObjectReference) -> bool {
    let kind = (&*resource.api_version, &*resource.kind);
    let name = (given(resource.namespace.as_deref()), &*resource.name);
    may_mean(selector, kind, name)
}

/// Returns a text that is neither absent nor empty, which mean the same.
pub fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
