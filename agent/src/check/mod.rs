//! Checks of the member's side: its agent, and the way to the fleet. They are run by
//! `kubectl muster check --member` and by `muster-agent check`.
//!
//! This file reads the facts; [`judge`] judges them. Nothing is written.

mod command;
mod judge;

pub use self::command::{COMMAND, execute};
pub use self::judge::OLDEST;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kube::Config;
use muster_shared::api::cluster::Cluster;
use muster_shared::check::{Answer, Asker, Clocks, Refusal, Verdict};
use muster_shared::client::{self, Life, Profile};
use muster_shared::clock::calendar;
use muster_shared::k8s::{Deployment, Lease, Secret, VersionInfo};
use muster_shared::names::CLUSTER_NAMESPACE;
use serde_json::{Value, json};

/// A member, and how it is asked.
pub struct Side {
    /// Asks the member's API.
    pub asker: Asker,
    /// Way to the member's API.
    pub config: Config,
    /// Namespace of the agent.
    pub namespace: String,
    /// Kubeconfig of the fleet API, in place of that in the agent's Secret.
    pub fleet: Option<PathBuf>,
    /// Longest time for one request.
    pub deadline: Duration,
}

/// Facts that were read from a member.
struct Facts {
    server: String,
    now: Timestamp,
    namespace: String,
    version: Answer<VersionInfo>,
    clocks: Answer<Clocks>,
    /// Identity of the member.
    id: Answer<String>,
    /// Deployments of agents in the namespace.
    agents: Answer<Vec<Deployment>>,
    /// The agent's flags.
    flags: Flags,
    /// Rights that the agent's account lacks in the member; `None` without an agent.
    lacking: Option<Answer<Vec<&'static str>>>,
    /// Way to the fleet with the agent's credentials.
    way: Answer<Way>,
    /// Answers of the fleet; `None` if it cannot be reached.
    fleet: Option<Fleet>,
}

/// Flags of the agent that the checks need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Flags {
    cluster: String,
    /// Whether the agent registers by itself.
    registers: bool,
}

/// Way to the fleet.
struct Way {
    server: String,
    credentials: Option<Life>,
    config: Config,
}

/// Answers of the fleet API to the agent.
struct Fleet {
    version: Answer<VersionInfo>,
    clocks: Answer<Clocks>,
    /// Identity of the fleet API's own cluster.
    id: Answer<String>,
    cluster: Answer<Cluster>,
    lease: Answer<Lease>,
}

/// Rights of the agent in its member that every preset has: verb, group, resource.
const RIGHTS: [(&str, &str, &str, &str); 4] = [
    ("list nodes", "list", "", "nodes"),
    ("list pods", "list", "", "pods"),
    ("get namespaces", "get", "", "namespaces"),
    ("patch deployments.apps", "patch", "apps", "deployments"),
];

impl Side {
    /// Checks a member with its agent.
    pub async fn check(&self) -> Vec<Verdict> {
        judge::check(&self.gather().await)
    }

    fn server(&self) -> String {
        client::address(&self.config)
    }

    async fn gather(&self) -> Facts {
        let asker = &self.asker;
        let path = format!("/apis/apps/v1/namespaces/{}/deployments", self.namespace);
        let agents: Answer<Vec<Deployment>> = asker.list(&path, "").await;
        let agents = agents.map(|all| all.into_iter().filter(is_agent).collect::<Vec<_>>());
        let agent = agents.as_ref().ok().and_then(|all| all.first());
        let flags = agent.map(flags).unwrap_or_default();
        let lacking = match agent {
            Some(agent) => Some(self.lacking(agent).await),
            None => None,
        };
        let way = self.way(agent).await;
        let fleet = match &way {
            Ok(way) => self.fleet(way, &flags.cluster).await.ok(),
            Err(_) => None,
        };
        Facts {
            server: self.server(),
            now: calendar(),
            namespace: self.namespace.clone(),
            version: asker.get("/version").await,
            clocks: asker.clocks().await,
            id: identity(asker).await,
            agents,
            flags,
            lacking,
            way,
            fleet,
        }
    }

    /// Asks which rights the agent's account lacks.
    async fn lacking(&self, agent: &Deployment) -> Answer<Vec<&'static str>> {
        let pod = agent.spec.as_ref().and_then(|it| it.template.spec.as_ref());
        let account = pod
            .and_then(|it| it.service_account_name.as_deref())
            .unwrap_or("default");
        let user = format!("system:serviceaccount:{}:{account}", self.namespace);
        let groups = ["system:serviceaccounts", "system:authenticated"];
        let who = (user.as_str(), &groups[..]);
        let mut lacking = Vec::new();
        for (words, verb, group, resource) in RIGHTS {
            let right = json!({"verb": verb, "group": group, "resource": resource});
            if !self.asker.may(Some(who), &right).await? {
                lacking.push(words);
            }
        }
        Ok(lacking)
    }

    /// Reads the agent's kubeconfig of the fleet API.
    async fn way(&self, agent: Option<&Deployment>) -> Answer<Way> {
        let failed = |error: client::Error| Refusal::Failed(error.to_string());
        let config = if let Some(file) = &self.fleet {
            client::kubeconfig(Some(file), None).await.map_err(failed)?
        } else {
            let none = || Refusal::Absent("there is no agent that names its Secret".to_owned());
            let (name, key) = agent.and_then(secret_of).ok_or_else(none)?;
            let path = format!("/api/v1/namespaces/{}/secrets/{name}", self.namespace);
            let secret: Secret = self.asker.get(&path).await?;
            let data = secret.data.unwrap_or_default();
            let text = data
                .get(&key)
                .and_then(|it| std::str::from_utf8(&it.0).ok());
            let missing = || Refusal::Absent(format!("Secret {name:?} has no key {key:?}"));
            let text = text.ok_or_else(missing)?;
            let title = format!("of Secret {name}");
            client::from_text(text, &title).await.map_err(failed)?
        };
        Ok(Way {
            server: client::address(&config),
            credentials: client::credentials(&config),
            config,
        })
    }

    async fn fleet(&self, way: &Way, cluster: &str) -> Result<Fleet, client::Error> {
        let asker = Asker::new(client::connect(&way.config, Profile::Write)?, self.deadline);
        let clusters = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}");
        let leases =
            format!("/apis/coordination.k8s.io/v1/namespaces/{CLUSTER_NAMESPACE}/leases/{cluster}");
        Ok(Fleet {
            version: asker.get("/version").await,
            clocks: asker.clocks().await,
            id: identity(&asker).await,
            cluster: asker.get(&clusters).await,
            lease: asker.get(&leases).await,
        })
    }
}

/// Reads the identity of a cluster.
async fn identity(asker: &Asker) -> Answer<String> {
    let namespace: Value = asker.get("/api/v1/namespaces/kube-system").await?;
    let uid = namespace["metadata"]["uid"].as_str();
    uid.map(str::to_owned)
        .ok_or_else(|| Refusal::Absent("namespace kube-system has no uid".to_owned()))
}

/// Returns the command lines of the containers of a Deployment.
fn words(deployment: &Deployment) -> impl Iterator<Item = &str> {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|it| it.template.spec.as_ref());
    let containers = pod.map_or(&[][..], |it| &it.containers);
    let words = containers
        .iter()
        .flat_map(|it| it.args.iter().chain(&it.command).flatten());
    words.map(String::as_str)
}

/// Returns whether a Deployment is an agent's, ours or Karmada's.
pub fn is_agent(deployment: &Deployment) -> bool {
    words(deployment).any(|it| it.starts_with("--karmada-kubeconfig="))
}

/// Reads the flags of an agent.
fn flags(agent: &Deployment) -> Flags {
    let mut flags = Flags::default();
    for word in words(agent) {
        if let Some(name) = word.strip_prefix("--cluster-name=") {
            name.clone_into(&mut flags.cluster);
        }
        flags.registers |= word.starts_with("--bootstrap-kubeconfig=");
    }
    flags
}

/// Returns the Secret with the agent's kubeconfig of the fleet API, and its key there.
fn secret_of(agent: &Deployment) -> Option<(String, String)> {
    let pod = agent.spec.as_ref()?.template.spec.as_ref()?;
    let mut files = words(agent).filter_map(|it| it.strip_prefix("--karmada-kubeconfig="));
    let file = files.next()?;
    let (folder, key) = file.rsplit_once('/')?;
    let mounts = pod
        .containers
        .iter()
        .flat_map(|it| it.volume_mounts.iter().flatten());
    let mount = mounts.into_iter().find(|it| it.mount_path == folder)?;
    let volume = pod
        .volumes
        .iter()
        .flatten()
        .find(|it| it.name == mount.name)?;
    let name = volume.secret.as_ref()?.secret_name.clone()?;
    Some((name, key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_and_the_secret_of_the_charts_agent_are_found() {
        let agent = json!({
            "metadata": {"name": "muster-agent", "labels": {"app.kubernetes.io/name": "muster-agent"}},
            "spec": {"selector": {}, "template": {"spec": {
                "containers": [{
                    "name": "agent",
                    "args": ["--karmada-kubeconfig=/etc/muster/fleet/kubeconfig", "--cluster-name=m1", "--bootstrap-kubeconfig=/b/c"],
                    "volumeMounts": [{"name": "fleet", "mountPath": "/etc/muster/fleet"}],
                }],
                "volumes": [{"name": "fleet", "secret": {"secretName": "fleet-of-m1"}}],
            }}},
        });
        let agent: Deployment = serde_json::from_value(agent).unwrap();
        assert!(is_agent(&agent));
        let expected = Flags {
            cluster: "m1".to_owned(),
            registers: true,
        };
        assert_eq!(flags(&agent), expected);
        let secret = ("fleet-of-m1".to_owned(), "kubeconfig".to_owned());
        assert_eq!(secret_of(&agent), Some(secret));
    }
}
