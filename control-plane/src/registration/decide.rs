//! Which signing requests are an agent's, and what whoever made them must be allowed. Pure.
//!
//! Karmada's rules (`agentcsrapproving`), and three that it lacks. A name that a Cluster has already is given to nobody who may only
//! bring new ones, so that a token that leaks is not the key to every member. A renewal is for a Cluster that is still there. And the
//! name `rbac-generator`, whose certificate administers a Karmada, is no cluster's.

use std::collections::BTreeMap;

use muster_shared::certificate::reading::{self, Wanted};
use muster_shared::certificate::request::{SIGNER, USAGES};
use muster_shared::k8s::CertificateSigningRequest;
use muster_shared::names::{
    AGENT_GROUP, AGENT_USER_PREFIX, BOOTSTRAP_GROUP, CLUSTER_BOOTSTRAP_GROUP_PREFIX,
    is_cluster_name,
};
use serde_json::{Value, json};

/// The name by which `karmadactl register` asks for the rights of an administrator.
const RBAC_GENERATOR: &str = "rbac-generator";

/// What a signing request is to the approver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Answered, or about to go.
    Settled,
    /// Nobody who wants to be an agent.
    Foreign,
    /// Somebody who wants to be an agent and does not ask as one; left to a person.
    Odd(String),
    /// An agent's.
    Agent {
        /// The cluster that it wants to speak for.
        cluster: String,
        /// Whether whoever asks is that agent already.
        renewal: bool,
    },
}

/// Reads a signing request.
pub fn read(request: &CertificateSigningRequest) -> Request {
    if request.metadata.deletion_timestamp.is_some() || is_answered(request) {
        return Request::Settled;
    }
    let spec = &request.spec;
    if spec.signer_name != SIGNER {
        return Request::Foreign;
    }
    let wanted = match reading::read(&spec.request.0) {
        Ok(wanted) => wanted,
        // What cannot be read in one way only is never approved. Whoever is to bring an agent is told.
        Err(why) if is_from_an_agent(request) => return Request::Odd(why.to_string()),
        Err(_) => return Request::Foreign,
    };
    let agent = |name: &String| name.starts_with(AGENT_USER_PREFIX);
    if !wanted.names.iter().any(agent) && !wanted.organizations.iter().any(|it| it == AGENT_GROUP) {
        return Request::Foreign;
    }
    match cluster(&wanted).and_then(|cluster| usages(request).map(|()| cluster)) {
        Ok(cluster) => Request::Agent {
            renewal: spec.username.as_deref() == wanted.names.first().map(String::as_str),
            cluster,
        },
        Err(why) => Request::Odd(why),
    }
}

/// Whether the requester is an agent or came with a bootstrap token for one.
fn is_from_an_agent(request: &CertificateSigningRequest) -> bool {
    let spec = &request.spec;
    let mut groups = spec.groups.iter().flatten();
    groups.any(|it| {
        [AGENT_GROUP, BOOTSTRAP_GROUP].contains(&it.as_str())
            || it.starts_with(CLUSTER_BOOTSTRAP_GROUP_PREFIX)
    }) || spec
        .username
        .as_ref()
        .is_some_and(|it| it.starts_with(AGENT_USER_PREFIX))
}

fn is_answered(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().is_some_and(|status| {
        let certificate = status.certificate.as_ref();
        let conditions = status.conditions.iter().flatten();
        certificate.is_some_and(|it| !it.0.is_empty())
            || conditions
                .into_iter()
                .any(|it| ["Approved", "Denied", "Failed"].contains(&it.type_.as_str()))
    })
}

/// The cluster whose agent a subject is, exactly.
fn cluster(wanted: &Wanted) -> Result<String, String> {
    let [name] = wanted.names.as_slice() else {
        return Err(format!("it has {} common names", wanted.names.len()));
    };
    if wanted.organizations != [AGENT_GROUP] {
        return Err(format!(
            "its organizations are {:?} and not {AGENT_GROUP:?} alone",
            wanted.organizations
        ));
    }
    if wanted.others > 0 {
        return Err("its subject says more than an organization and a common name".to_owned());
    }
    if wanted.attributes {
        let why = "it has attributes (alternative names or other extensions)";
        return Err(why.to_owned());
    }
    if !wanted.is_exact {
        let why = "its subject is not written as two parts of one value each, as UTF8String or PrintableString";
        return Err(why.to_owned());
    }
    let cluster = name.strip_prefix(AGENT_USER_PREFIX);
    let cluster = cluster.filter(|it| is_cluster_name(it) && *it != RBAC_GENERATOR);
    cluster
        .map(str::to_owned)
        .ok_or_else(|| format!("its common name {name:?} is not that of a cluster's agent"))
}

/// Client authentication and a signature; a key that may encipher keys is optional (those of elliptic curves never do).
fn usages(request: &CertificateSigningRequest) -> Result<(), String> {
    let asked = request.spec.usages.as_deref().unwrap_or_default();
    let [signature, encipherment, client] = USAGES;
    let has = |usage| asked.iter().any(|it| it == usage);
    let length = if has(encipherment) { 3 } else { 2 };
    if has(signature) && has(client) && asked.len() == length {
        return Ok(());
    }
    Err(format!("its usages are {asked:?}"))
}

/// Something that the requester must be allowed, and what is said when it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Verb.
    pub verb: &'static str,
    /// Subresource of `certificatesigningrequests`, as Karmada names them.
    pub subresource: &'static str,
    /// Message of the approval.
    pub message: &'static str,
}

/// An agent renews what it has.
const RENEW: Question = Question {
    verb: "create",
    subresource: "selfclusteragent",
    message: "Auto approving self karmada agent certificate after SubjectAccessReview.",
};
/// Somebody brings a new cluster.
const BRING: Question = Question {
    verb: "create",
    subresource: "clusteragent",
    message: "Auto approving karmada agent certificate after SubjectAccessReview.",
};
/// Somebody brings the agent of a cluster that there is. Karmada asks for `create` here as well.
const REPLACE: Question = Question {
    verb: "update",
    ..BRING
};

/// What to ask for, any of it sufficing; `known` tells whether there is a Cluster of that name that is not being deleted.
pub fn questions(renewal: bool, known: bool) -> &'static [Question] {
    match (renewal, known) {
        (true, true) => &[RENEW, REPLACE],
        (false, true) => &[REPLACE],
        (_, false) => &[BRING],
    }
}

/// The SubjectAccessReview of a question about whoever made the request. The cluster is the name of the object, so that a role can
/// allow one cluster (`resourceNames`) as well as any.
pub fn review(request: &CertificateSigningRequest, cluster: &str, question: Question) -> Value {
    let spec = &request.spec;
    let extra: BTreeMap<_, _> = spec.extra.clone().unwrap_or_default();
    json!({"spec": {
        "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": extra,
        "resourceAttributes": {
            "group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
            "subresource": question.subresource, "verb": question.verb, "name": cluster,
        },
    }})
}

/// The merge patch that approves a request as it was read.
pub fn approval(request: &CertificateSigningRequest, message: &str) -> Value {
    let conditions = request
        .status
        .as_ref()
        .and_then(|it| it.conditions.as_deref());
    let mut conditions: Vec<Value> = conditions
        .unwrap_or_default()
        .iter()
        .map(|it| json!(it))
        .collect();
    conditions.push(json!({
        "type": "Approved", "status": "True", "reason": "AutoApproved", "message": message,
    }));
    json!({
        "metadata": {"resourceVersion": request.metadata.resource_version},
        "status": {"conditions": conditions},
    })
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
