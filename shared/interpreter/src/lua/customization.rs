//! Customizations, and the rules for each kind that several of them make.

use std::collections::HashMap;

use kube::ResourceExt as _;
use muster_shared::api::interpreter::{LuaScript, ResourceInterpreterCustomization};
use serde_json::Value;

use crate::lua::{error::Source, script::Script};
use crate::operation::Operation;

/// Scripts of one `ResourceInterpreterCustomization`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Customization {
    /// Name of the object.
    pub name: String,
    /// API version of the kind that it is for.
    pub api_version: String,
    /// Kind that it is for.
    pub kind: String,
    /// Scripts by operation. An empty text is no script.
    pub scripts: Vec<(Operation, String)>,
}

impl Customization {
    /// Makes the scripts of a kind, given by its API version and name.
    pub fn new(name: &str, kind: (&str, &str), scripts: &[(Operation, &str)]) -> Self {
        let scripts = scripts.iter();
        let scripts = scripts.map(|(operation, text)| (*operation, (*text).to_owned()));
        Self {
            name: name.to_owned(),
            api_version: kind.0.to_owned(),
            kind: kind.1.to_owned(),
            scripts: scripts.collect(),
        }
    }

    /// Makes the scripts of an object of the API.
    pub fn of(object: &ResourceInterpreterCustomization) -> Self {
        let all = &object.spec.customizations;
        let of = |operation| -> &Option<LuaScript> {
            match operation {
                Operation::InterpretReplica => &all.replica_resource,
                Operation::InterpretComponent => &all.component_resource,
                Operation::ReviseReplica => &all.replica_revision,
                Operation::Retain => &all.retention,
                Operation::AggregateStatus => &all.status_aggregation,
                Operation::InterpretDependency => &all.dependency_interpretation,
                Operation::InterpretStatus => &all.status_reflection,
                Operation::InterpretHealth => &all.health_interpretation,
            }
        };
        let script = |operation| Some((operation, of(operation).as_ref()?.lua_script.clone()));
        Self {
            name: object.name_any(),
            api_version: object.spec.target.api_version.clone(),
            kind: object.spec.target.kind.clone(),
            scripts: Operation::ALL.into_iter().filter_map(script).collect(),
        }
    }

    /// Scripts that are not empty.
    pub(crate) fn present(&self) -> impl Iterator<Item = (Operation, &str)> {
        let present = self.scripts.iter().filter(|(_, text)| !text.is_empty());
        present.map(|(operation, text)| (*operation, text.as_str()))
    }

    pub(crate) fn script(&self, operation: Operation, text: &str, is_built_in: bool) -> Script {
        let at = Source {
            customization: self.name.clone(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            operation,
        };
        Script::new(at, text, is_built_in)
    }
}

/// Scripts for one kind: one for each operation, or several that find dependencies.
type OfKind = [Vec<Script>; Operation::ALL.len()];

/// Scripts for all kinds, by API version and kind.
///
/// Where several customizations are for one kind, they are taken in the order of their names: of
/// each operation the first script counts, and of `InterpretDependency` all do.
#[derive(Debug, Default)]
pub struct Rules {
    kinds: HashMap<String, HashMap<String, OfKind>>,
}

impl Rules {
    /// Makes the rules of customizations.
    pub fn new<'a>(customizations: impl IntoIterator<Item = &'a Customization>) -> Self {
        Self::made(customizations, &Self::default(), false)
    }

    /// Makes the rules of customizations of which some have changed. A script that was there before
    /// stays compiled, and stays suspended if it was.
    #[must_use]
    pub fn renewed<'a>(&self, customizations: impl IntoIterator<Item = &'a Customization>) -> Self {
        Self::made(customizations, self, false)
    }

    pub(crate) fn made<'a>(
        customizations: impl IntoIterator<Item = &'a Customization>,
        before: &Self,
        are_built_in: bool,
    ) -> Self {
        let mut sorted: Vec<&Customization> = customizations.into_iter().collect();
        sorted.sort_by(|one, other| one.name.cmp(&other.name));
        let mut rules = Self::default();
        for one in sorted {
            let kinds = rules.kinds.entry(one.api_version.clone()).or_default();
            let scripts = kinds.entry(one.kind.clone()).or_default();
            for (operation, text) in one.present() {
                let known = &mut scripts[operation.index()];
                if known.is_empty() || operation == Operation::InterpretDependency {
                    let new = one.script(operation, text, are_built_in);
                    let old = before.scripts(&one.api_version, &one.kind, operation);
                    let old = old.iter().find(|old| old.is_like(&new));
                    known.push(old.cloned().unwrap_or(new));
                }
            }
        }
        rules
    }

    /// Returns whether there is a script for an operation on a kind.
    pub fn has(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        !self.scripts(api_version, kind, operation).is_empty()
    }

    /// Returns the kinds with a script, as API version and kind, in order.
    pub fn kinds(&self) -> Vec<(&str, &str)> {
        let kinds = self.kinds.iter().flat_map(|(api_version, kinds)| {
            kinds
                .keys()
                .map(|kind| (api_version.as_str(), kind.as_str()))
        });
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_unstable();
        kinds
    }

    /// Returns whether the scripts for a kind are the same in `other`.
    pub fn is_same_for(&self, other: &Self, api_version: &str, kind: &str) -> bool {
        Operation::ALL.into_iter().all(|operation| {
            let ids = |rules: &Self| -> Vec<u64> {
                let scripts = rules.scripts(api_version, kind, operation);
                scripts.iter().map(Script::id).collect()
            };
            ids(self) == ids(other)
        })
    }

    /// Returns the kinds whose scripts are not the same in `other`, as API version and kind, in
    /// order.
    pub fn differences(&self, other: &Self) -> Vec<(String, String)> {
        let mut kinds = self.kinds();
        kinds.extend(other.kinds());
        kinds.sort_unstable();
        kinds.dedup();
        kinds.retain(|(api_version, kind)| !self.is_same_for(other, api_version, kind));
        let owned = |(api_version, kind): (&str, &str)| (api_version.to_owned(), kind.to_owned());
        kinds.into_iter().map(owned).collect()
    }

    pub(crate) fn scripts(&self, api_version: &str, kind: &str, operation: Operation) -> &[Script] {
        let scripts = self.kinds.get(api_version).and_then(|one| one.get(kind));
        scripts.map_or(&[], |scripts| &scripts[operation.index()])
    }

    /// Returns the scripts for an object.
    pub(crate) fn of(&self, object: &Value, operation: Operation) -> &[Script] {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        self.scripts(text("apiVersion"), text("kind"), operation)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn customization(name: &str, scripts: &[(Operation, &str)]) -> Customization {
        Customization::new(name, ("example.com/v1", "Widget"), scripts)
    }

    fn texts(rules: &Rules, operation: Operation) -> Vec<&str> {
        let scripts = rules.scripts("example.com/v1", "Widget", operation);
        scripts.iter().map(Script::text).collect()
    }

    #[test]
    fn of_several_customizations_the_first_by_name_counts() {
        use Operation::{InterpretDependency, InterpretHealth, Retain};
        let rules = Rules::new(&[
            customization("c", &[(InterpretHealth, "c"), (Retain, "c")]),
            customization("b", &[(InterpretHealth, "b"), (InterpretDependency, "b")]),
            customization("a", &[(InterpretHealth, ""), (InterpretDependency, "a")]),
        ]);
        assert_eq!(texts(&rules, InterpretHealth), ["b"]);
        assert_eq!(texts(&rules, Retain), ["c"]);
        assert_eq!(texts(&rules, InterpretDependency), ["a", "b"]);
        assert!(!rules.has("example.com/v1", "Widget", Operation::ReviseReplica));
        assert!(!rules.has("example.com/v2", "Widget", Retain));
        assert_eq!(rules.kinds(), [("example.com/v1", "Widget")]);
    }

    #[test]
    fn scripts_that_have_not_changed_are_kept() {
        use Operation::{InterpretHealth, Retain};
        let before = Rules::new(&[customization("a", &[(InterpretHealth, "h"), (Retain, "r")])]);
        let after = [customization(
            "a",
            &[(InterpretHealth, "h"), (Retain, "changed")],
        )];
        let after = before.renewed(&after);
        let id =
            |rules: &Rules, operation| rules.scripts("example.com/v1", "Widget", operation)[0].id();
        assert_eq!(id(&before, InterpretHealth), id(&after, InterpretHealth));
        assert_ne!(id(&before, Retain), id(&after, Retain));
        let widget = [("example.com/v1".to_owned(), "Widget".to_owned())];
        assert_eq!(before.differences(&after), widget);
        assert_eq!(before.differences(&Rules::default()), widget);
        assert_eq!(Rules::default().differences(&before), widget);
        let same = [customization("a", &[(InterpretHealth, "h"), (Retain, "r")])];
        assert_eq!(before.differences(&before.renewed(&same)), []);
        let renamed = before.renewed(&[customization("b", &[(InterpretHealth, "h")])]);
        assert_ne!(id(&before, InterpretHealth), id(&renamed, InterpretHealth));
    }

    #[test]
    fn every_script_of_an_object_of_the_api_is_read() {
        let field = |operation: Operation| {
            let script = json!({ "luaScript": operation.to_string() });
            (operation.field().to_owned(), script)
        };
        let all: serde_json::Map<_, _> = Operation::ALL.into_iter().map(field).collect();
        let object = json!({ "metadata": { "name": "widgets" }, "spec": {
            "target": { "apiVersion": "example.com/v1", "kind": "Widget" }, "customizations": all } });
        let texts = Operation::ALL.map(|operation| (operation, operation.to_string()));
        let texts: Vec<(Operation, &str)> = texts
            .iter()
            .map(|(operation, text)| (*operation, text.as_str()))
            .collect();
        let object = serde_json::from_value(object).unwrap();
        assert_eq!(Customization::of(&object), customization("widgets", &texts));
    }
}
