//! Removes accounts, roles and Secrets for credentials that are no longer reported, so that the
//! fleet keeps no access to the member.

use std::fmt::Debug;
use std::time::Duration;

use futures::future::join_all;
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::fleet_id::FleetId;
use muster_shared::k8s::{
    Api, ClusterRole, ClusterRoleBinding, ObjectMeta, Resource, ResourceExt, Secret, ServiceAccount,
};
use muster_shared::names;
use muster_shared::queue::{backoff, jittered};
use muster_shared::write::delete_params;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::controller::{ATTEMPTS, Credentials, Error};
use super::ownership;
use super::report::is_referenced;
use crate::accounts::Report;
use crate::fleet_id::Foreign;
use crate::write::{self, merge, within};

/// Pause while another agent leads.
const WHEN_LED: Duration = Duration::from_secs(10);
/// Shortest pause after a failure, which is usually a missing right.
const PAUSE: Duration = Duration::from_mins(1);

impl Credentials {
    /// Removes all credentials concurrently, so that one failure does not delay the others.
    pub(super) async fn withdraw_all(&self) {
        let others = Report::ALL.into_iter();
        let others = others.filter(|report| !self.reports.contains(report));
        join_all(others.map(|report| self.withdraw(report))).await;
    }

    /// Retries until one account is removed.
    async fn withdraw(&self, report: Report) {
        let mut failures = 0;
        loop {
            let pause = match self.step(report).await {
                Ok(true) => return,
                Ok(false) => WHEN_LED,
                Err(error) => {
                    failures += 1;
                    let secret = report.name();
                    tracing::warn!(secret, %error, "could not take credentials back that are no longer reported");
                    backoff(failures).max(PAUSE)
                }
            };
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    /// Removes one account with everything that belongs to it. Returns `false` if this agent does
    /// not lead.
    async fn step(&self, report: Report) -> Result<bool, Error> {
        if !self.leadership.is_current() {
            return Ok(false);
        }
        let account = report.account(&self.cluster);
        let accounts: Api<ServiceAccount> = Api::namespaced(self.member.clone(), &self.namespace);
        let read = client::get_opt(&accounts, &account);
        let found = match within("look for the member's ServiceAccount", read).await {
            Ok(found) => found,
            // Without the right to read accounts the agent cannot have made one.
            Err(error) if error.is_forbidden() => None,
            Err(error) => return Err(error.into()),
        };
        let fleet = self.fleet_id.now();
        // The account is removed last, so that a later attempt finds the rest of an interrupted one
        // by it.
        let Some(found) = found.filter(|found| ownership::is_an_agents(&found.metadata)) else {
            return Ok(true);
        };
        match ownership::check(&found.metadata, &fleet) {
            Ok(()) => {}
            Err(why @ Foreign::OtherFleet { .. }) => {
                tracing::info!(account, %why, "left an account in the member");
                return Ok(true);
            }
            Err(why @ Foreign::Unclear { .. }) => return Err(Error::Unclear(why)),
        }
        // The account is removed even if the fleet API refuses to remove its copy of the token,
        // which is invalid without the account.
        if let Err(error) = self.leave_the_fleet(report).await {
            let secret = report.name();
            tracing::warn!(secret, %error, "the fleet keeps a copy of a token that is good for nothing any more");
        }
        let is_ours = |found: &ObjectMeta| is_ours(found, &fleet);
        if report == Report::KubeCredentials {
            let name = names::role(&account);
            let bindings: Api<ClusterRoleBinding> = Api::all(self.member.clone());
            let step = "remove the member's ClusterRoleBinding";
            remove(step, &bindings, &name, is_ours).await?;
            let roles: Api<ClusterRole> = Api::all(self.member.clone());
            remove("remove the member's ClusterRole", &roles, &name, is_ours).await?;
        }
        let secrets: Api<Secret> = Api::namespaced(self.member.clone(), &self.namespace);
        remove("remove the member's Secret", &secrets, &account, is_ours).await?;
        let step = "remove the member's ServiceAccount";
        remove(step, &accounts, &found.name_any(), is_ours).await?;
        tracing::info!(
            account,
            "took the credentials back that are no longer reported"
        );
        if let Some(cluster) = self.clusters.get(None, &self.cluster) {
            let note = format!(
                "{} is no longer reported: the account {account:?} and what belonged to it were removed.",
                report.name()
            );
            self.events.inform(&*cluster, "ReportSecretWithdrawn", note);
        }
        Ok(true)
    }

    /// Removes the fleet's copy of the token, and the Cluster's reference to it.
    async fn leave_the_fleet(&self, report: Report) -> Result<(), write::Error> {
        let name = report.secret(&self.cluster);
        let secrets: Api<Secret> = Api::namespaced(self.fleet.clone(), &self.namespace);
        let is_ours = ownership::is_an_agents;
        let removed = remove("remove the fleet's Secret", &secrets, &name, is_ours).await;
        let clusters: Api<Cluster> = Api::all(self.fleet.clone());
        for _ in 0..ATTEMPTS {
            let read = client::get_opt(&clusters, &self.cluster);
            let cluster = within("read the Cluster", read).await?;
            let names = |it: &Cluster| is_referenced(it, report, &self.namespace, &name);
            let Some(cluster) = cluster.filter(names) else {
                break;
            };
            let patch = json!({
                "metadata": { "resourceVersion": cluster.metadata.resource_version },
                "spec": { report.reference(): null },
            });
            let call = merge(&clusters, &self.cluster, None, &patch);
            match within("forget the Secret in the Cluster", call).await {
                Err(error) if error.is_conflict() => {}
                other => {
                    other?;
                    break;
                }
            }
        }
        removed
    }
}

/// Returns whether an agent of Muster made an object in the member for this fleet.
fn is_ours(metadata: &ObjectMeta, fleet: &FleetId) -> bool {
    ownership::is_an_agents(metadata) && ownership::check(metadata, fleet).is_ok()
}

/// Deletes an object if it exists and is this fleet's.
async fn remove<K>(
    step: &'static str,
    api: &Api<K>,
    name: &str,
    is_ours: impl Fn(&ObjectMeta) -> bool,
) -> Result<(), write::Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let found = within(step, client::get_opt(api, name)).await?;
    let Some(found) = found.filter(|found| is_ours(found.meta())) else {
        return Ok(());
    };
    let params = delete_params(found.uid(), None);
    match within(step, api.delete(name, &params)).await {
        // Gone, or another one of its name by now.
        Err(error) if error.is_gone() || error.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn what_a_proxy_says_is_not_found_counts_as_gone_neither_when_it_is_read_nor_deleted() {
        let account = json!({"metadata": {"name": "karmada-m1", "uid": "u"}});
        let account = (200, account);
        let proxy = testing::not_found(&json!({}));
        let api = testing::not_found(&json!({"name": "karmada-m1"}));
        for (what, read, deleted, is_gone) in [
            ("read by a proxy", &proxy, &account, false),
            ("deleted by a proxy", &account, &proxy, false),
            ("never there", &api, &api, true),
            ("just gone", &account, &api, true),
        ] {
            let answers = [read.clone(), deleted.clone()];
            let member = testing::api(move |head, _| {
                let at = usize::from(head.method == http::Method::DELETE);
                answers[at].clone()
            });
            let accounts: Api<ServiceAccount> = Api::namespaced(member, "here");
            let removed = remove("remove it", &accounts, "karmada-m1", |_| true).await;
            assert_eq!(removed.is_ok(), is_gone, "{what}: {removed:?}");
        }
    }
}
