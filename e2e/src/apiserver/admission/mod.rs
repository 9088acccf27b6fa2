//! Admission webhooks: which are asked about a write, in what order, and what becomes of their answers.
//!
//! The course is that of kube-apiserver: the mutating ones one after another on the way in, a second round for those
//! that want one, then, when the object is complete and valid, the validating ones all at once.

mod client;
mod hooks;
mod matching;
mod review;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::future::join_all;
use serde_json::{Value, json};

use super::refusal::{GroupName, Refusal};
use super::store::{Collection, Store};
use super::verbs::{Call, DeleteOptions, is_dry_run};
use super::{clock, patch, prepare};
use client::Service;
use hooks::Hook;
use matching::{Asked, Resource};
pub use review::user_info;
use review::{Attributes, Invocation, Verdict};

/// What is to be done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Make it.
    Create,
    /// Change it.
    Update,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
        }
    }
}

/// The webhooks of a server.
#[derive(Debug)]
pub struct Admission {
    mutating: Configurations,
    validating: Configurations,
    services: Mutex<HashMap<String, SocketAddr>>,
}

/// Configurations of one kind, parsed as of a version.
#[derive(Debug)]
struct Configurations {
    collection: Arc<Collection>,
    parsed: RwLock<(u64, Arc<[Hook]>)>,
}

impl Configurations {
    fn new(store: &Store, plural: &str) -> Self {
        Self {
            collection: store.collection(&format!("admissionregistration.k8s.io/{plural}")),
            parsed: RwLock::new((0, Arc::new([]))),
        }
    }

    /// The webhooks as of now. Where there never was a configuration, that is all there is to find out.
    fn hooks(&self) -> Option<Arc<[Hook]>> {
        let latest = self.collection.latest_version();
        if latest == 0 {
            return None;
        }
        let parsed = self.parsed.read().unwrap_or_else(PoisonError::into_inner);
        let (version, mut hooks) = (parsed.0, Arc::clone(&parsed.1));
        drop(parsed);
        if version != latest {
            hooks = hooks::read(&self.collection);
            let mut parsed = self.parsed.write().unwrap_or_else(PoisonError::into_inner);
            *parsed = (latest, Arc::clone(&hooks));
        }
        (!hooks.is_empty()).then_some(hooks)
    }
}

impl Admission {
    /// Webhooks whose configurations are in the store; `services` (`namespace/name`) are found at these addresses.
    pub fn new(store: &Store, services: HashMap<String, SocketAddr>) -> Self {
        Self {
            mutating: Configurations::new(store, "mutatingwebhookconfigurations"),
            validating: Configurations::new(store, "validatingwebhookconfigurations"),
            services: Mutex::new(services),
        }
    }

    /// Lets a service be found at an address.
    pub fn route(&self, service: String, address: SocketAddr) {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(service, address);
    }
}

/// An object of a write, with what it is if it isn't of the kind of the resource (`pods/binding`).
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// What is done to it.
    pub operation: Operation,
    /// The object before.
    pub old: Option<&'a Value>,
}

/// Asks the mutating webhooks, and makes of the object what they want; tells whether they wanted anything.
pub async fn mutate(
    call: &Call<'_>,
    written: Written<'_>,
    object: &mut Value,
) -> Result<bool, Refusal> {
    let Some(hooks) = call.server.admission.mutating.hooks() else {
        return Ok(false);
    };
    let mut attributes = attributes(call, written, object);
    if matching::is_exempt(&attributes.resource) {
        return Ok(false);
    }
    mutate_all(call, &hooks, &mut attributes).await?;
    let Some(mut new) = attributes.object.filter(|new| new != object) else {
        return Ok(false);
    };
    keep_owners(call, &object["metadata"]["managedFields"], &mut new);
    *object = new;
    Ok(true)
}

/// Asks all webhooks about something that is answered or carried out at once: reviews, bindings, evictions.
pub async fn answerable(call: &Call<'_>, object: &mut Value) -> Result<(), Refusal> {
    let written = Written {
        operation: Operation::Create,
        old: None,
    };
    mutate(call, written, object).await?;
    validate(call, written, object).await
}

/// What a webhook writes into the managed fields counts only if it makes sense.
fn keep_owners(call: &Call<'_>, before: &Value, object: &mut Value) {
    let now = &object["metadata"]["managedFields"];
    if now == before || super::apply::is_readable(object) {
        return;
    }
    let what = "metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests";
    call.warn(what);
    object["metadata"]["managedFields"] = before.clone();
}

/// Asks the validating webhooks about an object that is ready to be stored.
pub async fn validate(
    call: &Call<'_>,
    written: Written<'_>,
    object: &Value,
) -> Result<(), Refusal> {
    let Some(hooks) = call.server.admission.validating.hooks() else {
        return Ok(());
    };
    let mut attributes = attributes(call, written, object);
    if attributes.name.is_empty() {
        // It may have been generated meanwhile.
        attributes.name = super::metadata::text(object, "name").to_owned();
    }
    validate_all(call, &hooks, &attributes).await
}

/// Asks everybody about a deletion.
pub async fn delete(call: &Call<'_>, old: &Value, options: &DeleteOptions) -> Result<(), Refusal> {
    let admission = &call.server.admission;
    let (mutating, validating) = (admission.mutating.hooks(), admission.validating.hooks());
    if mutating.is_none() && validating.is_none() {
        return Ok(());
    }
    let mut attributes = Attributes {
        operation: "DELETE",
        name: call.path.name.to_string(),
        object: None,
        old: Some(old.clone()),
        options: options.tree(),
        dry_run: options.dry_run,
        ..of(call, super::metadata::text(old, "namespace"))
    };
    if let Some(hooks) = mutating
        && !matching::is_exempt(&attributes.resource)
    {
        mutate_all(call, &hooks, &mut attributes).await?;
    }
    match validating {
        Some(hooks) => validate_all(call, &hooks, &attributes).await,
        None => Ok(()),
    }
}

fn attributes<'a>(call: &'a Call<'_>, written: Written<'_>, object: &Value) -> Attributes<'a> {
    let name = match call.path.name.as_ref() {
        "" => super::metadata::text(object, "name"),
        name => name,
    };
    let base = of(call, &call.path.namespace);
    let namespace = if matching::is_namespaces(&base.resource) {
        name.to_owned()
    } else {
        base.namespace.clone()
    };
    Attributes {
        operation: written.operation.name(),
        name: name.to_owned(),
        namespace,
        object: Some(object.clone()),
        old: written.old.cloned(),
        options: options(call, written.operation.options()),
        dry_run: is_dry_run(call),
        ..base
    }
}

/// What is the same for all operations.
fn of<'a>(call: &'a Call<'_>, namespace: &str) -> Attributes<'a> {
    let served = &call.served;
    let resource = Resource {
        group: served.resource.group.clone(),
        version: served.version().name.clone(),
        plural: served.resource.plural.clone(),
    };
    let subresource = call.path.subresource.as_ref();
    let kind = match served.version().subresource(subresource) {
        Some(s) if !s.speaks.2.is_empty() => {
            let (group, version, kind) = &s.speaks;
            let version = if group.is_empty() {
                version.clone()
            } else {
                format!("{group}/{version}")
            };
            (version, kind.clone())
        }
        _ => (served.api_version(), served.resource.kind.clone()),
    };
    let namespace = if matching::is_namespaces(&resource) {
        &call.path.name
    } else {
        namespace
    };
    Attributes {
        operation: "",
        kind,
        resource,
        subresource,
        name: String::new(),
        namespace: namespace.to_owned(),
        object: None,
        old: None,
        options: Value::Null,
        dry_run: false,
        user: call.user,
    }
}

fn options(call: &Call<'_>, kind: &str) -> Value {
    let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(value) = call.query.get(field) {
            options[field] = value.into();
        }
    }
    if is_dry_run(call) {
        options["dryRun"] = json!(["All"]);
    }
    options
}

async fn mutate_all(
    call: &Call<'_>,
    hooks: &[Hook],
    attributes: &mut Attributes<'_>,
) -> Result<(), Refusal> {
    // Those that want to be asked again, and have been asked before something else changed.
    let mut again: HashSet<usize> = HashSet::new();
    let mut asked: HashSet<usize> = HashSet::new();
    let mut changed_any = false;
    for round in 0..2 {
        if round == 1 {
            if !changed_any {
                return Ok(());
            }
            // The server's own plugins come first, in the second round as well.
            if let Some(object) = attributes.object.as_mut()
                && attributes.operation == "CREATE"
            {
                let before = object.clone();
                prepare::admit(call, object);
                if *object != before {
                    again.extend(asked.drain());
                }
            }
        }
        for (index, hook) in hooks.iter().enumerate() {
            let Some(invocation) = invocation(call, hook, attributes)? else {
                continue;
            };
            if round == 1 && !again.contains(&index) {
                continue;
            }
            let verdict = ask(call, hook, &invocation, attributes, true).await;
            let changed = match verdict {
                Ok(verdict) => {
                    verdict.warnings.into_iter().for_each(|w| call.warn(w));
                    if let Some(refusal) = verdict.refusal {
                        return Err(refusal);
                    }
                    match lay_over(call, hook, attributes, &verdict.patch) {
                        Ok(changed) => changed,
                        Err(Trouble::Calling(_)) if hook.ignore_failure => false,
                        Err(trouble) => return Err(trouble.refusal(hook)),
                    }
                }
                Err(_) if hook.ignore_failure => false,
                Err(trouble) => return Err(trouble.refusal(hook)),
            };
            if changed {
                changed_any = true;
                again.extend(asked.drain());
            }
            if hook.reinvoke {
                asked.insert(index);
            }
        }
    }
    Ok(())
}

async fn validate_all(
    call: &Call<'_>,
    hooks: &[Hook],
    attributes: &Attributes<'_>,
) -> Result<(), Refusal> {
    if matching::is_exempt(&attributes.resource) {
        return Ok(());
    }
    let mut calls = Vec::new();
    for hook in hooks {
        if let Some(invocation) = invocation(call, hook, attributes)? {
            calls
                .push(async move { (hook, ask(call, hook, &invocation, attributes, false).await) });
        }
    }
    let mut refused = None;
    for (hook, verdict) in join_all(calls).await {
        let refusal = match verdict {
            Ok(verdict) => {
                verdict.warnings.into_iter().for_each(|w| call.warn(w));
                verdict.refusal
            }
            Err(_) if hook.ignore_failure => None,
            Err(trouble) => Some(trouble.refusal(hook)),
        };
        refused = refused.or(refusal);
    }
    refused.map_or(Ok(()), Err)
}

/// Whether a webhook is asked, and about which version of the object.
fn invocation(
    call: &Call<'_>,
    hook: &Hook,
    attributes: &Attributes<'_>,
) -> Result<Option<Invocation>, Refusal> {
    let labels = namespace_labels(call, hook, attributes);
    let (object, old) = (attributes.object.as_ref(), attributes.old.as_ref());
    if matches!(labels, Ok(false)) || !hook.objects.selects_any([object, old]) {
        return Ok(None);
    }
    let covers = |resource: &Resource| {
        let asked = Asked {
            operation: attributes.operation,
            resource,
            subresource: attributes.subresource,
            namespace: &attributes.namespace,
        };
        hook.rules.iter().any(|r| r.covers(asked))
    };
    let served = &call.served;
    let own = covers(&attributes.resource).then(|| Invocation {
        resource: attributes.resource.clone(),
        kind: attributes.kind.clone(),
    });
    let found = own.or_else(|| {
        let others = served.resource.versions.iter().filter(|_| hook.equivalent);
        others.into_iter().find_map(|version| {
            let resource = Resource {
                version: version.name.clone(),
                ..attributes.resource.clone()
            };
            let kind = if attributes.subresource == "scale" {
                attributes.kind.clone()
            } else {
                let api_version = served.resource.api_version(&version.name);
                (api_version, served.resource.kind.clone())
            };
            covers(&resource).then_some(Invocation { resource, kind })
        })
    });
    let Some(invocation) = found else {
        return Ok(None);
    };
    labels?;
    if hook.conditions.is_empty() {
        return Ok(Some(invocation));
    }
    let request = review::request(attributes, &invocation, "");
    match matching::met(&hook.conditions, &request, object, old) {
        Ok(true) => Ok(Some(invocation)),
        Ok(false) => Ok(None),
        Err(_) if hook.ignore_failure => Ok(None),
        Err(why) => {
            let resource = GroupName {
                group: &attributes.resource.group,
                name: &attributes.resource.plural,
            };
            Err(Refusal::forbidden(resource, &attributes.name, &why))
        }
    }
}

/// Whether the namespace of a request is one that the webhook wants; an error if it isn't there.
fn namespace_labels(
    call: &Call<'_>,
    hook: &Hook,
    attributes: &Attributes<'_>,
) -> Result<bool, Refusal> {
    if hook.namespaces.is_empty() || attributes.namespace.is_empty() {
        return Ok(true);
    }
    let own = matching::is_namespaces(&attributes.resource) && attributes.subresource.is_empty();
    let labels = match &attributes.object {
        Some(namespace) if own => namespace["metadata"]["labels"].clone(),
        _ => {
            let found = call.server.store.collection("/namespaces");
            let Some(found) = found.get(&attributes.namespace) else {
                let resource = GroupName {
                    group: "",
                    name: "namespaces",
                };
                return Err(Refusal::not_found(resource, &attributes.namespace));
            };
            let labels = found.head.labels.iter();
            labels
                .map(|(k, v)| (k.to_string(), Value::from(&**v)))
                .collect()
        }
    };
    let none = serde_json::Map::new();
    Ok(hook.namespaces.selects(labels.as_object().unwrap_or(&none)))
}

/// What came between us and a verdict.
enum Trouble {
    /// The webhook could not be asked, or answered nonsense: its failure policy says what then.
    Calling(String),
    /// Its patch can't be carried out.
    Internal(String),
}

impl Trouble {
    fn refusal(self, hook: &Hook) -> Refusal {
        match self {
            Self::Calling(why) => {
                Refusal::internal(format!("failed calling webhook {:?}: {why}", hook.name))
            }
            Self::Internal(why) => Refusal::internal(why),
        }
    }
}

async fn ask(
    call: &Call<'_>,
    hook: &Hook,
    invocation: &Invocation,
    attributes: &Attributes<'_>,
    mutates: bool,
) -> Result<Verdict, Trouble> {
    if attributes.dry_run && !hook.rehearses {
        let why = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Trouble::Calling(why));
    }
    let uid = clock::uid();
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("admission.k8s.io/{}", hook.version),
        "request": review::request(attributes, invocation, &uid),
    });
    let seconds = hook.timeout.as_secs();
    let posted = async {
        let address = match &hook.endpoint.service {
            Some(service) => Some(
                resolve(call, service)
                    .map_err(|why| format!("Post {:?}: {why}", hook.endpoint.url(seconds)))?,
            ),
            None => None,
        };
        hook.endpoint.post(address, &review, seconds).await
    };
    let late = || {
        let url = hook.endpoint.url(seconds);
        Err(format!("Post {url:?}: context deadline exceeded"))
    };
    let answer = tokio::time::timeout(hook.timeout, posted).await;
    let answer = answer.unwrap_or_else(|_| late());
    let answer =
        answer.map_err(|why| Trouble::Calling(format!("failed to call webhook: {why}")))?;
    let theirs = answer["apiVersion"].as_str().unwrap_or_default();
    if let Some(other) = theirs
        .strip_prefix("admission.k8s.io/")
        .filter(|v| *v != hook.version)
    {
        let why = format!(
            "failed to call webhook: converting ({other}.AdmissionReview) to ({}.AdmissionReview): unknown conversion",
            hook.version
        );
        return Err(Trouble::Calling(why));
    }
    review::verdict(&answer, hook.version, &uid, mutates, &hook.name)
        .map_err(|why| Trouble::Calling(format!("received invalid webhook response: {why}")))
}

/// Where a service is: as it was told to us, or at its cluster address, as in a real server.
fn resolve(call: &Call<'_>, service: &Service) -> Result<SocketAddr, String> {
    let key = format!("{}/{}", service.namespace, service.name);
    let told = &call.server.admission.services;
    let told = told
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&key)
        .copied();
    if let Some(address) = told {
        return Ok(address);
    }
    let name = &service.name;
    let found = call.server.store.collection("/services").get(&key);
    let found = found
        .ok_or_else(|| format!("service {name:?} not found"))?
        .value();
    let ports = found["spec"]["ports"].as_array().into_iter().flatten();
    if !ports.into_iter().any(|p| p["port"] == service.port) {
        return Err(format!(
            "no service port {} found for service {name:?}",
            service.port
        ));
    }
    let address = found["spec"]["clusterIP"].as_str().unwrap_or_default();
    let address = address
        .parse()
        .map_err(|_| format!("service {name:?} has no cluster address"))?;
    Ok(SocketAddr::new(address, service.port))
}

/// Lays a webhook's patch over the object; tells whether that changed anything.
fn lay_over(
    call: &Call<'_>,
    hook: &Hook,
    attributes: &mut Attributes<'_>,
    patch: &[u8],
) -> Result<bool, Trouble> {
    if patch.is_empty() {
        return Ok(false);
    }
    let read = super::json::read(patch).map_err(|e| {
        Trouble::Calling(format!(
            "received undecodable patch in webhook response: {e}"
        ))
    })?;
    let document = read.tree;
    if !document.is_array() {
        let why = "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch";
        return Err(Trouble::Calling(why.to_owned()));
    }
    if document.as_array().is_some_and(Vec::is_empty) {
        return Ok(false);
    }
    let Some(object) = attributes.object.as_mut() else {
        return Err(Trouble::Internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    };
    let mut patched =
        patch::json(object, &document).map_err(|e| Trouble::Internal(e.to_string()))?;
    patched["apiVersion"] = object["apiVersion"].clone();
    patched["kind"] = object["kind"].clone();
    let schema = &call.served.version().schema;
    // What subresources speak has no schema of its own here.
    if attributes.kind.1 == call.served.resource.kind {
        schema.decode(&mut patched).map_err(Trouble::Internal)?;
        schema.prune(&mut patched);
        schema.default(&mut patched);
    }
    let changed = patched != *object;
    *object = patched;
    Ok(changed)
}
