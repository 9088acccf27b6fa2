//! Answers an `AdmissionReview`. Every request is answered: one that is not understood is rejected
//! with the reason.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use json_patch::diff;
use muster_interpreter::lua::Customization;
use muster_interpreter::without_blocking_others;
use muster_shared::api::scope::ResourceScope as Scope;
use muster_shared::k8s::ObjectMeta;
use muster_shared::names::annotation::{ORDERED_BY, PAUSED};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::problem::Findings;
use super::{
    binding, cluster, customization, data_replication, failback, fencing, interpreter_webhook,
    override_policy, policy, taint_policy,
};
use crate::fleet::attribution::{self, OrderInForce};
use crate::fleet::pause::Pause;
use crate::settings::{CUSTOMIZED_CLUSTER_RESOURCE_MODELING, Settings};

/// Kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Changes to the object before it is written.
    Default,
    /// Validation of the object.
    Check,
}

/// The kinds that we know. Their names go into metrics.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Policy(Scope),
    OverridePolicy,
    TaintPolicy,
    Binding(Scope),
    Cluster,
    Customization,
    InterpreterWebhook,
}

impl Kind {
    fn of(group: &str, kind: &str) -> Option<Self> {
        Some(match (group, kind) {
            ("policy.karmada.io", "PropagationPolicy") => Self::Policy(Scope::Namespaced),
            ("policy.karmada.io", "ClusterPropagationPolicy") => Self::Policy(Scope::Cluster),
            ("policy.karmada.io", "OverridePolicy" | "ClusterOverridePolicy") => {
                Self::OverridePolicy
            }
            ("policy.karmada.io", "ClusterTaintPolicy") => Self::TaintPolicy,
            ("work.karmada.io", "ResourceBinding") => Self::Binding(Scope::Namespaced),
            ("work.karmada.io", "ClusterResourceBinding") => Self::Binding(Scope::Cluster),
            ("cluster.karmada.io", "Cluster") => Self::Cluster,
            ("config.karmada.io", "ResourceInterpreterCustomization") => Self::Customization,
            ("config.karmada.io", "ResourceInterpreterWebhookConfiguration") => {
                Self::InterpreterWebhook
            }
            _ => return None,
        })
    }
}

/// A review, read as leniently as can be: whoever sends it is the API server, and what it sends is
/// somebody else's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: GroupKind,
    operation: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupKind {
    group: String,
    kind: String,
}

/// An answer, with what is counted of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The review to send back.
    pub review: Value,
    /// Kind of the object, `other` for one that we do not know.
    pub kind: String,
    /// `CREATE`, `UPDATE`, or `other`.
    pub operation: &'static str,
    /// Whether the object may be written.
    pub allowed: bool,
}

/// Answers a review at `now`. `customizations` returns those that exist, `advise` the warnings
/// about a policy.
///
/// # Errors
/// With the reason when a body is not a review. The API server treats the answer as a failure of
/// the webhook and follows its `failurePolicy`.
pub fn answer(
    question: Question,
    body: &[u8],
    settings: &Settings,
    now: Timestamp,
    customizations: &dyn Fn() -> Vec<Customization>,
    advise: &dyn Fn(&policy::Policy) -> Vec<String>,
) -> Result<Answer, String> {
    let review: Review = serde_json::from_slice(body)
        .map_err(|error| format!("cannot read the AdmissionReview: {error}"))?;
    let version = review.api_version;
    if version != "admission.k8s.io/v1" {
        return Err(format!(
            "cannot answer an AdmissionReview of {version:?}: send admission.k8s.io/v1"
        ));
    }
    let request = review.request;
    let kind = Kind::of(&request.kind.group, &request.kind.kind);
    let operation = match request.operation.as_str() {
        "CREATE" => "CREATE",
        "UPDATE" => "UPDATE",
        _ => "other",
    };
    let mut response = json!({ "uid": request.uid, "allowed": true });
    if let Some(kind) = kind.filter(|_| operation != "other") {
        match question {
            Question::Default => {
                let mut object = request.object.clone();
                default(kind, &mut object, &request, settings, now);
                let changes = diff(&request.object, &object);
                if !changes.is_empty() {
                    response["patch"] = json!(STANDARD.encode(json!(changes).to_string()));
                    response["patchType"] = json!("JSONPatch");
                }
            }
            Question::Check => {
                let found = check(kind, &request, settings, customizations, advise);
                if let Some(message) = found.refusal() {
                    response["allowed"] = json!(false);
                    // As Karmada's webhooks refuse.
                    response["status"] =
                        json!({ "code": 403, "reason": "Forbidden", "message": message });
                }
                if !found.warnings.is_empty() {
                    response["warnings"] = json!(found.warnings);
                }
            }
        }
    }
    Ok(Answer {
        allowed: response["allowed"] == json!(true),
        review: json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }),
        kind: kind.map_or_else(|| "other".to_owned(), |_| request.kind.kind),
        operation,
    })
}

/// Returns what was there before; `None` for a new object, and for one that cannot be read.
fn before<T: DeserializeOwned>(request: &Request) -> Option<T> {
    Some(&request.old_object)
        .filter(|old| !old.is_null())
        .and_then(|old| T::deserialize(old).ok())
}

fn default(kind: Kind, object: &mut Value, request: &Request, settings: &Settings, now: Timestamp) {
    // An object that goes away is left as it is.
    if !object.is_object() || !object["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let is_new = request.old_object.is_null();
    // Unique by what the API server promises of it; a webhook needs no randomness of its own.
    let new_id = request.uid.as_str();
    match kind {
        Kind::Policy(scope) => {
            let old = before(request);
            if is_new || old.is_some() {
                policy::default(object, old.as_ref(), scope, new_id);
            }
        }
        Kind::OverridePolicy => override_policy::default(object),
        Kind::Binding(scope) if is_new => {
            binding::default(object, scope.binding_id_label(), new_id);
        }
        Kind::Cluster => {
            let old = before(request);
            if is_new || old.is_some() {
                let has_models = settings.gate(&CUSTOMIZED_CLUSTER_RESOURCE_MODELING);
                cluster::default(object, old.as_ref(), has_models, now);
            }
            if let Some(pause) = paused_by(object, request, now) {
                object["metadata"]["annotations"][PAUSED] = json!(pause);
            }
        }
        Kind::TaintPolicy | Kind::Binding(_) | Kind::Customization | Kind::InterpreterWebhook => {}
    }
    let annotation = match kind {
        Kind::Policy(_) => attributed(object, request, now, |it: &policy::Policy| {
            (&it.metadata, attribution::of_policy(&it.spec))
        }),
        Kind::Cluster => attributed(object, request, now, |it: &cluster::Cluster| {
            let orders = attribution::of_cluster(&it.metadata, &it.spec.taints, now);
            (&it.metadata, orders)
        }),
        _ => None,
    };
    if let Some(annotation) = annotation {
        object["metadata"]["annotations"][ORDERED_BY] = json!(annotation);
    }
}

/// Returns the annotation of a pause that a write brings, in the name of whoever writes; `None` if
/// it names them.
fn paused_by(object: &Value, request: &Request, now: Timestamp) -> Option<String> {
    let (user, path) = (&request.user_info.username, "/metadata/annotations");
    let said = |it: &Value| it.pointer(path).map(|all| all[PAUSED].clone());
    if user.is_empty() || said(object) == said(&request.old_object) {
        return None;
    }
    let new = cluster::Cluster::deserialize(object).ok()?;
    let old = before::<cluster::Cluster>(request).unwrap_or_default();
    Pause::attributed(&new.metadata, &old.metadata, user, now)
}

/// Returns the annotation that says who gives the orders that a write brings; `None` if it is
/// there. `orders` returns those that are in force.
fn attributed<T: DeserializeOwned + Default, const N: usize>(
    object: &Value,
    request: &Request,
    now: Timestamp,
    orders: impl Fn(&T) -> (&ObjectMeta, [OrderInForce; N]),
) -> Option<String> {
    let new = T::deserialize(object).ok()?;
    let old = if request.old_object.is_null() {
        T::default()
    } else {
        before(request)?
    };
    let ((new, after), (old, before)) = (orders(&new), orders(&old));
    attribution::attribute(new, old, (before, after), &request.user_info.username, now)
}

fn check(
    kind: Kind,
    request: &Request,
    settings: &Settings,
    customizations: &dyn Fn() -> Vec<Customization>,
    advise: &dyn Fn(&policy::Policy) -> Vec<String>,
) -> Findings {
    match kind {
        Kind::Policy(scope) => {
            let rule = |it: &policy::Policy| {
                let mut found = policy::check(it, scope);
                fencing::check(&it.spec, *settings.cluster_monitor_grace_period, &mut found);
                failback::check(&it.spec, &mut found);
                data_replication::check(&it.spec, &mut found);
                found
            };
            let mut found = new_findings(request, rule);
            if let Ok(new) = policy::Policy::deserialize(&request.object) {
                if let Some(old) = before(request) {
                    let frozen = policy::check_change(&old, &new, scope);
                    found.problems.extend(frozen.problems);
                }
                if new.metadata.deletion_timestamp.is_none() {
                    found.warnings.extend(advise(&new));
                }
            }
            found
        }
        Kind::OverridePolicy => new_findings(request, override_policy::check),
        Kind::TaintPolicy => new_findings(request, |it| {
            let allow_no_execute = settings.allow_no_execute_taint_policy;
            taint_policy::check(it, allow_no_execute, settings.condition_taints)
        }),
        Kind::Binding(_) => new_findings(request, binding::check),
        Kind::Cluster => new_findings(request, cluster::check),
        Kind::InterpreterWebhook => new_findings(request, interpreter_webhook::check),
        Kind::Customization => {
            let others = customizations();
            // Each script is run, which may take as long as the limits allow.
            without_blocking_others(|| {
                new_findings(request, |it| customization::check(it, &others))
            })
        }
    }
}

/// Returns what is wrong with an object that was not wrong with it before.
fn new_findings<T: DeserializeOwned>(
    request: &Request,
    check: impl Fn(&T) -> Findings,
) -> Findings {
    let judge = |object: &Value| match T::deserialize(object) {
        Ok(object) => check(&object),
        Err(error) => {
            let mut found = Findings::default();
            let detail = format!("the control plane cannot read it: {error}");
            found.forbidden(&request.kind.kind, &detail);
            found
        }
    };
    let found = judge(&request.object);
    if request.old_object.is_null() || found.problems.is_empty() {
        return found;
    }
    found.since(&judge(&request.old_object))
}

#[cfg(test)]
mod tests;
