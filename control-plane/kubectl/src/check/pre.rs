//! Checks before an installation: of the host cluster, of an API that is to become the fleet API,
//! and of a cluster that is to become a member.

use jiff::Timestamp;
use kube::Config;
use muster_agent::check::{self as agent, is_agent};
use muster_shared::check::common::{clock, life, reach};
use muster_shared::check::{Answer, Asker, Category, Clocks, Verdict, listed};
use muster_shared::client::{self, Life};
use muster_shared::clock::calendar;
use muster_shared::k8s::{Deployment, ResourceExt as _, VersionInfo};
use serde_json::Value;

use super::fleet_api::{OLDEST, dedicated, unfitness};
use super::rights::{self, Right, missing};

/// Names that one line lists.
const MOST: usize = 5;
/// Annotation of the storage class that claims without a class get.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Facts that are known before an installation.
struct Facts {
    server: String,
    now: Timestamp,
    credentials: Option<Life>,
    version: Answer<VersionInfo>,
    clocks: Answer<Clocks>,
    lacking: Answer<Vec<Right>>,
}

async fn facts(asker: &Asker, config: &Config, rights: &[Right]) -> Facts {
    Facts {
        server: client::address(config),
        now: calendar(),
        credentials: client::credentials(config),
        version: asker.get("/version").await,
        clocks: asker.clocks().await,
        lacking: rights::lacking(asker, None, rights).await,
    }
}

/// Checks a cluster that is to be the host of the control plane and of a bundled fleet API.
pub(super) async fn host(asker: &Asker, config: &Config, namespace: &str) -> Vec<Verdict> {
    let facts = facts(asker, config, &rights_at_host(namespace)).await;
    let classes: Answer<Vec<Value>> = asker
        .list("/apis/storage.k8s.io/v1/storageclasses", "")
        .await;
    let parts = "&labelSelector=app.kubernetes.io%2Fpart-of%3Dmuster";
    let there: Answer<Vec<Deployment>> = asker.list("/apis/apps/v1/deployments", parts).await;
    let mut category = Category::new("Host cluster");
    if !common(&mut category, &facts, "the host cluster", OLDEST) {
        return category.into_verdicts();
    }
    may_install(&mut category, &facts.lacking);
    storage(&mut category, &classes);
    installed(&mut category, &there, namespace);
    category.into_verdicts()
}

fn rights_at_host(namespace: &str) -> Vec<Right> {
    let mut rights = vec![
        Right::new("create", "", "namespaces"),
        Right::new("create", "scheduling.k8s.io", "priorityclasses"),
    ];
    for (group, resource) in [
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("batch", "cronjobs"),
        ("", "services"),
        ("", "secrets"),
        ("", "configmaps"),
        ("", "serviceaccounts"),
        ("policy", "poddisruptionbudgets"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
    ] {
        rights.push(Right::new("create", group, resource).within(namespace, ""));
    }
    rights
}

/// Checks an API that is to be the fleet API.
pub(super) async fn fleet(asker: &Asker, config: &Config) -> Vec<Verdict> {
    let rights: Vec<Right> = [
        ("", "namespaces"),
        ("", "serviceaccounts"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
        ),
    ]
    .map(|(group, resource)| Right::new("create", group, resource))
    .to_vec();
    let facts = facts(asker, config, &rights).await;
    let unfit = unfitness(asker).await;
    let clusters: Answer<Value> = asker.get("/apis/cluster.karmada.io/v1alpha1").await;
    let mut category = Category::new("Fleet API");
    if !common(&mut category, &facts, "the fleet API", OLDEST) {
        return category.into_verdicts();
    }
    may_install(&mut category, &facts.lacking);
    dedicated(&mut category, &unfit, "would be");
    match clusters {
        Ok(_) => category.ok(
            "kinds",
            "kinds of karmada.io are served already: of Karmada, which keep, or of an earlier version, which are upgraded",
        ),
        Err(refusal) if refusal.is_absent() => {
            category.ok("kinds", "no kinds of karmada.io are in the way");
        }
        Err(refusal) => category.unknown("kinds", "the kinds of karmada.io", &refusal),
    }
    category.into_verdicts()
}

/// Checks a cluster that is to become a member.
pub(super) async fn member(asker: &Asker, config: &Config) -> Vec<Verdict> {
    let facts = facts(asker, config, &[Right::new("*", "*", "*")]).await;
    let there: Answer<Vec<Deployment>> = asker.list("/apis/apps/v1/deployments", "").await;
    let mut category = Category::new("Member");
    if !common(&mut category, &facts, "the member", agent::OLDEST) {
        return category.into_verdicts();
    }
    match &facts.lacking {
        Ok(lacking) if lacking.is_empty() => {
            category.ok("own-rights", "you may grant the agent its rights");
        }
        Ok(_) => category.error(
            "own-rights",
            "you are no administrator of this cluster",
            "Kubernetes lets only those grant rights who have them: install the agent with the kubeconfig of an administrator.",
        ),
        Err(refusal) => category.unknown("own-rights", "your rights", refusal),
    }
    let agents = there.map(|all| places(all.iter().filter(|it| is_agent(it))));
    match agents {
        Ok(agents) if agents.is_empty() => category.ok("not-installed", "no agent is there yet"),
        Ok(agents) => category.warning(
            "not-installed",
            format!("agents are there: {}", listed(&agents, MOST)),
            "A Karmada agent has to go before another one manages its objects. Of our own: run the check without --pre.",
        ),
        Err(refusal) => category.unknown("not-installed", "other agents", &refusal),
    }
    category.into_verdicts()
}

/// Returns the namespaces and names of Deployments.
fn places<'a>(all: impl Iterator<Item = &'a Deployment>) -> Vec<String> {
    let place =
        |it: &Deployment| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any());
    all.map(place).collect()
}

/// Checks what every API needs. Returns whether it answers.
fn common(category: &mut Category, facts: &Facts, whose: &str, oldest: (u32, u32)) -> bool {
    if !reach(category, &facts.server, &facts.version, oldest) {
        return false;
    }
    clock(category, whose, &facts.clocks);
    let hint = "Ask who gave you the kubeconfig for another.";
    life(
        category,
        "own-credentials",
        "your credentials",
        facts.credentials,
        facts.now,
        hint,
    );
    true
}

/// Checks the rights of whoever is to install the control plane or its kinds.
fn may_install(category: &mut Category, lacking: &Answer<Vec<Right>>) {
    match lacking {
        Ok(lacking) if lacking.is_empty() => {
            category.ok("own-rights", "you may create what an installation creates");
        }
        Ok(lacking) => category.error(
            "own-rights",
            format!("you may not {}", missing(lacking)),
            "Install with the kubeconfig of an administrator.",
        ),
        Err(refusal) => category.unknown("own-rights", "your rights", refusal),
    }
}

fn storage(category: &mut Category, classes: &Answer<Vec<Value>>) {
    let name = "storage-class";
    let classes = match classes {
        Ok(classes) => classes,
        Err(refusal) => return category.unknown(name, "the storage classes", refusal),
    };
    let title = |it: &Value| {
        it["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let default = classes
        .iter()
        .find(|it| it["metadata"]["annotations"][DEFAULT_CLASS] == "true");
    if let Some(class) = default {
        let message = format!("volumes of etcd are of class {}", title(class));
        return category.ok(name, message);
    }
    let names: Vec<String> = classes.iter().map(title).collect();
    let there = if names.is_empty() {
        "none".to_owned()
    } else {
        listed(&names, MOST)
    };
    category.warning(
        name,
        format!("no storage class is the default, and etcd needs a volume; there are: {there}"),
        "Set fleetApi.etcd.storage.className and fleetApi.etcd.snapshots.className, or use fleetApi.mode=external.",
    );
}

fn installed(category: &mut Category, there: &Answer<Vec<Deployment>>, namespace: &str) {
    let name = "not-installed";
    let there = match there {
        Ok(there) => there,
        Err(refusal) => return category.unknown(name, "other installations", refusal),
    };
    let of_control_plane = there.iter().filter(|it| {
        let labels = it.labels();
        labels
            .get("app.kubernetes.io/name")
            .is_some_and(|it| it == "muster-control-plane")
    });
    let places = places(of_control_plane);
    if places.is_empty() {
        category.ok(name, "no control plane is installed yet");
    } else if places
        .iter()
        .any(|it| it.starts_with(&format!("{namespace}/")))
    {
        let message = format!("a control plane is installed: {}", listed(&places, MOST));
        category.warning(
            name,
            message,
            "helm upgrade it, and run the check without --pre.",
        );
    } else {
        category.warning(
            name,
            format!(
                "a control plane is installed in another namespace: {}",
                listed(&places, MOST)
            ),
            "Two in one cluster work with releases of different names, each with its own fleet.",
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_shared::check::Status;
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn status(check: impl FnOnce(&mut Category)) -> Status {
        let mut category = Category::new("x");
        check(&mut category);
        category.into_verdicts()[0].status
    }

    #[test]
    fn etcd_needs_a_default_storage_class() {
        let class = |default: &str| json!({"metadata": {"name": "a", "annotations": {DEFAULT_CLASS: default}}});
        for (classes, expected) in [
            (vec![], Status::Warning),
            (vec![class("false")], Status::Warning),
            (vec![class("false"), class("true")], Status::Ok),
        ] {
            assert_eq!(status(|it| storage(it, &Ok(classes))), expected);
        }
    }

    #[tokio::test]
    async fn a_member_is_joined_by_an_administrator_and_has_no_agent_yet() {
        let container = json!({"name": "agent", "args": ["--karmada-kubeconfig=/x"]});
        let agent = json!({
            "metadata": {"name": "karmada-agent", "namespace": "karmada-system"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}},
        });
        for (is_administrator, agents, name, expected) in [
            (true, json!([]), "own-rights", Status::Ok),
            (false, json!([]), "own-rights", Status::Error),
            (true, json!([]), "not-installed", Status::Ok),
            (true, json!([agent]), "not-installed", Status::Warning),
        ] {
            let client = fixtures::api(move |request| {
                let document = match request.uri().path() {
                    "/version" => json!({"gitVersion": "v1.35.0"}),
                    "/apis/apps/v1/deployments" => json!({"items": agents}),
                    _ => json!({"status": {"allowed": is_administrator}}),
                };
                (200, document)
            });
            let asker = Asker::new(client, Duration::from_secs(5));
            let config = Config::new("https://member".parse().unwrap());
            let verdicts = member(&asker, &config).await;
            let found = verdicts.iter().find(|it| it.name == name).unwrap();
            assert_eq!(found.status, expected, "{found:?}");
        }
    }

    #[test]
    fn a_second_installation_is_reported() {
        let deployment = |namespace: &str, chart: &str| {
            let labels = json!({"app.kubernetes.io/name": chart});
            serde_json::from_value(
                json!({"metadata": {"name": "a", "namespace": namespace, "labels": labels}}),
            )
            .unwrap()
        };
        for (there, expected) in [
            (vec![], Status::Ok),
            (vec![deployment("a", "muster-agent")], Status::Ok),
            (
                vec![deployment("a", "muster-control-plane")],
                Status::Warning,
            ),
            (
                vec![deployment("b", "muster-control-plane")],
                Status::Warning,
            ),
        ] {
            assert_eq!(status(|it| installed(it, &Ok(there), "a")), expected);
        }
    }
}
