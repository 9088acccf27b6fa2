//! Certificate signing requests: what may be asked for, approved and signed, by whom, and what is
//! signed. Pure, but for the questions to RBAC.

use std::time::Duration;

use serde_json::Value;

use crate::wire::signing_request::{Request, read};

/// Signs certificates by which clients of the API are known.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// How long a certificate is good that asks for nothing else, and at most.
const LIFE: Duration = Duration::from_hours(24 * 365);
/// The shortest life, whatever is asked for.
const SHORTEST: Duration = Duration::from_mins(10);

/// What a signer does about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: it isn't approved, or is done with, or somebody else's.
    Leave,
    /// It can't be signed, and why.
    Fail(String),
    /// It is to be signed.
    Sign {
        /// Subject and key.
        request: Request,
        /// How long the certificate is good.
        life: Duration,
        /// Whether the key may encipher keys.
        enciphers: bool,
    },
}

/// Decides as the signers in kube-controller-manager do (`pkg/controller/certificates/signer`).
pub fn decide(csr: &Value) -> Decision {
    let (spec, status) = (&csr["spec"], &csr["status"]);
    let is = |kind: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions
            .into_iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let done = status["certificate"].is_string() || is("Failed");
    if !is("Approved") || is("Denied") || done || signer != CLIENT {
        return Decision::Leave;
    }
    let request = match read(&spec["request"]) {
        Ok(request) => request,
        Err(error) => return Decision::Fail(error),
    };
    let usages = spec["usages"].as_array().into_iter().flatten();
    let usages: Vec<&str> = usages.filter_map(Value::as_str).collect();
    if let Some(error) = wrong_usage(&usages) {
        return Decision::Fail(error);
    }
    let asked = spec["expirationSeconds"].as_u64().map(Duration::from_secs);
    Decision::Sign {
        request,
        life: asked.map_or(LIFE, |asked| asked.clamp(SHORTEST, LIFE)),
        enciphers: usages.contains(&"key encipherment"),
    }
}

fn wrong_usage(usages: &[&str]) -> Option<String> {
    let known = ["client auth", "digital signature", "key encipherment"];
    if let Some(other) = usages.iter().find(|u| !known.contains(u)) {
        return Some(format!("invalid usage for client certificate: {other}"));
    }
    let missing = "missing required usage for client certificate: client auth";
    (!usages.contains(&"client auth")).then(|| missing.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn csr(name: &str, group: &str) -> Value {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        let key = KeyPair::generate().expect("a key");
        let pem = params
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("pem");
        STANDARD.encode(pem).into()
    }

    fn approved(signer: &str, request: &Value, usages: &[&str], seconds: Option<u64>) -> Value {
        let mut csr = json!({
            "spec": { "signerName": signer, "request": request, "usages": usages },
            "status": { "conditions": [{ "type": "Approved", "status": "True" }] },
        });
        if let Some(seconds) = seconds {
            csr["spec"]["expirationSeconds"] = seconds.into();
        }
        csr
    }

    #[test]
    fn approved_requests_for_clients_are_signed() {
        let jane = csr("jane", "dev");
        let life = |csr: &Value| match decide(csr) {
            Decision::Sign { life, .. } => Some(life),
            _ => None,
        };
        let usual = ["client auth"];
        assert_eq!(life(&approved(CLIENT, &jane, &usual, None)), Some(LIFE));
        assert_eq!(
            life(&approved(CLIENT, &jane, &usual, Some(3600))),
            Some(Duration::from_hours(1))
        );
        assert_eq!(
            life(&approved(CLIENT, &jane, &usual, Some(u64::MAX))),
            Some(LIFE)
        );
        let mut denied = approved(CLIENT, &jane, &usual, None);
        denied["status"]["conditions"] = json!([{ "type": "Denied", "status": "True" }]);
        assert_eq!(decide(&denied), Decision::Leave);
        let mut done = approved(CLIENT, &jane, &usual, None);
        done["status"]["certificate"] = "x".into();
        assert_eq!(decide(&done), Decision::Leave);
        assert_eq!(
            decide(&approved("example.com/x", &jane, &usual, None)),
            Decision::Leave
        );
    }

    #[test]
    fn what_a_signer_does_not_sign_fails_and_says_why() {
        let jane = csr("jane", "dev");
        for (usages, expected) in [
            (
                ["server auth"],
                "invalid usage for client certificate: server auth",
            ),
            (
                ["digital signature"],
                "missing required usage for client certificate: client auth",
            ),
        ] {
            let decision = decide(&approved(CLIENT, &jane, &usages, None));
            assert_eq!(decision, Decision::Fail(expected.to_owned()));
        }
    }
}
