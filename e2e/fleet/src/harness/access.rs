//! Who the product's processes are: service accounts with the rights that the charts give them, and
//! nothing more.
//!
//! The rules are read from the charts' own files, so that one that is missing there fails a
//! scenario here. Identities are tokens that the API itself issues (TokenRequest), which every
//! provider's API can.

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Client, ResourceExt as _};
use muster_shared::names::SYSTEM_NAMESPACE;
use serde_json::json;

use super::apply;

const CONTROL_PLANE: &str =
    include_str!("../../../../charts/control-plane/access/control-plane.yaml");
const AGENTS: &str = include_str!("../../../../charts/control-plane/access/agents.yaml");
const MEMBER: &str = include_str!("../../../../charts/control-plane/access/member.yaml");
const SECRETS: &str = include_str!("../../../../charts/control-plane/access/member-secrets.yaml");
const CERTIFICATES: &str =
    include_str!("../../../../charts/control-plane/access/member-certificates.yaml");
const AGENT: &str = include_str!("../../../../charts/agent/access.yaml");

/// Release and namespace under which the agent's chart is installed, as the README does.
const AGENT_RELEASE: &str = "muster-agent";
const AGENT_NAMESPACE: &str = "muster-system";

/// How long a token is valid, in seconds: longer than any run.
const VALIDITY: i64 = 24 * 60 * 60;

/// Somebody whom an API knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Namespace of the service account.
    pub namespace: &'static str,
    /// Its name.
    pub name: String,
}

impl Account {
    /// Returns the name by which the API knows the account.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Lets the control plane in at the fleet API, with the policies that confine agents.
pub async fn admit_control_plane(fleet: &Client) -> anyhow::Result<Account> {
    apply::apply(fleet, CONTROL_PLANE).await?;
    apply::apply(fleet, AGENTS).await?;
    Ok(Account {
        namespace: SYSTEM_NAMESPACE,
        name: "muster-control-plane".to_owned(),
    })
}

/// Lets the agent of a member in at the fleet API.
pub async fn admit_member(fleet: &Client, member: &str) -> anyhow::Result<Account> {
    apply::apply(fleet, &MEMBER.replace("MEMBER", member)).await?;
    Ok(Account {
        namespace: SYSTEM_NAMESPACE,
        name: format!("muster-agent-{member}"),
    })
}

/// Lets the agent in at its member's API.
pub async fn admit_agent(member: &Client) -> anyhow::Result<Account> {
    let namespace: Namespace =
        serde_json::from_value(json!({ "metadata": { "name": AGENT_NAMESPACE } }))?;
    let namespaces: Api<Namespace> = Api::all(member.clone());
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(error) if !muster_shared::client::is_conflict(&error) => return Err(error.into()),
        _ => {}
    }
    apply::apply(member, &agent_rules()).await?;
    Ok(Account {
        namespace: AGENT_NAMESPACE,
        name: AGENT_RELEASE.to_owned(),
    })
}

/// Gives a group the rights that the charts give to a member's agent, at the fleet API and at its
/// member: for tests that hold certificates of agents of their own.
pub async fn admit_group(
    fleet: &Client,
    member: &Client,
    name: &str,
    group: &str,
) -> anyhow::Result<()> {
    // The namespaces of leases come with the control plane's part.
    admit_control_plane(fleet).await?;
    admit_agent(member).await?;
    lend(fleet, &MEMBER.replace("MEMBER", name), group).await?;
    lend(member, &agent_rules(), group).await
}

/// Rights at the fleet API that the chart gives to a member's agent only where its values ask for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// To report credentials (`access.secrets`).
    Secrets,
    /// To ask for certificates (`access.certificates`).
    Certificates,
}

/// Gives a group such rights beside those of [`admit_group`].
pub async fn admit_to(extra: Extra, fleet: &Client, name: &str, group: &str) -> anyhow::Result<()> {
    let rules = match extra {
        Extra::Secrets => SECRETS,
        Extra::Certificates => CERTIFICATES,
    };
    let rules = rules.replace("MEMBER", name);
    apply::apply(fleet, &rules).await?;
    lend(fleet, &rules, group).await
}

/// Applies a text with its roles bound to a group, and to nobody else: what a test grants by itself
/// must not be there already.
async fn lend(client: &Client, yaml: &str, group: &str) -> anyhow::Result<()> {
    let mut objects = apply::objects(yaml)?;
    let bindings = objects
        .iter_mut()
        .filter(|object| object.data.get("subjects").is_some());
    for binding in bindings {
        binding.metadata.name = Some(format!("{}-{group}", binding.name_any()));
        binding.data["subjects"] = json!([
            { "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group },
        ]);
    }
    apply::apply_all(client, objects).await
}

fn agent_rules() -> String {
    AGENT
        .replace("NAMESPACE", AGENT_NAMESPACE)
        .replace("RELEASE", AGENT_RELEASE)
}

/// Returns the same access as `administrator`'s, but as the account.
pub async fn kubeconfig(
    client: &Client,
    administrator: Kubeconfig,
    account: &Account,
) -> anyhow::Result<Kubeconfig> {
    let Account { namespace, name } = account;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(VALIDITY),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let issued = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("asking for a token of {namespace}/{name}"))?;
    let token = issued
        .status
        .with_context(|| format!("no token was issued for {namespace}/{name}"))?
        .token;
    let mut config = administrator;
    for named in &mut config.auth_infos {
        named.auth_info = Some(AuthInfo {
            token: Some(token.clone().into()),
            ..AuthInfo::default()
        });
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authorization::v1::SubjectAccessReview;

    use super::*;
    use crate::harness::test_bed;

    /// What may an account do: verb, group, resource, namespace, name, and whether it may.
    type Case = (
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        bool,
    );

    async fn check(client: &Client, account: &Account, cases: &[Case]) {
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        for &(verb, group, resource, namespace, name, expected) in cases {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let asked = serde_json::from_value(json!({ "spec": {
                "user": account.user(),
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name,
                },
            } }));
            let asked: SubjectAccessReview = asked.unwrap();
            let answer = reviews
                .create(&PostParams::default(), &asked)
                .await
                .unwrap();
            let may = answer.status.unwrap().allowed;
            let what = format!(
                "{} may {verb} {group}/{resource}/{subresource} {namespace}/{name}",
                account.name
            );
            assert_eq!(may, expected, "{what}");
        }
    }

    #[tokio::test]
    async fn everybody_may_do_their_work_and_nothing_beside_it() {
        muster_shared::tls::install_provider();
        let fleet = test_bed::fleet_api().await.unwrap();
        let client = fleet.client().await.unwrap();
        let control_plane = admit_control_plane(&client).await.unwrap();
        let agent = admit_member(&client, "m1").await.unwrap();
        // The tests of stolen agents (e2e/tests/stolen) check the other rights of an agent.
        let secrets = [
            ("create", "", "secrets", "karmada-cluster", "m1", false),
            ("get", "", "secrets", "default", "any", false),
        ];
        check(&client, &agent, &secrets).await;
        let (clusters, works) = ("cluster.karmada.io", "work.karmada.io");
        let cases = [
            ("watch", "apps", "deployments", "", "", true),
            ("create", works, "works", "karmada-es-m1", "", true),
            ("delete", "", "namespaces", "", "karmada-es-m1", true),
            ("create", clusters, "clusters", "", "", false),
            ("delete", clusters, "clusters", "", "m1", false),
            ("create", "apps", "deployments", "default", "", false),
            ("delete", "", "secrets", "default", "any", false),
            ("impersonate", "", "users", "", "admin", false),
        ];
        check(&client, &control_plane, &cases).await;
    }
}
