//! Requests to an API: what fails is reported with its step, and a name that is not there with what
//! may have been meant.

use anyhow::{Context as _, anyhow, bail, ensure};
use kube::api::ListParams;
use muster_control_plane::fleet::attribution::COMMAND;
use muster_shared::api::cluster::Cluster;
use muster_shared::check::listed;
use muster_shared::client::{self, Head};
use muster_shared::k8s::{Api, Client, Namespace, ResourceExt};
use muster_shared::names::is_cluster_name;
use strsim::levenshtein;

/// Name under which the commands write.
pub(super) const FIELD_MANAGER: &str = COMMAND;

/// Awaits an answer; the error names the step in a line.
pub(super) async fn call<T>(
    step: &str,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> anyhow::Result<T> {
    let answer = answer.await;
    answer.map_err(|error| anyhow!("{step}: {}", client::brief(&error)))
}

/// Awaits a deletion. Returns whether there was something to delete.
pub(super) async fn delete<T>(
    step: &str,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> anyhow::Result<bool> {
    let there = async {
        match answer.await {
            Err(error) if client::is_gone(&error) => Ok(false),
            answer => answer.map(|_| true),
        }
    };
    call(step, there).await
}

/// Reads the identity of a cluster: the uid of its namespace `kube-system`, as agents report it.
pub(super) async fn identify(client: &Client, step: &str) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = call(step, namespaces.get("kube-system")).await?;
    found.uid().context("namespace kube-system has no uid")
}

/// Fails for what is not the name of a cluster.
pub(super) fn require_name(name: &str) -> anyhow::Result<()> {
    ensure!(
        is_cluster_name(name),
        "{name:?} is not the name of a cluster: lower-case letters, digits and dashes, at most 48"
    );
    Ok(())
}

/// Reads a cluster; the error says what may have been meant.
pub(super) async fn find_cluster(client: &Client, name: &str) -> anyhow::Result<Cluster> {
    let api: Api<Cluster> = Api::all(client.clone());
    // A request without a name would be one for a list.
    if !name.is_empty()
        && let Some(cluster) = call("read the Cluster", client::get_opt(&api, name)).await?
    {
        return Ok(cluster);
    }
    let api = Api::all(client.clone());
    let whole = ListParams::default();
    let all = call("list clusters", Head::<Cluster>::list(&api, &whole)).await?;
    let names: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();
    Err(no_cluster(name, &names))
}

/// Returns the error for a name that none of the clusters has.
pub(super) fn no_cluster(name: &str, names: &[String]) -> anyhow::Error {
    if name.is_empty() {
        return anyhow!("the name of a cluster is empty");
    }
    anyhow!("there is no cluster {name:?}{}", instead(name, names))
}

/// Names listed at most.
const LISTED: usize = 10;

/// Says what may have been meant by a name that is not there.
pub(super) fn instead(name: &str, names: &[String]) -> String {
    let wanted = name.to_lowercase();
    let far = |other: &str| {
        let other = other.to_lowercase();
        let is_part = other.contains(&wanted) || wanted.contains(&other);
        let distance = levenshtein(&wanted, &other);
        if is_part { distance.min(2) } else { distance }
    };
    let nearest = names.iter().map(|it| far(it)).min().filter(|it| *it <= 2);
    let near = names.iter().filter(|it| Some(far(it)) == nearest);
    let meant: Vec<&str> = near.map(String::as_str).take(3).collect();
    if !meant.is_empty() {
        return format!(": is it {}?", meant.join(" or "));
    }
    if names.is_empty() {
        return ", nor any other: is this the fleet API?".to_owned();
    }
    format!(": there are {}", listed(names, LISTED))
}

/// Fails for a namespace that is not there. What may not be read is taken to be there.
pub(super) async fn require_namespace(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    if !matches!(client::get_metadata_opt(&api, namespace).await, Ok(None)) {
        return Ok(());
    }
    let all = api.list_metadata(&ListParams::default()).await;
    let names = all.map(|it| it.items.iter().map(ResourceExt::name_any).collect());
    let names: Vec<String> = names.unwrap_or_default();
    bail!(
        "there is no namespace {namespace:?}{}",
        instead(namespace, &names)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn there_was_nothing_to_delete_only_if_the_api_says_so_of_the_object() {
        let refused = |name: &str| {
            let details = json!({ "name": name });
            let status = json!({
                "code": 404, "reason": "NotFound", "message": "no", "details": details,
            });
            let status = serde_json::from_value(status).unwrap();
            Err(kube::Error::Api(Box::new(status)))
        };
        let delete =
            |answer: Result<(), kube::Error>| delete("remove it", std::future::ready(answer));
        assert!(delete(Ok(())).await.unwrap());
        assert!(!delete(refused("web")).await.unwrap());
        let unserved = delete(refused("")).await;
        assert!(unserved.is_err(), "the kind is not served now");
    }

    #[test]
    fn a_typing_error_is_answered_with_what_may_have_been_meant() {
        let names = ["member1", "member2", "eu-west"].map(str::to_owned);
        for (name, expected) in [
            ("membr1", ": is it member1?"),
            ("Member2", ": is it member2?"),
            ("member3", ": is it member1 or member2?"),
            ("west", ": is it eu-west?"),
            ("asia", ": there are member1, member2, eu-west"),
        ] {
            assert_eq!(instead(name, &names), expected, "{name}");
        }
        assert!(instead("x", &[]).contains("fleet API"));
        for (name, expected) in [
            ("membr1", "there is no cluster \"membr1\": is it member1?"),
            ("", "the name of a cluster is empty"),
        ] {
            assert_eq!(no_cluster(name, &names).to_string(), expected);
        }
        let many: Vec<String> = (0..12).map(|n| format!("cluster-{n}")).collect();
        assert!(instead("zzz", &many).ends_with("and 2 more"));
    }
}
