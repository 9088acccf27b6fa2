//! Kinds that the member serves.

use std::collections::BTreeMap;

use muster_shared::k8s::{ApiResource, GroupVersionKind};

/// One served resource; subresources are left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// Plural name, as in URLs.
    pub name: String,
    /// Kind, as in manifests.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be watched.
    pub watchable: bool,
}

/// Share of the member's API that a [`Catalog`] covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Every group version was discovered.
    Complete,
    /// Some group versions did not answer, usually because an aggregated API server is down.
    Partial,
    /// No group version was discovered.
    Empty,
}

/// The kinds that a cluster serves, by group version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    versions: BTreeMap<String, Vec<Served>>,
    /// Group versions that are announced but could not be read; their resources, if any, are from
    /// an earlier read.
    unread: Vec<String>,
}

impl Catalog {
    /// Notes a group version that answered.
    pub fn insert(&mut self, group_version: String, mut served: Vec<Served>) {
        served.sort();
        self.versions.insert(group_version, served);
    }

    /// Notes a group version that did not answer.
    pub fn insert_unread(&mut self, group_version: String) {
        self.unread.push(group_version);
    }

    /// Adds the resources of another part of the same member's API.
    pub fn extend(&mut self, part: &Self) {
        self.versions
            .extend(part.versions.iter().map(|(k, v)| (k.clone(), v.clone())));
        self.unread.extend(part.unread.iter().cloned());
    }

    /// Fills the gaps from an earlier catalog, so that a failing aggregated API does not look like
    /// a removed one.
    #[must_use]
    pub fn or_as_before(mut self, before: &Self) -> Self {
        for group_version in &self.unread {
            if let Some(served) = before.versions.get(group_version) {
                self.versions.insert(group_version.clone(), served.clone());
            }
        }
        self
    }

    /// Returns the share of the member's API that this covers.
    pub fn completeness(&self) -> Completeness {
        if self.versions.is_empty() {
            Completeness::Empty
        } else if self.unread.is_empty() {
            Completeness::Complete
        } else {
            Completeness::Partial
        }
    }

    /// Returns the group versions in byte-wise order, each with its resources by name.
    pub fn versions(&self) -> impl Iterator<Item = (&str, &[Served])> {
        self.versions
            .iter()
            .map(|(version, served)| (version.as_str(), served.as_slice()))
    }

    /// Returns the group versions that are announced and could not be read.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.unread.iter().map(String::as_str)
    }

    /// Returns whether a group version is announced and could not be read.
    pub fn is_unread(&self, group_version: &str) -> bool {
        self.unread().any(|unread| unread == group_version)
    }

    /// Returns a version in which a kind is served: the one in `kind`, else any other of the group.
    pub fn version_of(&self, kind: &GroupVersionKind) -> Option<String> {
        if self.resolve(kind).is_some() {
            return Some(kind.version.clone());
        }
        self.versions.iter().find_map(|(name, served)| {
            let (group, version) = name.split_once('/').unwrap_or(("", name));
            let serves = group == kind.group && served.iter().any(|it| it.kind == kind.kind);
            serves.then(|| version.to_owned())
        })
    }

    /// Returns the resource of a kind. Where several have it, one that can be watched: others only
    /// answer with the kind, as OpenShift's `processedtemplates` do, and keep no objects.
    pub fn resolve(&self, kind: &GroupVersionKind) -> Option<Place> {
        let served = self.versions.get(&kind.api_version())?;
        let of_kind = served.iter().filter(|served| served.kind == kind.kind);
        let served = of_kind.min_by_key(|served| !served.watchable)?;
        Some(Place {
            resource: ApiResource::from_gvk_with_plural(kind, &served.name),
            namespaced: served.namespaced,
            watchable: served.watchable,
        })
    }
}

/// The resource of a kind in the member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Resource for URLs.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether its objects can be watched.
    pub watchable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: &str, kind: &str) -> Served {
        Served {
            name: name.into(),
            kind: kind.into(),
            namespaced: true,
            watchable: true,
        }
    }

    #[test]
    fn resources_are_listed_by_name_and_group_versions_byte_wise() {
        let mut catalog = Catalog::default();
        catalog.insert(
            "v1".into(),
            vec![served("secrets", "Secret"), served("pods", "Pod")],
        );
        catalog.insert("apps/v1".into(), Vec::new());
        let order: Vec<_> = catalog
            .versions()
            .map(|(version, served)| {
                (
                    version,
                    served
                        .iter()
                        .map(|served| served.name.as_str())
                        .collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(
            order,
            [("apps/v1", vec![]), ("v1", vec!["pods", "secrets"])]
        );
    }

    #[test]
    fn a_group_version_that_stops_answering_keeps_what_was_known_of_it() {
        let mut before = Catalog::default();
        before.insert(
            "metrics.k8s.io/v1beta1".into(),
            vec![served("pods", "PodMetrics")],
        );
        let mut now = Catalog::default();
        now.insert("v1".into(), vec![served("pods", "Pod")]);
        now.insert_unread("metrics.k8s.io/v1beta1".into());
        let merged = now.or_as_before(&before);
        assert_eq!(merged.completeness(), Completeness::Partial);
        let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
        assert!(merged.resolve(&kind).is_some());
    }

    #[test]
    fn a_kind_is_found_in_another_version_of_its_group_only() {
        let mut catalog = Catalog::default();
        let budgets = vec![served("poddisruptionbudgets", "PodDisruptionBudget")];
        catalog.insert("policy/v1".into(), budgets);
        catalog.insert("v1".into(), vec![served("pods", "Pod")]);
        for (group, version, kind, expected) in [
            ("policy", "v1", "PodDisruptionBudget", Some("v1")),
            ("policy", "v1beta1", "PodDisruptionBudget", Some("v1")),
            ("policy", "v1", "PodSecurityPolicy", None),
            ("extensions", "v1beta1", "PodDisruptionBudget", None),
            ("", "v2", "Pod", Some("v1")),
        ] {
            let kind = GroupVersionKind::gvk(group, version, kind);
            let found = catalog.version_of(&kind);
            assert_eq!(found.as_deref(), expected, "{kind:?}");
        }
    }

    #[test]
    fn of_several_resources_with_a_kind_the_one_that_keeps_objects_is_meant() {
        let unwatched = |name: &str| Served {
            watchable: false,
            ..served(name, "Template")
        };
        let templates = || served("templates", "Template");
        for (served, expected) in [
            (
                vec![templates(), unwatched("processedtemplates")],
                "templates",
            ),
            (vec![templates(), unwatched("unwatched")], "templates"),
            (vec![unwatched("b"), unwatched("a")], "a"),
        ] {
            let mut catalog = Catalog::default();
            catalog.insert("template.openshift.io/v1".into(), served);
            let kind = GroupVersionKind::gvk("template.openshift.io", "v1", "Template");
            let found = catalog.resolve(&kind).unwrap();
            assert_eq!(found.resource.plural, expected);
        }
    }

    #[test]
    fn a_removed_group_version_is_not_kept() {
        let mut before = Catalog::default();
        before.insert("example.io/v1".into(), vec![served("things", "Thing")]);
        let mut now = Catalog::default();
        now.insert("v1".into(), Vec::new());
        let merged = now.or_as_before(&before);
        assert_eq!(merged.completeness(), Completeness::Complete);
        assert!(
            merged
                .resolve(&GroupVersionKind::gvk("example.io", "v1", "Thing"))
                .is_none()
        );
    }
}
