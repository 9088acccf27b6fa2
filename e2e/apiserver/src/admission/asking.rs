//! Asking one webhook, and laying what it wants over the object.

use std::net::SocketAddr;

use serde_json::json;

use super::config::client::Service;
use super::config::hooks::Hook;
use super::config::review::{self, Attributes, Invocation, Verdict};
use crate::context::RequestContext;
use crate::patch;
use crate::wire::clock;
use crate::wire::json;
use crate::wire::status_error::StatusError;

/// What came between us and a verdict.
pub enum Trouble {
    /// The webhook could not be asked, or answered nonsense: its failure policy says what then.
    Calling(String),
    /// Its patch can't be carried out.
    Internal(String),
}

impl Trouble {
    /// Returns the refusal that the trouble makes, where it makes one.
    pub fn refusal(self, hook: &Hook) -> StatusError {
        match self {
            Self::Calling(why) => {
                StatusError::internal(format!("failed calling webhook {:?}: {why}", hook.name))
            }
            Self::Internal(why) => StatusError::internal(why),
        }
    }
}

/// Asks a webhook.
pub async fn ask(
    context: &RequestContext<'_>,
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
                resolve(context, service)
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
            "failed to call webhook: it answered version {other} to {}",
            hook.version
        );
        return Err(Trouble::Calling(why));
    }
    review::verdict(&answer, hook.version, &uid, mutates, &hook.name)
        .map_err(|why| Trouble::Calling(format!("received invalid webhook response: {why}")))
}

/// Returns where a service is: as it was told to us, or at its cluster address, as in a real
/// server.
fn resolve(context: &RequestContext<'_>, service: &Service) -> Result<SocketAddr, String> {
    let key = format!("{}/{}", service.namespace, service.name);
    if let Some(address) = context.server.admission.address(&key) {
        return Ok(address);
    }
    let name = &service.name;
    let found = context.server.store.collection("/services").get(&key);
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
pub fn lay_over(
    context: &RequestContext<'_>,
    hook: &Hook,
    attributes: &mut Attributes<'_>,
    patch: &[u8],
) -> Result<bool, Trouble> {
    if patch.is_empty() {
        return Ok(false);
    }
    let read = json::read(patch).map_err(|e| {
        Trouble::Calling(format!(
            "received undecodable patch in webhook response: {e}"
        ))
    })?;
    let document = read.tree;
    if !document.is_array() {
        let why =
            "received undecodable patch in webhook response: a list of operations is expected";
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
    let schema = &context.served.version().schema;
    // What subresources speak has no schema of its own here.
    if attributes.kind.1 == context.served.resource.kind {
        schema.decode(&mut patched).map_err(Trouble::Internal)?;
        schema.prune(&mut patched);
        schema.default(&mut patched);
    }
    let changed = patched != *object;
    *object = patched;
    Ok(changed)
}
