//! Index of dependencies, in both directions.

use std::collections::{BTreeSet, HashMap};

use muster_interpreter::Dependency;
use muster_shared::selectors::matches_labels;

use crate::fleet::binding::BindingKey;
use crate::fleet::selection::Subject;
use crate::fleet::sets::take;
use crate::fleet::template::{Kind, Template, TemplateKey};

/// Kind and namespace of the objects of which a referrer chooses some by label.
pub type Range = (Kind, String);

/// Keys that a change of the index concerns.
#[derive(Debug, Default)]
pub struct Touched {
    /// The templates that the referrer needs or needed, by name.
    pub templates: BTreeSet<TemplateKey>,
    /// The kinds and namespaces in which the referrer chooses or chose by label.
    pub ranges: BTreeSet<Range>,
    /// The kinds that it named before.
    pub kinds: BTreeSet<Kind>,
}

/// Returns the kinds of the objects that a referrer needs.
pub fn kinds_of(needs: &[Dependency]) -> BTreeSet<Kind> {
    needs
        .iter()
        .map(|need| Kind::new(&*need.api_version, &*need.kind))
        .collect()
}

/// The dependencies of each referrer that has been reconciled.
#[derive(Debug, Default)]
pub struct Index {
    needs: HashMap<BindingKey, Vec<Dependency>>,
    named: HashMap<TemplateKey, BTreeSet<BindingKey>>,
    /// Referrers that choose by label; they are few.
    choosing: BTreeSet<BindingKey>,
}

impl Index {
    /// Takes in what a referrer needs now.
    pub fn set(&mut self, referrer: &BindingKey, needs: Vec<Dependency>) -> Touched {
        let mut touched = self.forget(referrer);
        for need in &needs {
            match TemplateKey::of_dependency(need) {
                Some(template) => {
                    self.named
                        .entry(template.clone())
                        .or_default()
                        .insert(referrer.clone());
                    touched.templates.insert(template);
                }
                None => {
                    self.choosing.insert(referrer.clone());
                }
            }
        }
        self.needs.insert(referrer.clone(), needs);
        touched.ranges.extend(self.ranges(referrer));
        touched
    }

    /// Returns what a referrer needs; `None` where that is not known.
    pub fn dependencies(&self, referrer: &BindingKey) -> Option<Vec<Dependency>> {
        self.needs.get(referrer).cloned()
    }

    /// Returns the templates that a referrer names.
    pub fn needs(&self, referrer: &BindingKey) -> BTreeSet<TemplateKey> {
        let needs = self.needs.get(referrer).into_iter().flatten();
        needs.filter_map(TemplateKey::of_dependency).collect()
    }

    /// Returns the kinds and namespaces in which a referrer chooses by label.
    pub fn ranges(&self, referrer: &BindingKey) -> BTreeSet<Range> {
        let range = |choice: &Dependency| {
            let kind = Kind::new(&*choice.api_version, &*choice.kind);
            Some((kind, choice.namespace.clone()?))
        };
        self.choices(referrer).filter_map(range).collect()
    }

    /// Forgets a referrer.
    pub fn forget(&mut self, referrer: &BindingKey) -> Touched {
        let (templates, ranges) = (self.needs(referrer), self.ranges(referrer));
        self.choosing.remove(referrer);
        let needs = self.needs.remove(referrer).unwrap_or_default();
        for template in &templates {
            take(&mut self.named, template, referrer);
        }
        Touched {
            templates,
            ranges,
            kinds: kinds_of(&needs),
        }
    }

    /// Returns whether it is known what a referrer needs.
    pub fn knows(&self, referrer: &BindingKey) -> bool {
        self.needs.contains_key(referrer)
    }

    /// Returns whether anybody may refer to a template.
    pub fn concerns(&self, template: &TemplateKey) -> bool {
        let chosen = |referrer: &BindingKey| {
            self.choices(referrer)
                .any(|choice| of_kind(choice, &template.kind, template.namespace.as_deref()))
        };
        self.named.contains_key(template) || self.choosing.iter().any(chosen)
    }

    /// Returns the referrers that name a template, sorted.
    pub fn naming(&self, template: &TemplateKey) -> impl Iterator<Item = &BindingKey> {
        self.named.get(template).into_iter().flatten()
    }

    /// Returns the referrers of a template, sorted.
    pub fn referrers(&self, key: &TemplateKey, template: &Template) -> BTreeSet<BindingKey> {
        let subject = Subject {
            namespace: key.namespace.as_deref(),
            ..Subject::of(&key.kind, template)
        };
        let chosen = |referrer: &&BindingKey| self.chooses(referrer, subject);
        let named = self.named.get(key).into_iter().flatten();
        named
            .chain(self.choosing.iter().filter(chosen))
            .cloned()
            .collect()
    }

    /// Returns whether a referrer chooses a template by label.
    pub fn chooses(&self, referrer: &BindingKey, template: Subject<'_>) -> bool {
        self.choices(referrer)
            .filter(|choice| of_kind(choice, template.kind, template.namespace))
            .filter_map(|choice| choice.label_selector.as_ref())
            .any(|selector| matches_labels(selector, |key| template.labels.get(key)))
    }

    fn choices(&self, referrer: &BindingKey) -> impl Iterator<Item = &Dependency> {
        self.needs
            .get(referrer)
            .into_iter()
            .flatten()
            .filter(|need| need.name.is_none())
    }
}

/// Returns whether a choice by label is about a kind and namespace.
fn of_kind(choice: &Dependency, kind: &Kind, namespace: Option<&str>) -> bool {
    choice.api_version == kind.api_version
        && choice.kind == kind.kind
        && choice.namespace.as_deref() == namespace
}

#[cfg(test)]
mod tests {
    use muster_shared::k8s::LabelSelector;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::key as referrer;

    fn named(name: &str) -> Dependency {
        Dependency {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: Some("default".into()),
            name: Some(name.into()),
            label_selector: None,
        }
    }

    fn template(name: &str, labels: &serde_json::Value) -> (TemplateKey, Template) {
        let key = TemplateKey::of_dependency(&named(name)).unwrap();
        (
            key,
            Template::new(json!({ "metadata": { "name": name, "labels": labels } })).unwrap(),
        )
    }

    #[test]
    fn what_a_referrer_needs_no_more_is_touched_as_well() {
        let mut index = Index::default();
        index.set(&referrer("a"), vec![named("x"), named("y")]);
        let touched = index.set(&referrer("a"), vec![named("y"), named("z")]);
        let names: Vec<_> = touched
            .templates
            .iter()
            .map(|key| key.name.as_str())
            .collect();
        assert_eq!(names, ["x", "y", "z"]);
        let (key, x) = template("x", &json!({}));
        assert_eq!(index.referrers(&key, &x), BTreeSet::new());
        assert!(!index.concerns(&key));
    }

    #[test]
    fn where_a_referrer_chooses_and_chose_by_label_is_touched() {
        let choice = |namespace: &str| Dependency {
            namespace: Some(namespace.into()),
            name: None,
            label_selector: Some(LabelSelector::default()),
            ..named("")
        };
        let mut index = Index::default();
        let mut touched = |needs| {
            let ranges = index.set(&referrer("a"), needs).ranges.into_iter();
            ranges.map(|it| it.1).collect::<Vec<_>>()
        };
        assert_eq!(touched(vec![choice("old")]), ["old"]);
        assert_eq!(touched(vec![choice("new")]), ["new", "old"]);
        assert_eq!(touched(vec![named("x")]), ["new"]);
        assert_eq!(touched(vec![named("x")]), [""; 0]);
    }

    #[test]
    fn a_template_has_the_referrers_that_name_it_and_those_whose_labels_fit() {
        let mut index = Index::default();
        let labels: LabelSelector = serde_json::from_value(json!({
            "matchLabels": { "app": "web" },
            "matchExpressions": [{ "key": "old", "operator": "DoesNotExist" }],
        }))
        .unwrap();
        let choice = Dependency {
            name: None,
            label_selector: Some(labels),
            ..named("")
        };
        index.set(&referrer("chooses"), vec![choice]);
        index.set(&referrer("names"), vec![named("x")]);
        let (key, fits) = template("x", &json!({ "app": "web" }));
        assert_eq!(
            index.referrers(&key, &fits),
            BTreeSet::from([referrer("chooses"), referrer("names")])
        );
        for labels in [
            json!({ "app": "db" }),
            json!({ "app": "web", "old": "yes" }),
        ] {
            let (key, other) = template("x", &labels);
            let found = index.referrers(&key, &other);
            assert_eq!(found, BTreeSet::from([referrer("names")]), "{labels}");
        }
    }
}
