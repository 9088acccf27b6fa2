//! Asking one webhook, and laying what it wants over the object.

use serde_json::{Value, json};

use crate::admission_config::hooks::Hook;
use crate::admission_config::review::{self, Attributes, Verdict};
use crate::context::RequestContext;
use crate::patch;
use crate::wire::clock;
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
    hook: &Hook,
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
        "apiVersion": "admission.k8s.io/v1",
        "request": review::request(attributes, &uid),
    });
    let seconds = hook.timeout.as_secs();
    let answer = tokio::time::timeout(hook.timeout, hook.endpoint.post(&review, seconds)).await;
    let late = |_| {
        let url = hook.endpoint.url(seconds);
        Err(format!("Post {url:?}: context deadline exceeded"))
    };
    let answer = answer.unwrap_or_else(late);
    let answer =
        answer.map_err(|why| Trouble::Calling(format!("failed to call webhook: {why}")))?;
    review::verdict(&answer, &uid, mutates, &hook.name)
        .map_err(|why| Trouble::Calling(format!("received invalid webhook response: {why}")))
}

/// Lays a webhook's patch over the object.
pub fn lay_over(
    context: &RequestContext<'_>,
    hook: &Hook,
    attributes: &mut Attributes<'_>,
    patch: &[u8],
) -> Result<(), Trouble> {
    if patch.is_empty() {
        return Ok(());
    }
    let document: Value = serde_json::from_slice(patch).map_err(|e| {
        Trouble::Calling(format!(
            "received undecodable patch in webhook response: {e}"
        ))
    })?;
    if !document.is_array() {
        let why =
            "received undecodable patch in webhook response: a list of operations is expected";
        return Err(Trouble::Calling(why.to_owned()));
    }
    if document.as_array().is_some_and(Vec::is_empty) {
        return Ok(());
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
    *object = patched;
    Ok(())
}
