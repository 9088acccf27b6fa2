//! `kubectl muster unregister`: removes a member from the fleet, with everything that `register`
//! and `token create` created for it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use kube::api::DeleteParams;
use muster_agent::is_an_agents;
use muster_control_plane::clusters::registration::access;
use muster_control_plane::clusters::registration::token;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::client::{self, Profile};
use muster_shared::fleet_id::{self, FleetId, Owner};
use muster_shared::k8s::{
    Api, Client, ClusterRole, ClusterRoleBinding, Resource, ResourceExt, Secret, ServiceAccount,
};
use muster_shared::names::{
    self, CLUSTER_BOOTSTRAP_GROUP_PREFIX, CLUSTER_NAMESPACE, SYSTEM_NAMESPACE, annotation,
};
use muster_shared::write::delete_params;

use super::install::{NAMESPACE, SECRET};
use super::list::{self, tokens};
use super::removal::{Removal, remove_cluster};
use super::request::{call, delete, identify, require_name};

/// Secret in which an agent that joined by a token keeps its credentials (`fleet.kubeconfigSecret`
/// of charts/agent).
const AGENT_SECRET: &str = "muster-fleet-kubeconfig";

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    removal: Removal,
    /// Kubeconfig of the member, whose Secret with the agent's kubeconfig is then removed as well.
    #[arg(long, value_name = "FILE")]
    member_kubeconfig: Option<PathBuf>,
    /// Namespace of that Secret.
    #[arg(long, default_value = SYSTEM_NAMESPACE, value_name = "NAME")]
    member_namespace: String,
}

pub(super) async fn carry_out(fleet: Client, options: &Options) -> anyhow::Result<String> {
    let name = options.removal.cluster.as_str();
    require_name(name)?;
    // Writing to a string does not fail.
    let mut reported = String::new();
    let clusters: Api<Cluster> = Api::all(fleet.clone());
    let found = call("look for the Cluster", client::get_opt(&clusters, name)).await?;
    // Before anything is removed: a file that cannot be used must not end this half-way.
    let member = match &options.member_kubeconfig {
        Some(file) => Some(open_member(&fleet, file, name, found.as_ref()).await?),
        None => None,
    };
    if let Some(cluster) = &found {
        ensure!(
            cluster.spec.sync_mode == ClusterSyncMode::Pull,
            "Cluster {name:?} did not register itself (syncMode Push): use `kubectl muster unjoin {name}`"
        );
        remove_cluster(&fleet, &clusters, cluster, &options.removal).await?;
        let _ = writeln!(reported, "Cluster {name:?} is gone.");
    }
    // Not earlier: until its Works are gone the agent needs its rights.
    let roles = access::revoke(&fleet, name).await?;
    let tokens = forget_tokens(&fleet, name).await?;
    let withdrawn = match member {
        Some(member) => {
            let id = call("read the id of the fleet", fleet_id::read(&fleet)).await?;
            let withdrawn = take_credentials_back(&member, name, &id).await?;
            Some((member, id, withdrawn))
        }
        None => None,
    };
    let accounts = withdrawn.as_ref().map_or(0, |it| it.2.accounts);
    if found.is_none() {
        // A typo must not look like success. Whoever repeats this with the member's kubeconfig
        // finds nothing but its accounts.
        ensure!(
            roles > 0 || tokens > 0 || accounts > 0,
            "there is no Cluster {name:?}, and no rights or tokens of one: `kubectl get clusters` lists them"
        );
        let _ = writeln!(
            reported,
            "There was no Cluster {name:?}; what was left of it is removed."
        );
    }
    let _ = writeln!(
        reported,
        "Removed {roles} roles, bindings and accounts and {tokens} bootstrap tokens at the fleet API."
    );
    // The API knows an agent by the name in its certificate, and a certificate cannot be taken
    // back.
    let _ = writeln!(
        reported,
        "A certificate that was issued for {name:?} is without rights now, and would have them again with the name: do not give the name to another member before it ends (register's --cert-expiration-seconds)."
    );
    if let Some((member, id, Withdrawn { left, .. })) = withdrawn {
        if accounts > 0 {
            let _ = writeln!(
                reported,
                "Removed {accounts} accounts whose tokens the fleet had, with their roles, from the member."
            );
        }
        if !left.is_empty() {
            let _ = writeln!(
                reported,
                "Left in the member, because the annotation {} does not name this fleet, whose id is {id}: {}.",
                annotation::FLEET,
                left.join(", ")
            );
        }
        let secrets: Api<Secret> = Api::namespaced(member, &options.member_namespace);
        let whole = DeleteParams::default();
        if delete("remove the member's Secret", secrets.delete(SECRET, &whole)).await? {
            reported.push_str("Removed the agent's kubeconfig from the member.\n");
        }
    }
    if options.member_kubeconfig.is_none() {
        let _ = writeln!(
            reported,
            "If the agent reported credentials (--report-secrets), they are in the member still: repeat this with --member-kubeconfig, or, \
                 if the member is in no other fleet under this name, \
                 kubectl delete clusterrolebinding,clusterrole karmada-controller-manager:karmada-{name} --ignore-not-found && \
                 kubectl -n {CLUSTER_NAMESPACE} delete serviceaccount,secret karmada-{name} --ignore-not-found"
        );
    }
    let _ = writeln!(reported, "{}", at_the_member(&options.member_namespace));
    Ok(reported)
}

/// Connects to the member of a kubeconfig, and refuses another one than that of the Cluster: its
/// agent would lose its credentials.
async fn open_member(
    fleet: &Client,
    file: &Path,
    name: &str,
    cluster: Option<&Cluster>,
) -> anyhow::Result<Client> {
    let config = client::kubeconfig(Some(file), None).await?;
    let member = client::connect(&config, Profile::Write)?;
    let id = identify(&member, "identify the member").await?;
    let known = cluster.and_then(|it| it.spec.id.as_deref());
    if let Some(known) = known.filter(|it| !it.is_empty()) {
        ensure!(
            known == id,
            "--member-kubeconfig leads to another cluster: its kube-system has uid {id}, that of {name:?} has {known}. Nothing was changed"
        );
        return Ok(member);
    }
    // A Cluster that is gone, or that no agent has reported of, does not say which member is meant.
    let all = list::all::<Cluster>(Api::all(fleet.clone())).await;
    let all = all.map_err(anyhow::Error::msg)?;
    let mut others = all.iter().filter(|it| it.name_any() != name);
    if let Some(other) = others.find(|it| it.spec.id.as_deref() == Some(id.as_str())) {
        bail!(
            "--member-kubeconfig leads to the member of Cluster {:?}, not to that of {name:?}. Nothing was changed",
            other.name_any()
        );
    }
    Ok(member)
}

/// Says what remains to be done in the member, by the way in which its agent was installed.
fn at_the_member(namespace: &str) -> String {
    let remove = |namespace: &str, secret: &str| {
        format!(
            "helm uninstall muster-agent -n {namespace} && kubectl -n {namespace} delete secret {secret} --ignore-not-found"
        )
    };
    format!(
        "In the member, if not done yet, the agent and its credentials have to go. If it joined by the command of `kubectl muster token create`: {}\n\
         If it joined by `kubectl muster register`: {}",
        remove(NAMESPACE, AGENT_SECRET),
        remove(namespace, SECRET)
    )
}

/// Result of the withdrawal of the accounts whose tokens the fleet had.
#[derive(Default)]
struct Withdrawn {
    /// Number of accounts that were removed.
    accounts: usize,
    /// Objects that were made for another fleet, or may have been.
    left: Vec<String>,
}

/// Removes from the member the accounts whose tokens the fleet had, where an agent of ours made
/// them for this fleet.
async fn take_credentials_back(
    member: &Client,
    cluster: &str,
    fleet: &FleetId,
) -> anyhow::Result<Withdrawn> {
    let (bindings, roles): (Api<ClusterRoleBinding>, Api<ClusterRole>) =
        (Api::all(member.clone()), Api::all(member.clone()));
    let secrets: Api<Secret> = Api::namespaced(member.clone(), CLUSTER_NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(member.clone(), CLUSTER_NAMESPACE);
    let mut withdrawn = Withdrawn::default();
    for account in [
        names::service_account(cluster),
        "karmada-impersonator".to_owned(),
    ] {
        let role = names::role(&account);
        let left = &mut withdrawn.left;
        remove_if_ours(&bindings, &role, fleet, left).await?;
        remove_if_ours(&roles, &role, fleet, left).await?;
        remove_if_ours(&secrets, &account, fleet, left).await?;
        let gone = remove_if_ours(&accounts, &account, fleet, left).await?;
        withdrawn.accounts += usize::from(gone);
    }
    Ok(withdrawn)
}

/// Deletes an object if an agent of ours made it for this fleet: Karmada's tools make objects of
/// the same names, and so do the agents of other fleets.
async fn remove_if_ours<K>(
    api: &Api<K>,
    name: &str,
    fleet: &FleetId,
    left: &mut Vec<String>,
) -> anyhow::Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let Some(found) = call("look into the member", client::get_opt(api, name)).await? else {
        return Ok(false);
    };
    if !is_an_agents(found.meta()) {
        return Ok(false);
    }
    let mark = found.annotations().get(annotation::FLEET);
    match fleet.owner(mark.map(String::as_str)) {
        Owner::Unmarked | Owner::Ours => {}
        Owner::Other | Owner::Unclear => {
            left.push(format!("{} {name}", K::kind(&())));
            return Ok(false);
        }
    }
    let step = format!("remove {} {name:?} from the member", K::kind(&()));
    let params = delete_params(found.uid(), None);
    delete(&step, api.delete(name, &params)).await
}

/// Deletes the tokens that are for this cluster alone.
async fn forget_tokens(fleet: &Client, cluster: &str) -> anyhow::Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(fleet.clone(), token::NAMESPACE);
    let found = call("list the tokens' Secrets", tokens(fleet)).await?;
    let group = format!("{CLUSTER_BOOTSTRAP_GROUP_PREFIX}{cluster}");
    let mut gone = 0;
    for entry in found {
        if entry.groups == [group.as_str()] {
            let name = entry.token.name();
            call(
                "delete a token",
                secrets.delete(&name, &DeleteParams::default()),
            )
            .await?;
            gone += 1;
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_removed_from_where_its_command_installed_it() {
        let reported = at_the_member("elsewhere");
        for (namespace, secret) in [(NAMESPACE, AGENT_SECRET), ("elsewhere", SECRET)] {
            let release = format!("helm uninstall muster-agent -n {namespace} ");
            let credentials = format!("kubectl -n {namespace} delete secret {secret} ");
            assert!(
                reported.contains(&release) && reported.contains(&credentials),
                "{reported}"
            );
        }
        let values = include_str!("../../../charts/agent/values.yaml");
        assert!(values.contains(&format!("kubeconfigSecret: {AGENT_SECRET}\n")));
    }
}
