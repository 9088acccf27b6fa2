//! The resources that are served right now: built-in ones and those that CRDs define.

pub mod codec;
pub mod definition;
pub mod documents;
pub mod fields;
pub mod kind_facts;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::catalog;
use crate::registry::kind_facts::KindFacts;
use crate::schema::Schema;
use crate::store::{Collection, Store};
use crate::table::Columns;
use crate::wire::status_error::GroupName;

/// A resource.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: String,
    /// Name in paths.
    pub plural: String,
    /// Kind in CamelCase.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Singular name for people.
    pub singular: String,
    /// Short names for people.
    pub short_names: Vec<String>,
    /// Groups of resources that people ask for at once.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The version that is served, in which objects are stored.
    pub version: Version,
    /// What the kind does differently.
    pub facts: KindFacts,
    /// The definition, if the resource is a custom one.
    pub custom: Option<Custom>,
    /// The objects.
    pub collection: Arc<Collection>,
}

/// What only custom resources have.
#[derive(Debug)]
pub struct Custom {
    /// Name of the CRD.
    pub crd: String,
}

/// The served version of a resource.
#[derive(Debug)]
pub struct Version {
    /// `v1`.
    pub name: String,
    /// What may be done, as discovery lists it.
    pub verbs: Vec<String>,
    /// What hangs below objects.
    pub subresources: Vec<Subresource>,
    /// What objects look like.
    pub schema: Schema,
    /// What people see of them.
    pub columns: Columns,
}

/// A subresource as discovery lists it.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// `status`.
    pub name: String,
    /// Group, version and kind that it speaks.
    pub speaks: (String, String, String),
    /// Verbs in discovery.
    pub verbs: Vec<String>,
}

impl Resource {
    /// `deployments.apps`, for messages.
    pub fn name(&self) -> GroupName<'_> {
        GroupName {
            group: &self.group,
            name: &self.plural,
        }
    }

    /// Returns the kind with its group, such as `Deployment.apps`, for messages about invalid
    /// objects.
    pub fn kind_name(&self) -> GroupName<'_> {
        GroupName {
            group: &self.group,
            name: &self.kind,
        }
    }

    /// `apps/v1` for a version of this group.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// Returns the key of an object in the store.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }
}

impl Version {
    /// Returns a subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Returns whether the status is written through a subresource only.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

/// A resource that a request speaks of in the version that is served.
#[derive(Debug, Clone)]
pub struct Served {
    /// The resource.
    pub resource: Arc<Resource>,
}

impl Served {
    /// Returns the version that is spoken.
    pub fn version(&self) -> &Version {
        &self.resource.version
    }

    /// `apps/v1`.
    pub fn api_version(&self) -> String {
        self.resource.api_version(&self.version().name)
    }
}

/// All resources, in the order of discovery.
#[derive(Debug, Default)]
pub struct Registry {
    resources: RwLock<Arc<Vec<Arc<Resource>>>>,
}

impl Registry {
    /// Returns a registry of the built-in resources.
    pub fn new(store: &Store) -> Self {
        let builtin = |kind: &'static catalog::Kind| {
            Arc::new(Resource {
                group: kind.group.to_owned(),
                plural: kind.plural.to_owned(),
                kind: kind.kind.to_owned(),
                list_kind: format!("{}List", kind.kind),
                singular: kind.singular.to_owned(),
                short_names: owned(kind.short_names),
                categories: owned(kind.categories),
                namespaced: kind.namespaced,
                version: builtin_version(kind),
                facts: KindFacts::of(kind.group, kind.plural),
                custom: None,
                collection: store.collection(&collection_name(kind.group, kind.plural)),
            })
        };
        let resources = catalog::all().iter().map(builtin).collect();
        Self {
            resources: RwLock::new(Arc::new(resources)),
        }
    }

    /// Returns every resource.
    pub fn all(&self) -> Arc<Vec<Arc<Resource>>> {
        Arc::clone(&self.resources.read())
    }

    /// Returns the resource behind a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Served> {
        self.served(version, |r| r.plural == plural && r.group == group)
    }

    /// Returns the resource of a kind.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<Served> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.served(version, |r| r.kind == kind && r.group == group)
    }

    fn served(&self, version: &str, is: impl Fn(&Resource) -> bool) -> Option<Served> {
        let all = self.all();
        let found = all.iter().find(|r| r.version.name == version && is(r))?;
        Some(Served {
            resource: Arc::clone(found),
        })
    }

    /// Returns whether any resource is served under this group and version.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.all()
            .iter()
            .any(|r| r.group == group && r.version.name == version)
    }

    /// Puts a custom resource in the place of the one its CRD defined before.
    pub fn put(&self, resource: Resource) {
        let mut guard = self.resources.write();
        let mut resources = (**guard).clone();
        let resource = Arc::new(resource);
        let same = |r: &Arc<Resource>| r.group == resource.group && r.plural == resource.plural;
        match resources.iter().position(same) {
            Some(at) => resources[at] = resource,
            None => resources.push(resource),
        }
        *guard = Arc::new(resources);
    }

    /// Takes the resource of a CRD away.
    pub fn remove(&self, crd: &str) {
        let mut guard = self.resources.write();
        let mut resources = (**guard).clone();
        resources.retain(|r| r.custom.as_ref().is_none_or(|c| c.crd != crd));
        *guard = Arc::new(resources);
    }
}

/// Returns the name of a resource's collection in the store.
pub fn collection_name(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|&s| s.to_owned()).collect()
}

fn builtin_version(kind: &'static catalog::Kind) -> Version {
    let subresource = |s: &catalog::Subresource| Subresource {
        name: s.name.to_owned(),
        speaks: (s.group.to_owned(), s.version.to_owned(), s.kind.to_owned()),
        verbs: owned(s.verbs),
    };
    Version {
        name: kind.version.to_owned(),
        verbs: owned(kind.verbs),
        subresources: kind.subresources.iter().map(subresource).collect(),
        schema: Schema::builtin(kind),
        columns: Columns::builtin(kind),
    }
}
