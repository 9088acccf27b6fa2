//! Signs approved certificate requests, as kube-controller-manager does.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Inside;
use crate::auth::certificates::{self, Decision};
use crate::context::Notice;
use crate::registry::Served;
use crate::wire::metadata;

/// The controller of certificate requests.
pub struct Signing {
    inside: Inside,
    requests: Served,
}

impl Signing {
    /// Returns a controller that has seen nothing yet.
    pub fn new(inside: Inside) -> Self {
        let requests = inside.builtin("certificates.k8s.io", "certificatesigningrequests");
        Self { inside, requests }
    }

    /// Takes note of a change.
    pub async fn observe(&self, notice: &Notice) {
        if notice.plural != "certificatesigningrequests" || notice.gone {
            return;
        }
        let name = notice.object.head.name();
        let now = self.inside.server.clock.now();
        let (field, value) = match certificates::decide(&notice.object.value()) {
            Decision::Leave => return,
            Decision::Fail(message) => {
                let time = metadata::time(now);
                let failed = json!({
                    "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": message,
                    "lastUpdateTime": time, "lastTransitionTime": time,
                });
                ("conditions", failed)
            }
            Decision::Sign {
                request,
                life,
                enciphers,
            } => {
                let signed = self.inside.server.authority.sign_client(
                    &request.subject,
                    &request.key,
                    (now, life),
                    enciphers,
                );
                match signed {
                    Ok(pem) => ("certificate", STANDARD.encode(pem).into()),
                    Err(error) => {
                        tracing::warn!(request = name, %error, "signing a certificate");
                        return;
                    }
                }
            }
        };
        let written = self
            .inside
            .change(&self.requests, ("", name, "status"), |csr| {
                // Somebody may have been here since.
                if certificates::decide(csr) == Decision::Leave {
                    return None;
                }
                let mut new = csr.clone();
                if field == "certificate" {
                    new["status"][field] = value.clone();
                } else if let Some(list) = new["status"][field].as_array_mut() {
                    list.push(value.clone());
                } else {
                    new["status"][field] = Value::Array(vec![value.clone()]);
                }
                Some(new)
            });
        if let Err(refusal) = written.await {
            tracing::debug!(request = name, %refusal, "writing a certificate");
        }
    }
}
