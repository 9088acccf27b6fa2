//! Index of policies by the kinds and names that they select.

use std::collections::{BTreeSet, HashMap};

use muster_shared::api::policy::ResourceSelector;

use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::{Subject, given};
use crate::fleet::sets::take;
use crate::fleet::template::Kind;

/// The policies by what their selectors name. A template is compared with those that name its kind
/// and namespace, and either its own name, or one of its labels, or neither: with a policy for each
/// application that is one, however many there are.
#[derive(Debug, Default)]
pub struct Candidates {
    places: HashMap<Place, Selecting>,
}

/// Namespace of a namespaced policy, `None` for cluster-wide ones, and the kind that a selector
/// names.
type Place = (Option<String>, Kind);

#[derive(Debug, Default)]
struct Selecting {
    by_name: HashMap<String, BTreeSet<PolicyKey>>,
    /// Policies that want labels to have certain values, by one of these labels and its value.
    by_label: HashMap<(String, String), BTreeSet<PolicyKey>>,
    /// Policies that select by labels in other ways, or everything of the kind.
    others: BTreeSet<PolicyKey>,
}

impl Selecting {
    /// Returns the policies that name a template.
    fn naming(&self, subject: Subject<'_>) -> impl Iterator<Item = &PolicyKey> + use<'_> {
        self.by_name.get(subject.name).into_iter().flatten()
    }
}

/// Name or label by which the policies of a selector are found.
enum Named<'a> {
    Name(&'a str),
    Label(&'a str, &'a str),
    Neither,
}

impl<'a> Named<'a> {
    fn by(selector: &'a ResourceSelector) -> Self {
        if let Some(name) = given(selector.name.as_deref()) {
            return Self::Name(name);
        }
        let labels = selector.label_selector.as_ref();
        let wanted = labels.and_then(|it| it.match_labels.as_ref()?.first_key_value());
        wanted.map_or(Self::Neither, |(key, value)| Self::Label(key, value))
    }
}

impl Candidates {
    /// Takes in a change of a policy: what it was and what it is.
    pub fn change(&mut self, old: Option<&Policy>, new: Option<&Policy>) {
        if let Some((old, new)) = old.zip(new)
            && old.spec().resource_selectors == new.spec().resource_selectors
        {
            return;
        }
        if let Some(old) = old {
            let key = old.key();
            for selector in &old.spec().resource_selectors {
                self.take(&key, selector);
            }
        }
        if let Some(new) = new {
            let key = new.key();
            for selector in &new.spec().resource_selectors {
                self.put(&key, selector);
            }
        }
    }

    /// Returns the policies of a namespace that could select a template, or the cluster-wide ones.
    pub fn of(&self, namespace: Option<&str>, subject: Subject<'_>) -> Vec<PolicyKey> {
        let selecting = self.selecting(namespace, subject);
        let others = selecting.into_iter().flat_map(|it| &it.others);
        let labelled = selecting.into_iter().flat_map(|it| {
            let labels = subject.labels.iter();
            labels.filter_map(|(key, value)| it.by_label.get(&(key.to_owned(), value.to_owned())))
        });
        let named = selecting.into_iter().flat_map(|it| it.naming(subject));
        let all: BTreeSet<_> = named.chain(labelled.flatten()).chain(others).collect();
        all.into_iter().cloned().collect()
    }

    /// Returns the policies of a namespace, or the cluster-wide ones, that name a template.
    fn naming(
        &self,
        namespace: Option<&str>,
        subject: Subject<'_>,
    ) -> impl Iterator<Item = &PolicyKey> {
        let selecting = self.selecting(namespace, subject);
        selecting.into_iter().flat_map(move |it| it.naming(subject))
    }

    /// Returns the policies that name a template, of its namespace and cluster-wide.
    pub fn naming_anywhere(&self, subject: Subject<'_>) -> Vec<PolicyKey> {
        let near = subject.namespace.into_iter();
        let near = near.flat_map(|it| self.naming(Some(it), subject));
        let all = near.chain(self.naming(None, subject));
        all.cloned().collect()
    }

    fn selecting(&self, namespace: Option<&str>, subject: Subject<'_>) -> Option<&Selecting> {
        let place = (namespace.map(str::to_owned), subject.kind.clone());
        self.places.get(&place)
    }

    fn put(&mut self, key: &PolicyKey, selector: &ResourceSelector) {
        let selecting = self.places.entry(place(key, selector)).or_default();
        let policies = match Named::by(selector) {
            Named::Name(name) => selecting.by_name.entry(name.to_owned()).or_default(),
            Named::Label(key, value) => {
                let label = (key.to_owned(), value.to_owned());
                selecting.by_label.entry(label).or_default()
            }
            Named::Neither => &mut selecting.others,
        };
        policies.insert(key.clone());
    }

    fn take(&mut self, key: &PolicyKey, selector: &ResourceSelector) {
        let place = place(key, selector);
        let Some(selecting) = self.places.get_mut(&place) else {
            return;
        };
        match Named::by(selector) {
            Named::Name(name) => take(&mut selecting.by_name, name, key),
            Named::Label(label, value) => {
                let label = (label.to_owned(), value.to_owned());
                take(&mut selecting.by_label, &label, key);
            }
            Named::Neither => _ = selecting.others.remove(key),
        }
        let Selecting {
            by_name,
            by_label,
            others,
        } = selecting;
        if by_name.is_empty() && by_label.is_empty() && others.is_empty() {
            self.places.remove(&place);
        }
    }
}

fn place(key: &PolicyKey, selector: &ResourceSelector) -> Place {
    let kind = Kind::new(&*selector.api_version, &*selector.kind);
    (key.namespace().map(str::to_owned), kind)
}

#[cfg(test)]
mod tests {
    use muster_shared::watch::outline::Labels;
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, selectors: &Value) -> Policy {
        let policy = json!({
            "metadata": { "name": name, "namespace": "shop" }, "spec": { "resourceSelectors": selectors },
        });
        Policy(serde_json::from_value(policy).unwrap())
    }

    fn named(name: &str) -> Value {
        json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": name }])
    }

    fn labelled(app: &str) -> Value {
        let selector = json!({"matchLabels": {"app": app, "zone": "a"}});
        json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": selector }])
    }

    fn found(candidates: &Candidates, namespace: &str, name: &str) -> Vec<String> {
        let subject = Subject {
            kind: &Kind::new("apps/v1", "Deployment"),
            namespace: Some(namespace),
            name,
            labels: Labels::Map(Some(&[("app".to_owned(), name.to_owned())].into())),
        };
        let found = candidates.of(Some(namespace), subject);
        found.iter().map(|key| key.name().to_owned()).collect()
    }

    #[test]
    fn a_template_meets_the_policies_that_name_it_or_no_name() {
        let mut candidates = Candidates::default();
        let all = json!([{ "apiVersion": "apps/v1", "kind": "Deployment" }]);
        let maps = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "web" }]);
        let before = policy("moved", &named("web"));
        let after = policy("moved", &named("db"));
        let labelled = policy("labelled", &labelled("web"));
        let others = [&policy("all", &all), &policy("maps", &maps), &labelled];
        for policy in others.into_iter().chain([&before]) {
            candidates.change(None, Some(policy));
        }
        assert_eq!(
            found(&candidates, "shop", "web"),
            ["all", "labelled", "moved"]
        );
        candidates.change(Some(&before), Some(&after));
        assert_eq!(found(&candidates, "shop", "web"), ["all", "labelled"]);
        assert_eq!(found(&candidates, "shop", "db"), ["all", "moved"]);
        assert_eq!(found(&candidates, "other", "db"), [""; 0]);
        for policy in others.into_iter().chain([&after]) {
            candidates.change(Some(policy), None);
        }
        assert!(candidates.places.is_empty());
    }

    #[test]
    fn all_templates_together_visit_as_many_policies_as_there_are() {
        let visited = |count: usize, selectors: fn(&str) -> Value| -> usize {
            let mut candidates = Candidates::default();
            for number in 0..count {
                let name = format!("app{number}");
                candidates.change(None, Some(&policy(&name, &selectors(&name))));
            }
            let visit = |number| found(&candidates, "shop", &format!("app{number}")).len();
            (0..count).map(visit).sum()
        };
        for selectors in [named, labelled] {
            let visited = [500, 1000].map(|count| visited(count, selectors));
            assert_eq!(visited, [500, 1000]);
        }
    }
}
