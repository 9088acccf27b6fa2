//! The response of a webhook, as Karmada reads it. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::Value;

use super::error::{Fault, malformed, shortened};
use super::patch;
use super::request::{API_VERSION, KIND};
use crate::lua::answer as checked;
use crate::lua::convert;
use crate::{Answer, Operation, Replicas};

/// Answer of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// Patch of the object that was sent.
    Patch(Patch),
    /// Answer as it is.
    Answer(Answer),
}

/// Reads the answer to a question; `uid` is that of the request, unless it was compared already.
pub(super) fn read(operation: Operation, uid: Option<&str>, body: &[u8]) -> Result<Said, Fault> {
    let context: Received = serde_json::from_slice(body)
        .map_err(|error| malformed(&format!("no JSON of a {KIND}: {error}")))?;
    let is_other = |found: &str, expected: &str| !found.is_empty() && found != expected;
    if is_other(&context.kind, KIND) || is_other(&context.api_version, API_VERSION) {
        let Received {
            kind, api_version, ..
        } = context;
        return Err(malformed(&format!(
            "expected {KIND} of {API_VERSION}, found {kind:?} of {api_version:?}"
        )));
    }
    let Some(response) = context.response else {
        return Err(malformed("it has no response"));
    };
    if let Some(uid) = uid.filter(|uid| *uid != response.uid) {
        return Err(malformed(&format!(
            "response.uid: expected {uid:?}, found {:?}",
            shortened(&response.uid)
        )));
    }
    if !response.successful {
        let Some(status) = response.status else {
            return Err(malformed(
                "response.status is absent, although response.successful is false",
            ));
        };
        return Err(Fault::Refused {
            code: status.code,
            message: shortened(&status.message),
        });
    }
    response.said(operation)
}

impl Response {
    /// Returns what the fields say that belong to the operation.
    fn said(self, operation: Operation) -> Result<Said, Fault> {
        let absent = |field: &str| malformed(&format!("response.{field} is absent"));
        let wrong = |fault: convert::Fault| malformed(&fault.to_string());
        Ok(Said::Answer(match operation {
            Operation::InterpretReplica => {
                let count = self.replicas.ok_or_else(|| absent("replicas"))?;
                let replicas = i32::try_from(count).ok().filter(|count| *count >= 0);
                let replicas = replicas.ok_or_else(|| {
                    malformed(&format!(
                        "response.replicas: expected a number from 0 to 2147483647, found {count}"
                    ))
                })?;
                let needs = self.replica_requirements;
                let needs = needs.map(|it| checked::requirements("replicaRequirements", &it));
                Answer::Replicas(Replicas {
                    replicas,
                    requirements: needs.transpose().map_err(wrong)?,
                })
            }
            Operation::InterpretComponent => {
                let list = self.components.map(|list| checked::components(&list));
                Answer::Components(list.transpose().map_err(wrong)?.unwrap_or_default())
            }
            Operation::InterpretDependency => {
                let list = self.dependencies.map(|list| checked::dependencies(&list));
                let list = list.transpose().map_err(wrong)?.unwrap_or_default();
                Answer::Dependencies(checked::united(list))
            }
            Operation::ReviseReplica | Operation::Retain | Operation::AggregateStatus => {
                let patch = read_patch(self.patch_type.as_deref(), self.patch.as_deref())?;
                return Ok(Said::Patch(patch));
            }
            Operation::InterpretStatus => match self.raw_status {
                Some(status) if status.is_object() => Answer::Status(Some(status)),
                Some(_) => return Err(malformed("response.rawStatus is no object")),
                None => return Err(absent("rawStatus")),
            },
            Operation::InterpretHealth => {
                Answer::Health(self.healthy.ok_or_else(|| absent("healthy"))?)
            }
        }))
    }
}

/// Reads the patch of a response. None at all leaves the object as it is.
fn read_patch(kind: Option<&str>, text: Option<&str>) -> Result<Patch, Fault> {
    match (kind, text.filter(|text| !text.is_empty())) {
        (None, None) => Ok(Patch::default()),
        (Some("JSONPatch"), Some(text)) => {
            let text = STANDARD.decode(text);
            let text = text.map_err(|error| malformed(&format!("response.patch: {error}")))?;
            patch::read(&text).map_err(|text| malformed(&text))
        }
        (None, Some(_)) => Err(malformed("response.patchType is absent")),
        (Some("JSONPatch"), None) => Err(malformed("response.patch is empty")),
        (Some(other), _) => Err(malformed(&format!(
            "response.patchType: expected \"JSONPatch\", found {:?}",
            shortened(other)
        ))),
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Received {
    kind: String,
    api_version: String,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    successful: bool,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    replicas: Option<i64>,
    replica_requirements: Option<Value>,
    components: Option<Value>,
    dependencies: Option<Value>,
    raw_status: Option<Value>,
    healthy: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    code: i64,
}

#[cfg(test)]
mod tests;
