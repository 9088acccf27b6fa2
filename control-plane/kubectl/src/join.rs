//! `kubectl muster join` and `unjoin`: members that the control plane connects to (sync mode Push).
//!
//! `join` makes an account in the member, with the rights of the agent's chart and a token of
//! limited life, which the control plane renews. The token is stored in the fleet API, and the
//! Cluster is created last: a join that fails leaves no Cluster.

use std::path::PathBuf;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use kube::Config;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use muster_control_plane::clusters::push::ask_for_token;
use muster_control_plane::clusters::registration::access;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::capacity::default_models;
use muster_shared::certificate::pem;
use muster_shared::client::{self, Head, Profile};
use muster_shared::k8s::{Api, Client, DynamicObject, ResourceExt, Secret, ServiceAccount};
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::settings::Words;
use serde_json::{Value, json};

use super::install::{NAMESPACE, account};
use super::list;
use super::removal::{Removal, remove_cluster};
use super::request::{FIELD_MANAGER, call, delete, identify, require_name};

/// Rights of the agent in its member, which are those of the control plane there.
const EVERYTHING: &str = include_str!("../../../charts/agent/access.yaml");
const WORKLOADS: &str = include_str!("../../../charts/agent/access-workloads.yaml");
/// Right of the account to make tokens of itself, and of no other.
const OWN_TOKEN: &str = include_str!("../../../charts/agent/access-token.yaml");

/// Rights that the control plane gets in the member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Rights {
    /// The built-in kinds of ordinary applications, without Secrets and roles.
    #[default]
    Workloads,
    /// Objects of every kind, which amounts to the administrator of the member.
    Everything,
}

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Name of the Cluster.
    #[arg(value_name = "NAME")]
    cluster: String,
    /// Kubeconfig of the member, with the rights of an administrator. It is used now and not
    /// stored.
    #[arg(long, value_name = "FILE")]
    member_kubeconfig: PathBuf,
    /// Context within that kubeconfig.
    #[arg(long, value_name = "NAME")]
    member_context: Option<String>,
    /// Namespace of the account in the member.
    #[arg(long, default_value = NAMESPACE, value_name = "NAME")]
    member_namespace: String,
    /// Address of the member's API server as the control plane reaches it; that of the kubeconfig
    /// without it.
    #[arg(long, value_name = "URL")]
    cluster_api_endpoint: Option<String>,
    /// Proxy through which the control plane reaches the member's API server; that of the
    /// kubeconfig without it and without --cluster-api-endpoint, unless it is on this machine.
    /// Proxies of this machine's environment are not taken over.
    #[arg(long, value_name = "URL")]
    proxy_url: Option<String>,
    /// Rights of the control plane in the member.
    #[arg(long, value_enum, default_value_t)]
    rights: Rights,
    /// Provider of the member; must be a label value.
    #[arg(long, value_name = "NAME")]
    cluster_provider: Option<String>,
    /// Region of the member; must be a label value.
    #[arg(long, value_name = "NAME")]
    cluster_region: Option<String>,
    /// Zones of the member, separated by commas; must be label values.
    #[arg(long, default_value = "", hide_default_value = true)]
    cluster_zones: Words,
}

#[derive(Debug, Args)]
pub(super) struct Leaving {
    #[command(flatten)]
    options: Removal,
    /// Kubeconfig of the member, whose account is then removed as well.
    #[arg(long, value_name = "FILE")]
    member_kubeconfig: Option<PathBuf>,
    /// Namespace of the account in the member.
    #[arg(long, default_value = NAMESPACE, value_name = "NAME")]
    member_namespace: String,
}

pub(super) async fn carry_out(fleet: Client, options: &Options) -> anyhow::Result<String> {
    let name = &options.cluster;
    require_name(name)?;
    let file = Some(options.member_kubeconfig.as_path());
    let config = client::kubeconfig(file, options.member_context.as_deref()).await?;
    let member = client::connect(&config, Profile::Write)?;
    let id = identify(&member, "identify the member").await?;
    let clusters: Api<Cluster> = Api::all(fleet.clone());
    refuse(&fleet, &clusters, name, &id).await?;

    let namespace = &options.member_namespace;
    let objects = objects(options.rights, namespace, name)?;
    access::ensure_namespace(&member, namespace).await?;
    access::apply(&member, &objects).await?;
    let token = token(&member, namespace, name).await?;

    access::ensure_namespace(&fleet, CLUSTER_NAMESPACE).await?;
    let mut data = json!({ "token": STANDARD.encode(token) });
    if let Some(authority) = authority(&config) {
        data["caBundle"] = json!(STANDARD.encode(authority));
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": name, "namespace": CLUSTER_NAMESPACE },
        "data": data,
    });
    let secrets: Api<Secret> = Api::namespaced(fleet.clone(), CLUSTER_NAMESPACE);
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    call(
        "store the token",
        secrets.patch(name, &apply, &Patch::Apply(&secret)),
    )
    .await?;
    let cluster = serde_json::from_value(cluster(options, &config, &id))?;
    call(
        "create the Cluster",
        clusters.create(&PostParams::default(), &cluster),
    )
    .await?;
    Ok(format!(
        "Cluster {name:?} is joined in sync mode Push. In the member, the account {namespace}/{} has the rights of the control plane{}; its \
         token is in Secret {CLUSTER_NAMESPACE}/{name} and is renewed by the control plane.\n`kubectl get cluster {name} -w` shows when it \
         is ready, `kubectl describe cluster {name}` why it is not.\n",
        account(name),
        match options.rights {
            Rights::Workloads =>
                " for the kinds of ordinary applications (`--rights everything` is for all)",
            Rights::Everything => ", which amount to an administrator's",
        }
    ))
}

/// Refuses a member that is the fleet API, or that is in the fleet already.
async fn refuse(
    fleet: &Client,
    clusters: &Api<Cluster>,
    name: &str,
    id: &str,
) -> anyhow::Result<()> {
    let own = identify(fleet, "identify the fleet API").await?;
    ensure!(
        own != id,
        "--member-kubeconfig leads to the fleet API itself: templates would be started where they are stored"
    );
    // One that cannot be read has the name as well.
    let heads = Api::all(fleet.clone());
    let taken = call(
        "look for the Cluster",
        Head::<Cluster>::get_opt(&heads, name),
    )
    .await?;
    ensure!(
        taken.is_none(),
        "the fleet has a Cluster {name:?} already; `kubectl muster unjoin {name}` or `unregister {name}` removes it"
    );
    let all = list::all(clusters.clone()).await;
    for cluster in all.map_err(anyhow::Error::msg)? {
        let other = cluster.name_any();
        ensure!(
            cluster.spec.id.as_deref() != Some(id),
            "this member is in the fleet already, as Cluster {other:?}"
        );
    }
    Ok(())
}

/// Returns the account in the member, and what gives it its rights.
fn objects(rights: Rights, namespace: &str, cluster: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let rights = match rights {
        Rights::Everything => EVERYTHING,
        Rights::Workloads => WORKLOADS,
    };
    let text = format!("{rights}\n---\n{OWN_TOKEN}").replace("NAMESPACE", namespace);
    access::objects(&text.replace("RELEASE", &account(cluster)))
}

/// Asks for a token of the account.
async fn token(member: &Client, namespace: &str, cluster: &str) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(member.clone(), namespace);
    let account = account(cluster);
    let asked = ask_for_token(&accounts, &account);
    call("ask the member for a token", asked).await
}

/// Returns the certificates that the kubeconfig trusts, as PEM.
fn authority(config: &Config) -> Option<String> {
    let certificates = config.root_cert.iter().flatten();
    let text: String = certificates.map(|it| pem("CERTIFICATE", it)).collect();
    (!text.is_empty()).then_some(text)
}

/// Returns the proxy of the control plane for the member. That of the kubeconfig is the way to the
/// address in it, and not to another one.
fn proxy(options: &Options) -> Option<String> {
    if options.proxy_url.is_some() || options.cluster_api_endpoint.is_some() {
        return options.proxy_url.clone();
    }
    let context = options.member_context.as_deref();
    client::kubeconfig_proxy(&options.member_kubeconfig, context)
}

fn cluster(options: &Options, config: &Config, id: &str) -> Value {
    let name = &options.cluster;
    let address = client::address(config);
    let endpoint = options.cluster_api_endpoint.as_deref().unwrap_or(&address);
    let mut spec = json!({
        "syncMode": ClusterSyncMode::Push,
        "id": id,
        "apiEndpoint": endpoint,
        "secretRef": { "namespace": CLUSTER_NAMESPACE, "name": name },
        "resourceModels": default_models(),
    });
    if config.accept_invalid_certs {
        spec["insecureSkipTLSVerification"] = json!(true);
    }
    if let Some(proxy) = proxy(options) {
        spec["proxyURL"] = json!(proxy);
    }
    for (field, value) in [
        ("provider", &options.cluster_provider),
        ("region", &options.cluster_region),
    ] {
        if let Some(value) = value {
            spec[field] = json!(value);
        }
    }
    if !options.cluster_zones.0.is_empty() {
        spec["zones"] = json!(options.cluster_zones.0);
    }
    json!({ "metadata": { "name": name }, "spec": spec })
}

pub(super) async fn leave(fleet: Client, leaving: &Leaving) -> anyhow::Result<String> {
    let name = leaving.options.cluster.as_str();
    require_name(name)?;
    // Before anything is removed: a file that cannot be read must not end this half-way.
    let member = match &leaving.member_kubeconfig {
        Some(file) => {
            let config = client::kubeconfig(Some(file), None).await?;
            Some(client::connect(&config, Profile::Write)?)
        }
        None => None,
    };
    let clusters: Api<Cluster> = Api::all(fleet.clone());
    let found = call("look for the Cluster", client::get_opt(&clusters, name)).await?;
    let mut reported = Vec::new();
    if let Some(cluster) = &found {
        ensure!(
            cluster.spec.sync_mode == ClusterSyncMode::Push,
            "Cluster {name:?} registered itself (syncMode Pull): use `kubectl muster unregister {name}`"
        );
        remove_cluster(&fleet, &clusters, cluster, &leaving.options).await?;
        reported.push(format!("Cluster {name:?} is gone.\n"));
    }
    let secrets: Api<Secret> = Api::namespaced(fleet, CLUSTER_NAMESPACE);
    let mut found = found.is_some();
    if delete("delete", secrets.delete(name, &DeleteParams::default())).await? {
        found = true;
        reported.push("Removed the member's token from the fleet API.\n".to_owned());
    }
    if let Some(member) = member {
        // The names are those of the narrower rights as well. The namespace stays.
        let objects = objects(Rights::Everything, &leaving.member_namespace, name)?;
        if access::remove(&member, objects).await? > 0 {
            found = true;
            let line = "Removed the account of the control plane and its roles from the member.\n";
            reported.push(line.to_owned());
        }
    } else {
        reported.push(format!(
            "In the member, the account {0}/{1} and its roles {0}-{1} and {1}-token remain: repeat this with --member-kubeconfig.\n",
            leaving.member_namespace,
            account(name)
        ));
    }
    ensure!(
        found,
        "there is no Cluster {name:?}, and nothing is left of one: `kubectl get clusters` lists them"
    );
    Ok(reported.concat())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_proxy_of_the_kubeconfig_is_taken_over_with_its_address_alone() {
        let path = std::env::temp_dir().join(format!("muster-join-{}", std::process::id()));
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
            clusters: [{name: a, cluster: {server: 'https://m1', proxy-url: 'http://proxy:3128'}}]\n\
            contexts: [{name: a, context: {cluster: a}}]\n";
        std::fs::write(&path, text).unwrap();
        let file = format!("--member-kubeconfig={}", path.display());
        let (own, address) = (
            "--proxy-url=http://own",
            "--cluster-api-endpoint=https://10.0.0.1",
        );
        for (flags, expected) in [
            (vec![], Some("http://proxy:3128")),
            (vec![own], Some("http://own")),
            (vec![address], None),
            (vec![address, own], Some("http://own")),
        ] {
            let words = [vec!["join", "m1", file.as_str()], flags].concat();
            let line = Line::parse_from(words.iter().copied());
            assert_eq!(proxy(&line.options).as_deref(), expected, "{words:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
