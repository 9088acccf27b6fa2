//! Validating admission policies: expressions that are evaluated here, in the place of a webhook.
//!
//! As in kube-apiserver a policy counts through its bindings only, an expression that goes wrong
//! refuses the request, and nobody is kept from repairing a policy. Parameters, the authorizer, the
//! object of the namespace, selectors, computed messages, failures that are ignored and bindings
//! that only warn are left out: a policy that uses them is refused when it is written.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

use super::matching::{self, Condition, Rule};
use super::review::{self, Attributes};
use crate::schema::cel::{Expr, Failure, Names, Scope};
use crate::store::{Collection, Store};

/// The policies of a server, parsed as of two versions: of the policies and of their bindings.
#[derive(Debug)]
pub struct Policies {
    definitions: Arc<Collection>,
    bindings: Arc<Collection>,
    parsed: RwLock<Parsed>,
}

/// Versions of the policies and of their bindings, and what was read of them.
type Parsed = ((u64, u64), Arc<[Bound]>);

/// A policy with one of its bindings.
#[derive(Debug)]
pub struct Bound {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Name of the binding.
    pub binding: String,
}

/// A policy.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub rules: Vec<Rule>,
    conditions: Vec<Condition>,
    validations: Vec<Validation>,
}

#[derive(Debug)]
struct Validation {
    source: String,
    expression: Expr,
    message: String,
    reason: String,
}

/// What an expression says that does not hold: reason and message.
pub type Denial = (String, String);

impl Policies {
    /// Returns the policies in the store.
    pub fn new(store: &Store) -> Self {
        let collection =
            |plural: &str| store.collection(&format!("admissionregistration.k8s.io/{plural}"));
        Self {
            definitions: collection("validatingadmissionpolicies"),
            bindings: collection("validatingadmissionpolicybindings"),
            parsed: RwLock::new(((0, 0), Arc::new([]))),
        }
    }

    /// Returns all bindings with their policies, as of now; `None` where there are none.
    pub fn bound(&self) -> Option<Arc<[Bound]>> {
        let latest = (
            self.definitions.latest_version(),
            self.bindings.latest_version(),
        );
        if latest.0 == 0 || latest.1 == 0 {
            return None;
        }
        let parsed = self.parsed.read();
        let (version, mut bound) = (parsed.0, Arc::clone(&parsed.1));
        drop(parsed);
        if version != latest {
            bound = self.read();
            let mut parsed = self.parsed.write();
            *parsed = (latest, Arc::clone(&bound));
        }
        (!bound.is_empty()).then_some(bound)
    }

    fn read(&self) -> Arc<[Bound]> {
        let definitions = self.definitions.present("");
        let policies: HashMap<String, Arc<Policy>> = definitions
            .iter()
            .filter_map(|object| Policy::read(&object.value()))
            .map(|policy| (policy.name.clone(), Arc::new(policy)))
            .collect();
        let bindings = self.bindings.present("");
        let bound = bindings.iter().filter_map(|object| {
            let object = object.value();
            Some(Bound {
                policy: Arc::clone(policies.get(object["spec"]["policyName"].as_str()?)?),
                binding: object["metadata"]["name"].as_str()?.to_owned(),
            })
        });
        bound.collect()
    }

    /// Returns whether no policy counts.
    pub fn is_empty(&self) -> bool {
        self.bound().is_none()
    }
}

impl Policy {
    /// Reads a policy that was checked when it was written.
    fn read(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let names = Names::of_policy(spec).ok()?;
        let compile = |source: &Value| names.compile(source.as_str().unwrap_or_default()).ok();
        let validations = list(&spec["validations"]);
        let validations = validations.iter().map(|validation| {
            Some(Validation {
                source: text(&validation["expression"]),
                expression: compile(&validation["expression"])?,
                message: text(&validation["message"]),
                reason: match validation["reason"].as_str() {
                    Some(reason) => reason.to_owned(),
                    None => "Invalid".to_owned(),
                },
            })
        });
        let conditions = list(&spec["matchConditions"]);
        Some(Self {
            name: object["metadata"]["name"].as_str()?.to_owned(),
            rules: matching::rules(&spec["matchConstraints"]["resourceRules"]),
            conditions: conditions.iter().map(Condition::read).collect(),
            validations: validations.collect::<Option<_>>()?,
        })
    }

    /// Returns why a request is denied, if it is.
    pub fn denial(&self, attributes: &Attributes<'_>) -> Option<Denial> {
        let mut request = review::request(attributes, "");
        // The objects are variables of their own.
        let mut take = |field: &str| request[field].take();
        let (object, old) = (take("object"), take("oldObject"));
        if let Some(fields) = request.as_object_mut() {
            for field in ["object", "oldObject", "uid"] {
                fields.remove(field);
            }
        }
        let failed = |message: String| Some(("Invalid".to_owned(), message));
        let scope = Scope::new([
            ("object", &object),
            ("oldObject", &old),
            ("request", &request),
        ]);
        match matching::met(&self.conditions, &scope) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => return failed(why),
        }
        self.validations.iter().find_map(|validation| {
            let source = &validation.source;
            match scope.holds(&validation.expression) {
                Ok(true) => None,
                Ok(false) => Some((validation.reason.clone(), validation.message())),
                Err(Failure::Wrong(error)) => {
                    failed(format!("expression '{source}' resulted in error: {error}"))
                }
                Err(Failure::Unsupported) => failed(format!(
                    "expression '{source}' uses what this API does not implement"
                )),
            }
        })
    }
}

impl Validation {
    fn message(&self) -> String {
        if self.message.is_empty() {
            format!("failed expression: {}", self.source)
        } else {
            self.message.clone()
        }
    }
}
