//! Roles and bindings parsed and sorted by whom they concern; brought up to date when one of them
//! was written.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

use super::GROUP;
use super::rule::Rule;
use crate::auth::identity::User;
use crate::store::{Collection, Object, Store};

/// The resources of the index, roles first.
const PLURALS: [&str; 4] = [
    "clusterroles",
    "roles",
    "clusterrolebindings",
    "rolebindings",
];

/// Somebody to whom a binding grants.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

/// A binding.
#[derive(Debug)]
struct Binding {
    namespace: String,
    name: String,
    /// Kind and name of the role.
    role: (String, String),
    subjects: Vec<Subject>,
}

/// A binding together with the rules of its role. Displays why somebody is allowed something.
#[derive(Debug, Clone)]
pub struct Grant {
    binding: Arc<Binding>,
    subject: usize,
    rules: Arc<[Rule]>,
}

impl Grant {
    /// Returns the rules that are granted.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding {
            namespace,
            name,
            role: (kind, role),
            subjects,
        } = &*self.binding;
        if namespace.is_empty() {
            write!(f, "RBAC: allowed by ClusterRoleBinding {name:?}")?;
        } else {
            write!(f, "RBAC: allowed by RoleBinding \"{name}/{namespace}\"")?;
        }
        write!(f, " of {kind} {role:?} to ")?;
        match &subjects[self.subject] {
            Subject::User(name) => write!(f, "User {name:?}"),
            Subject::Group(name) => write!(f, "Group {name:?}"),
            Subject::Account { namespace, name } => {
                write!(f, "ServiceAccount \"{name}/{namespace}\"")
            }
        }
    }
}

/// The grants of one namespace or of the whole cluster, by name of user and group.
#[derive(Debug, Default)]
struct Table {
    grants: Vec<Grant>,
    users: HashMap<String, Vec<usize>>,
    groups: HashMap<String, Vec<usize>>,
}

impl Table {
    fn add(&mut self, binding: &Arc<Binding>, rules: &Arc<[Rule]>) {
        for (subject, who) in binding.subjects.iter().enumerate() {
            let place = self.grants.len();
            match who {
                Subject::User(name) => self.users.entry(name.clone()).or_default().push(place),
                Subject::Group(name) => self.groups.entry(name.clone()).or_default().push(place),
                Subject::Account { namespace, name } => {
                    let name = format!("system:serviceaccount:{namespace}:{name}");
                    self.users.entry(name).or_default().push(place);
                }
            }
            self.grants.push(Grant {
                binding: Arc::clone(binding),
                subject,
                rules: Arc::clone(rules),
            });
        }
    }

    fn of(&self, user: &User) -> impl Iterator<Item = &Grant> {
        let own = self.users.get(&user.name).into_iter();
        let shared = user.groups.iter().filter_map(|g| self.groups.get(g));
        own.chain(shared)
            .flatten()
            .map(|place| &self.grants[*place])
    }
}

/// All grants of a server, as of some version.
#[derive(Debug, Default)]
pub struct Index {
    cluster: Table,
    namespaces: HashMap<String, Table>,
    /// Rules of roles by kind and key.
    roles: HashMap<(String, String), Arc<[Rule]>>,
}

impl Index {
    /// Returns what is granted to a user in a namespace, or cluster-wide if it is empty.
    pub fn of<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = self.namespaces.get(namespace).into_iter();
        let local = local.flat_map(|table| table.of(user));
        self.cluster.of(user).chain(local)
    }

    /// Returns the rules of a role that a binding in `namespace` refers to.
    pub fn role(&self, kind: &str, namespace: &str, name: &str) -> Option<&[Rule]> {
        let key = if kind == "Role" {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        };
        self.roles.get(&(kind.to_owned(), key)).map(|r| &**r)
    }
}

#[derive(Debug, Clone)]
enum Parsed {
    Role(Arc<[Rule]>),
    Binding(Arc<Binding>),
}

#[derive(Debug, Default)]
struct State {
    versions: [u64; 4],
    index: Arc<Index>,
    /// What has been parsed before, with the version of the object.
    parsed: HashMap<(usize, Arc<str>), (u64, Parsed)>,
}

/// The index of a server.
#[derive(Debug)]
pub struct Rbac {
    collections: [Arc<Collection>; 4],
    state: RwLock<State>,
}

impl Rbac {
    /// Returns an index of what is in the store.
    pub fn new(store: &Store) -> Self {
        Self {
            collections: PLURALS.map(|plural| store.collection(&format!("{GROUP}/{plural}"))),
            state: RwLock::default(),
        }
    }

    /// Returns the index as of now.
    pub fn index(&self) -> Arc<Index> {
        let versions = [0, 1, 2, 3].map(|i: usize| self.collections[i].latest_version());
        let state = self.state.read();
        if state.versions == versions {
            return Arc::clone(&state.index);
        }
        drop(state);
        let mut state = self.state.write();
        if state.versions != versions {
            self.renew(&mut state);
            state.versions = versions;
        }
        Arc::clone(&state.index)
    }

    fn renew(&self, state: &mut State) {
        let mut before = std::mem::take(&mut state.parsed);
        let mut index = Index::default();
        for (kind, collection) in self.collections.iter().enumerate() {
            for object in collection.present("") {
                let key = (kind, Arc::clone(&object.head.key));
                let parsed = match before.remove(&key) {
                    Some((version, parsed)) if version == object.version => parsed,
                    _ => parse(kind, &object),
                };
                match &parsed {
                    Parsed::Role(rules) => {
                        let role = if kind == 0 { "ClusterRole" } else { "Role" };
                        let place = (role.to_owned(), object.head.key.to_string());
                        index.roles.insert(place, Arc::clone(rules));
                    }
                    Parsed::Binding(binding) => index.bind(binding),
                }
                state.parsed.insert(key, (object.version, parsed));
            }
        }
        state.index = Arc::new(index);
    }
}

impl Index {
    fn bind(&mut self, binding: &Arc<Binding>) {
        let (kind, name) = &binding.role;
        let key = if kind == "Role" {
            format!("{}/{name}", binding.namespace)
        } else {
            name.clone()
        };
        // A role that isn't there grants nothing.
        let Some(rules) = self.roles.get(&(kind.clone(), key)) else {
            return;
        };
        let rules = Arc::clone(rules);
        let table = if binding.namespace.is_empty() {
            &mut self.cluster
        } else {
            self.namespaces
                .entry(binding.namespace.clone())
                .or_default()
        };
        table.add(binding, &rules);
    }
}

fn parse(kind: usize, object: &Object) -> Parsed {
    let value = object.value();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    if kind < 2 {
        let rules = value["rules"].as_array().into_iter().flatten();
        return Parsed::Role(rules.map(Rule::read).collect());
    }
    let namespace = object.head.namespace();
    let subjects = value["subjects"].as_array().into_iter().flatten();
    let subjects = subjects.filter_map(|s| {
        let name = text(&s["name"]);
        Some(match s["kind"].as_str()? {
            "User" => Subject::User(name),
            "Group" => Subject::Group(name),
            "ServiceAccount" => Subject::Account {
                namespace: s["namespace"].as_str().unwrap_or(namespace).to_owned(),
                name,
            },
            _ => return None,
        })
    });
    let role = &value["roleRef"];
    Parsed::Binding(Arc::new(Binding {
        namespace: namespace.to_owned(),
        name: object.head.name().to_owned(),
        role: (text(&role["kind"]), text(&role["name"])),
        subjects: subjects.collect(),
    }))
}
