//! Decides which signing requests are those of an agent, and which permissions their authors need.
//! Pure.
//!
//! The rules are Karmada's (`agentcsrapproving`), with three additions. A name that a Cluster has
//! is refused to an author who may only add new clusters, so that a leaked token does not open
//! every member. A renewal requires an existing Cluster. And `rbac-generator`, whose certificate
//! has full rights in Karmada, is not a cluster name.

use std::collections::BTreeMap;

use muster_shared::certificate::reading::{self, Wanted};
use muster_shared::certificate::request::{SIGNER, USAGES};
use muster_shared::k8s::CertificateSigningRequest;
use muster_shared::names::{
    AGENT_GROUP, AGENT_USER_PREFIX, BOOTSTRAP_GROUP, CLUSTER_BOOTSTRAP_GROUP_PREFIX,
    is_cluster_name,
};
use serde_json::{Value, json};

/// End of the name of the Secret of an impersonator; the cluster's is before it.
const IMPERSONATOR: &str = "-impersonator";
/// Seconds of the longest certificate: a year, which `karmadactl register` asks for, and a leap
/// day.
const LONGEST: i32 = 366 * 24 * 60 * 60;
/// Requests of one requester that are decided again after they were left.
const DECIDED_AGAIN: usize = 10;
/// The name by which `karmadactl register` asks for the rights of an administrator.
const RBAC_GENERATOR: &str = "rbac-generator";

/// The agent that a signing request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Cluster of the agent.
    pub cluster: String,
    /// Whether the author is this agent already.
    pub renewal: bool,
}

/// Brings a signing request into the form in which it is kept: whoever may ask for a certificate
/// may ask often, and with as much text as the API takes.
pub fn form(request: &mut CertificateSigningRequest) {
    reading::shorten(&mut request.spec.request.0);
    (request.metadata.annotations, request.metadata.labels) = (None, None);
}

/// Reads a signing request; `None` if it is not about an agent, is answered or being deleted.
///
/// # Errors
/// With the reason when it is about an agent, in another form than agents use: it is left to an
/// administrator.
pub fn read(request: &CertificateSigningRequest) -> Result<Option<Agent>, String> {
    let (spec, is_going) = (&request.spec, request.metadata.deletion_timestamp.is_some());
    if is_going || is_answered(request) || spec.signer_name != SIGNER {
        return Ok(None);
    }
    let wanted = match reading::read(&spec.request.0) {
        Ok(wanted) => wanted,
        // What cannot be read in one way only is never approved. Whoever is to bring an agent is
        // informed.
        Err(why) if is_from_an_agent(request) => return Err(why.to_string()),
        Err(_) => return Ok(None),
    };
    let agent = |name: &String| name.starts_with(AGENT_USER_PREFIX);
    if !wanted.names.iter().any(agent) && !wanted.organizations.iter().any(|it| it == AGENT_GROUP) {
        return Ok(None);
    }
    let cluster = cluster(&wanted)?;
    usages(request)?;
    life(request)?;
    Ok(Some(Agent {
        renewal: spec.username.as_deref() == wanted.names.first().map(String::as_str),
        cluster,
    }))
}

/// Returns whether the requester is an agent or came with a bootstrap token for one.
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

/// Returns the cluster whose agent the subject of a request names exactly.
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

/// Checks that the usages are client authentication and a signature; a key that may encipher keys
/// is optional (those of elliptic curves never do).
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

/// Checks that a request does not ask for a certificate that lasts too long: a certificate cannot
/// be taken back, only outlived.
fn life(request: &CertificateSigningRequest) -> Result<(), String> {
    match request.spec.expiration_seconds {
        Some(seconds) if seconds > LONGEST => Err(format!(
            "it asks for a certificate of {seconds} s, and {LONGEST} s (366 days) is the longest"
        )),
        _ => Ok(()),
    }
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

/// State of the name for which a certificate is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameState {
    /// A Cluster of the name exists, in whatever state: one that is being deleted has Works, and
    /// roles to read them.
    There,
    /// No Cluster exists, and a certificate for the name was issued already.
    Promised,
    /// Neither a Cluster nor a certificate for the name exists.
    New,
}

impl NameState {
    /// Returns the questions to ask, of which one that is answered with yes is enough.
    pub fn questions(self, renewal: bool) -> &'static [Question] {
        match (self, renewal) {
            (Self::There, true) => &[RENEW, REPLACE],
            (Self::There, false) | (Self::Promised, _) => &[REPLACE],
            (Self::New, _) => &[BRING],
        }
    }

    /// Returns the state in words that follow the name of the cluster.
    pub fn describe(self) -> &'static str {
        match self {
            Self::There => "which is there already",
            Self::Promised => {
                "for which another request was approved already (a token for this name, `kubectl muster token create --cluster-name`, may ask again)"
            }
            Self::New => "which is not there",
        }
    }
}

/// Returns whether another request than this one was approved for the agent of a cluster.
/// Kubernetes keeps such requests for an hour: a fleet of thousands that joins in that time has as
/// many. Their signatures were verified when they were approved, or by whoever approved them.
pub fn is_promised<'a>(
    name: &str,
    cluster: &str,
    requests: impl IntoIterator<Item = &'a CertificateSigningRequest>,
) -> bool {
    let is_for = |request: &CertificateSigningRequest| {
        let wanted = reading::read_unverified(&request.spec.request.0);
        wanted.is_ok_and(|wanted| self::cluster(&wanted).as_deref() == Ok(cluster))
    };
    requests.into_iter().any(|other| {
        other.metadata.name.as_deref() != Some(name)
            && other.spec.signer_name == SIGNER
            && is_approved(other)
            && is_for(other)
    })
}

fn is_approved(request: &CertificateSigningRequest) -> bool {
    let status = request.status.as_ref();
    let mut conditions = status
        .and_then(|it| it.conditions.as_deref())
        .unwrap_or_default()
        .iter();
    conditions.any(|it| it.type_ == "Approved" && it.status == "True")
}

/// Returns whether a request that was left is decided again: one of the newest of its
/// requester's.
pub fn is_among_the_newest<'a>(
    request: &CertificateSigningRequest,
    requests: impl IntoIterator<Item = &'a CertificateSigningRequest>,
) -> bool {
    let made = |it: &CertificateSigningRequest| it.metadata.creation_timestamp.clone();
    let newer = requests.into_iter().filter(|other| {
        other.spec.username == request.spec.username
            && !is_answered(other)
            && made(other) > made(request)
    });
    newer.take(DECIDED_AGAIN).count() < DECIDED_AGAIN
}

/// Returns the names of clusters beside which this one cannot be: the credentials of
/// `a-impersonator` would be in the Secret in which agent `a` puts those of its impersonator.
pub fn rivals(cluster: &str) -> Vec<String> {
    let stem = cluster.strip_suffix(IMPERSONATOR).map(str::to_owned);
    let other = Some(format!("{cluster}{IMPERSONATOR}")).filter(|it| is_cluster_name(it));
    stem.filter(|it| is_cluster_name(it))
        .into_iter()
        .chain(other)
        .collect()
}

/// Returns the SubjectAccessReview of a question about whoever made the request. The cluster is the
/// name of the object, so that a role can allow one cluster (`resourceNames`) as well as any.
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

/// Returns the merge patch that approves a request as it was read.
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
mod tests;
