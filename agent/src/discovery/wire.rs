//! Decodes the discovery documents of an API server, in the aggregated and in the older format.

use serde::Deserialize;

use super::catalog::{Catalog, Served};

/// Answer of `/api` or `/apis`.
#[derive(Debug)]
pub enum Root {
    /// All groups and kinds (Kubernetes 1.26 and later).
    Aggregated(Vec<Group>),
    /// Names of group versions, each of which has to be requested.
    Names(Vec<String>),
}

/// A group of an aggregated answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Group {
    metadata: Name,
    versions: Vec<Version>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Version {
    #[serde(rename = "version")]
    name: String,
    resources: Vec<Resource>,
    freshness: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Resource {
    #[serde(rename = "resource")]
    plural: String,
    response_kind: Option<Kind>,
    scope: String,
    verbs: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
#[serde(tag = "kind")]
enum Document {
    #[serde(rename = "APIGroupDiscoveryList")]
    Aggregated {
        #[serde(default)]
        items: Vec<Group>,
    },
    #[serde(rename = "APIVersions")]
    Core {
        #[serde(default)]
        versions: Vec<String>,
    },
    #[serde(rename = "APIGroupList")]
    Groups {
        #[serde(default)]
        groups: Vec<LegacyGroup>,
    },
}

#[derive(Deserialize)]
#[serde(tag = "kind")]
enum GroupDocument {
    #[serde(rename = "APIVersions")]
    Core {
        #[serde(default)]
        versions: Vec<String>,
    },
    #[serde(rename = "APIGroup")]
    Named(LegacyGroup),
}

#[derive(Deserialize)]
struct LegacyGroup {
    #[serde(default)]
    versions: Vec<LegacyVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyVersion {
    group_version: String,
}

#[derive(Deserialize)]
struct LegacyResources {
    #[serde(default)]
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
struct LegacyResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Reads the answer of `/api` or `/apis`, whichever form the server chose.
pub fn root(body: &str) -> Result<Root, serde_json::Error> {
    Ok(match serde_json::from_str(body)? {
        Document::Aggregated { items } => Root::Aggregated(items),
        Document::Core { versions } => Root::Names(versions),
        Document::Groups { groups } => Root::Names(
            groups
                .into_iter()
                .flat_map(|group| group.versions)
                .map(|version| version.group_version)
                .collect(),
        ),
    })
}

/// Reads the answer of `/api` or `/apis/GROUP` in the older form: the group versions.
pub fn group(body: &str) -> Result<Vec<String>, serde_json::Error> {
    Ok(match serde_json::from_str(body)? {
        GroupDocument::Core { versions } => versions,
        GroupDocument::Named(group) => group
            .versions
            .into_iter()
            .map(|version| version.group_version)
            .collect(),
    })
}

/// Reads the answer of `/api/v1` or `/apis/GROUP/VERSION`.
pub fn resources(body: &str) -> Result<Vec<Served>, serde_json::Error> {
    let list: LegacyResources = serde_json::from_str(body)?;
    Ok(list
        .resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/'))
        .map(|resource| Served {
            watchable: watchable(&resource.verbs),
            name: resource.name,
            kind: resource.kind,
            namespaced: resource.namespaced,
        })
        .collect())
}

/// Adds the groups of an aggregated answer. A version that the server itself calls stale counts as
/// unread: it serves what it remembers of an aggregated API that no longer answers it.
pub fn admit(groups: Vec<Group>, catalog: &mut Catalog) {
    for Group { metadata, versions } in groups {
        for version in versions {
            let group_version = if metadata.name.is_empty() {
                version.name
            } else {
                format!("{}/{}", metadata.name, version.name)
            };
            if version.freshness == "Stale" {
                catalog.insert_unread(group_version.clone());
                if version.resources.is_empty() {
                    continue;
                }
            }
            let served = version
                .resources
                .into_iter()
                .map(|resource| Served {
                    name: resource.plural,
                    kind: resource.response_kind.unwrap_or_default().kind,
                    namespaced: resource.scope == "Namespaced",
                    watchable: watchable(&resource.verbs),
                })
                .collect();
            catalog.insert(group_version, served);
        }
    }
}

fn watchable(verbs: &[String]) -> bool {
    verbs.iter().any(|verb| verb == "watch")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::catalog::Completeness;
    use super::*;

    /// Returns the catalog of an aggregated answer.
    fn admitted(body: &Value) -> Catalog {
        let Root::Aggregated(groups) = root(&body.to_string()).unwrap() else {
            panic!("aggregated")
        };
        let mut catalog = Catalog::default();
        admit(groups, &mut catalog);
        catalog
    }

    #[test]
    fn an_aggregated_answer_becomes_a_catalog_and_its_stale_parts_make_it_partial() {
        let body = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
                {"resource": "deployments", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                 "scope": "Namespaced", "verbs": ["get", "watch"], "subresources": [{"subresource": "status"}]}]}]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale", "resources": []}]},
        ]});
        let catalog = admitted(&body);
        assert_eq!(catalog.completeness(), Completeness::Partial);
        let (version, served) = catalog.versions().next().unwrap();
        assert_eq!(version, "apps/v1");
        let expected = Served {
            name: "deployments".into(),
            kind: "Deployment".into(),
            namespaced: true,
            watchable: true,
        };
        assert_eq!(served, [expected]);
    }

    #[test]
    fn the_core_group_has_no_group_in_its_version() {
        let body = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": []}]}]});
        let catalog = admitted(&body);
        assert_eq!(catalog.versions().next().unwrap().0, "v1");
    }

    #[test]
    fn an_older_server_names_its_group_versions() {
        let groups = json!({"kind": "APIGroupList", "groups": [
            {"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]}]});
        let core = json!({"kind": "APIVersions", "versions": ["v1"]});
        for (body, expected) in [(groups, "apps/v1"), (core, "v1")] {
            let Root::Names(names) = root(&body.to_string()).unwrap() else {
                panic!("names")
            };
            assert_eq!(names, [expected]);
        }
    }

    #[test]
    fn a_group_names_its_versions() {
        let named = json!({"kind": "APIGroup", "name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]});
        let core = json!({"kind": "APIVersions", "versions": ["v1"]});
        for (body, expected) in [(named, "apps/v1"), (core, "v1")] {
            assert_eq!(group(&body.to_string()).unwrap(), [expected]);
        }
        assert!(group(&json!({"kind": "Status"}).to_string()).is_err());
    }

    #[test]
    fn subresources_of_an_older_answer_are_dropped() {
        let body = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["list", "watch"]},
            {"name": "pods/log", "kind": "Pod", "namespaced": true, "verbs": ["get"]},
            {"name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"]},
        ]});
        let served = resources(&body.to_string()).unwrap();
        let names: Vec<_> = served
            .iter()
            .map(|served| (served.name.as_str(), served.watchable))
            .collect();
        assert_eq!(names, [("pods", true), ("bindings", false)]);
    }
}
