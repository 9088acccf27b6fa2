//! Checks of what a script returned.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity as Wire, apis::meta::v1::LabelSelector,
};
use mlua::Value as LuaValue;
use muster_quantity::Quantity;
use muster_shared::api::binding::{
    Component, ComponentReplicaRequirements, NodeClaim, ReplicaRequirements,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Dependency;
use crate::lua::convert::{Fault, a_type, quoted};

type Checked<T> = Result<T, Fault>;

/// Returns the first result of `GetReplicas`.
pub(crate) fn count(value: &LuaValue) -> Checked<i32> {
    #[expect(clippy::cast_precision_loss, reason = "compared with a 32-bit number")]
    let number = match value {
        LuaValue::Integer(number) => *number as f64,
        LuaValue::Number(number) => *number,
        other => return Err(wrong("replicas", "a number", a_type(other))),
    };
    if !(0.0..2_147_483_648.0).contains(&number) {
        let expected = "a number from 0 to 2147483647";
        return Err(wrong("replicas", expected, &number.to_string()));
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    Ok(number as i32)
}

/// Returns the result of `InterpretHealth`.
pub(crate) fn truth(value: &LuaValue) -> Checked<bool> {
    match value {
        LuaValue::Boolean(value) => Ok(*value),
        other => Err(wrong("result", "a boolean", a_type(other))),
    }
}

/// Checks that a result is a table, before it is read.
pub(crate) fn table<'a>(path: &str, value: &'a LuaValue) -> Checked<&'a LuaValue> {
    if value.is_table() {
        Ok(value)
    } else {
        Err(wrong(path, "a table", a_type(value)))
    }
}

/// Checks that a result is an object of the same kind as the one that the script was given, and
/// returns it.
pub(crate) fn object(value: Value, given: &Value) -> Checked<Value> {
    let at = At::root("result", &value);
    at.map()?;
    for key in ["apiVersion", "kind"] {
        let found = at.get(key).map(|one| one.text()).transpose()?;
        if found.as_deref() != given[key].as_str() {
            let found = found.map_or_else(|| "nothing".to_owned(), |text| format!("{text:?}"));
            let expected = format!("{}, as in the object that was given", given[key]);
            return Err(wrong(&format!("result.{key}"), &expected, &found));
        }
    }
    Ok(value)
}

/// Returns the status to report: any object.
pub(crate) fn status(value: Value) -> Checked<Value> {
    At::root("result", &value).map()?;
    Ok(value)
}

pub(crate) fn requirements(path: &str, value: &Value) -> Checked<ReplicaRequirements> {
    At::root(path, value).requirements()
}

pub(crate) fn components(value: &Value) -> Checked<Vec<Component>> {
    let entries = At::root("result", value).entries()?;
    let component = |at: &At<'_>| {
        at.map()?;
        let replicas = at.get("replicas").map(|one| one.whole()).transpose()?;
        let needs = at.get("replicaRequirements");
        Ok(Component {
            name: at.optional_text("name")?.unwrap_or_default(),
            replicas: replicas.unwrap_or_default(),
            replica_requirements: needs.map(|one| one.of_component()).transpose()?,
        })
    };
    entries.iter().map(component).collect()
}

/// References, each complete.
pub(crate) fn dependencies(value: &Value) -> Checked<Vec<Dependency>> {
    let entries = At::root("result", value).entries()?;
    entries.iter().map(At::dependency).collect()
}

fn wrong(path: &str, expected: &str, found: &str) -> Fault {
    Fault {
        path: path.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

/// A value and its place.
struct At<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    fn root(path: &str, value: &'a Value) -> Self {
        let path = path.to_owned();
        Self { path, value }
    }

    fn wrong(&self, expected: &str) -> Fault {
        wrong(&self.path, expected, &quoted(self.value))
    }

    fn map(&self) -> Checked<&'a Map<String, Value>> {
        self.value
            .as_object()
            .ok_or_else(|| self.wrong("an object"))
    }

    /// Returns the field, unless it is absent or null. Readers of optional texts also leave out an
    /// empty text, as Go does.
    fn get(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        let path = format!("{}.{key}", self.path);
        Some(Self { path, value })
    }

    fn entries(&self) -> Checked<Vec<Self>> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let entry = |(at, value): (usize, &'a Value)| Self {
            path: format!("{}[{at}]", self.path),
            value,
        };
        Ok((1..).zip(list).map(entry).collect())
    }

    fn text(&self) -> Checked<String> {
        let text = self.value.as_str().map(str::to_owned);
        text.ok_or_else(|| self.wrong("a text"))
    }

    fn optional_text(&self, key: &str) -> Checked<Option<String>> {
        let text = self.get(key).map(|one| one.text()).transpose()?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    fn whole(&self) -> Checked<i32> {
        let number = self.value.as_i64().and_then(|one| i32::try_from(one).ok());
        let number = number.filter(|number| *number >= 0);
        number.ok_or_else(|| self.wrong("a whole number from 0 to 2147483647"))
    }

    fn quantity(&self) -> Checked<Wire> {
        let text = match self.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(self.wrong("a quantity")),
        };
        let quantity: Result<Quantity, _> = text.parse();
        quantity
            .map(|quantity| Wire(quantity.to_string()))
            .map_err(|_| self.wrong("a quantity"))
    }

    fn typed<T: DeserializeOwned>(&self, expected: &str) -> Checked<T> {
        serde_json::from_value(self.value.clone())
            .map_err(|error| self.wrong(&format!("{expected} ({error})")))
    }

    fn requirements(&self) -> Checked<ReplicaRequirements> {
        self.map()?;
        let mut needs = ReplicaRequirements {
            namespace: self.optional_text("namespace")?,
            priority_class_name: self.optional_text("priorityClassName")?,
            ..ReplicaRequirements::default()
        };
        if let Some(request) = self.get("resourceRequest") {
            for name in request.map()?.keys() {
                if let Some(amount) = request.get(name) {
                    let amount = amount.quantity()?;
                    needs.resource_request.insert(name.clone(), amount);
                }
            }
        }
        if let Some(claim) = self.get("nodeClaim") {
            claim.map()?;
            let affinity = claim.get("hardNodeAffinity");
            let selector = claim.get("nodeSelector");
            let tolerations = claim.get("tolerations");
            let claim = NodeClaim {
                hard_node_affinity: affinity
                    .map(|one| one.typed("a node selector"))
                    .transpose()?,
                node_selector: selector
                    .map(|one| one.typed("an object of texts"))
                    .transpose()?
                    .unwrap_or_default(),
                tolerations: tolerations
                    .map(|one| one.typed("a list of tolerations"))
                    .transpose()?
                    .unwrap_or_default(),
            };
            needs.node_claim = Some(claim).filter(|claim| *claim != NodeClaim::default());
        }
        Ok(needs)
    }

    /// Returns requirements without a namespace, which is that of the workload.
    fn of_component(&self) -> Checked<ComponentReplicaRequirements> {
        let needs = self.requirements()?;
        Ok(ComponentReplicaRequirements {
            node_claim: needs.node_claim,
            resource_request: needs.resource_request,
            priority_class_name: needs.priority_class_name,
        })
    }

    fn dependency(&self) -> Checked<Dependency> {
        self.map()?;
        let required = |key: &str| {
            let found = self.optional_text(key)?;
            found.ok_or_else(|| wrong(&format!("{}.{key}", self.path), "a text", "nothing"))
        };
        let selector = self.get("labelSelector");
        let dependency = Dependency {
            api_version: required("apiVersion")?,
            kind: required("kind")?,
            namespace: self.optional_text("namespace")?,
            name: self.optional_text("name")?,
            label_selector: selector.as_ref().map(Self::selector).transpose()?,
        };
        if dependency.name.is_none() && dependency.label_selector.is_none() {
            return Err(self.wrong("a name or a labelSelector"));
        }
        Ok(dependency)
    }

    fn selector(&self) -> Checked<LabelSelector> {
        self.map()?;
        let selector: LabelSelector = self.typed("a label selector")?;
        for one in selector.match_expressions.iter().flatten() {
            let some = one.values.as_ref().is_some_and(|values| !values.is_empty());
            let is_valid = match one.operator.as_str() {
                "In" | "NotIn" => some,
                "Exists" | "DoesNotExist" => !some,
                _ => false,
            };
            if !is_valid || one.key.is_empty() {
                return Err(self.wrong("a label selector with valid expressions"));
            }
        }
        Ok(selector)
    }
}

/// Puts dependencies of several scripts together, in order and without repetitions.
pub(crate) fn united(mut all: Vec<Dependency>) -> Vec<Dependency> {
    let order = |one: &Dependency| {
        (
            one.api_version.clone(),
            one.kind.clone(),
            one.namespace.clone(),
            one.name.clone(),
        )
    };
    all.sort_by_cached_key(order);
    let mut united: Vec<Dependency> = Vec::with_capacity(all.len());
    for one in all {
        // Those with a selector and no name are side by side, in any order.
        let same = united
            .iter()
            .rev()
            .take_while(|last| order(last) == order(&one));
        if !same.into_iter().any(|last| *last == one) {
            united.push(one);
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_of_dependencies_are_checked() {
        let reference = |selector: Value| json!([{ "apiVersion": "v1", "kind": "Secret", "labelSelector": selector }]);
        for (selector, is_valid) in [
            (json!({ "matchLabels": { "app": "a" } }), true),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "Like", "values": ["b"] }] }),
                false,
            ),
            (json!({ "matchLabels": { "app": 1 } }), false),
            (json!([]), false),
        ] {
            assert_eq!(
                dependencies(&reference(selector.clone())).is_ok(),
                is_valid,
                "{selector}"
            );
        }
    }
}
