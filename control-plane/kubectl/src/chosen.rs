//! The clusters that a command is about, named or selected as kubectl's users name and select
//! objects.

use std::collections::BTreeSet;

use anyhow::{bail, ensure};
use clap::{Arg, Args};
use kube::ResourceExt;
use kube::api::ListParams;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use muster_shared::k8s::{Api, Client};

use super::request::{call, find_cluster};

/// Words that stand for the kind.
pub(super) const KIND: [&str; 5] = [
    "cluster",
    "clusters",
    "cl",
    "cluster.cluster.karmada.io",
    "clusters.cluster.karmada.io",
];

/// Clusters by name or by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(super) struct Clusters {
    /// Names of Clusters: `a b`, `a,b`, `cluster/a` or `clusters a b`.
    #[arg(value_name = "CLUSTER", value_delimiter = ',', value_parser = word)]
    clusters: Vec<String>,
    /// Clusters with these labels, such as `region=eu,tier!=test`, in place of names.
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = selector)]
    selector: Option<String>,
}

/// Requires names or a selector.
pub(super) fn required(clusters: Arg) -> Arg {
    clusters.required_unless_present("selector")
}

/// Returns the name of a cluster, which may be behind its kind.
pub(super) fn name(word: &str) -> Result<String, String> {
    behind("cluster", &KIND, word)
}

/// Returns the name of an object, which may be behind one of the words for its kind.
pub(super) fn behind(kind: &str, kinds: &[&str], word: &str) -> Result<String, String> {
    match word.split_once('/') {
        None => Ok(word.to_owned()),
        Some((own, name)) if kinds.contains(&own) && !name.is_empty() => Ok(name.to_owned()),
        Some((_, name)) => Err(format!("a {kind} is meant: write {kind}/{name}")),
    }
}

/// Reads the name of a cluster, with its kind or without.
pub(super) fn word(word: &str) -> Result<String, String> {
    name(word).map(|_| word.to_owned())
}

/// Reads a selector. The API says what is wrong with one that is not empty.
pub(super) fn selector(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty, and would select everything".to_owned());
    }
    Ok(text.to_owned())
}

impl Clusters {
    /// Makes a choice of words that name clusters, with or without their kind.
    pub fn of(words: Vec<String>, selector: Option<String>) -> Self {
        Self {
            clusters: words,
            selector,
        }
    }

    /// Returns the choice with further names.
    pub fn and(&self, more: &[String]) -> Self {
        let words = [self.clusters.as_slice(), more].concat();
        Self::of(words, self.selector.clone())
    }

    /// Returns the choice for a command that may be about all clusters, for which the kind alone
    /// stands.
    pub fn or_all(&self) -> Self {
        Self::of(self.names(), self.selector.clone())
    }

    /// Returns the selector that was given.
    pub fn selector(&self) -> Option<&str> {
        self.selector.as_deref()
    }

    /// Returns the names that were given, without their kind.
    fn names(&self) -> Vec<String> {
        let words = match self.clusters.split_first() {
            Some((kind, names)) if KIND.contains(&kind.as_str()) => names,
            _ => &self.clusters,
        };
        words.iter().filter_map(|it| name(it).ok()).collect()
    }

    /// Returns the names of the clusters that are meant; `None` if none is named. A selector may
    /// match none.
    ///
    /// # Errors
    /// When the selector cannot be asked for, and where the kind stands without names.
    pub async fn names_by(&self, client: &Client) -> anyhow::Result<Option<Vec<String>>> {
        let names = self.names();
        let Some(selector) = &self.selector else {
            ensure!(
                !names.is_empty() || self.clusters.is_empty(),
                "the names are missing: write cluster/NAME, or -l with a selector"
            );
            return Ok(Some(names).filter(|it| !it.is_empty()));
        };
        ensure!(
            names.is_empty(),
            "give names or a selector, not {} and -l {selector}",
            names.join(" ")
        );
        Ok(Some(selected(client, selector).await?))
    }

    /// Returns the names of the clusters that are to be shown, each of which is there.
    ///
    /// # Errors
    /// As [`Self::names_by`], and for a name that is not there.
    pub async fn seen(&self, client: &Client) -> anyhow::Result<Option<Vec<String>>> {
        for name in self.names() {
            find_cluster(client, &name).await?;
        }
        self.names_by(client).await
    }

    /// Returns the names of the clusters that an order is about, each once, in their order; `None`
    /// if none is named.
    ///
    /// # Errors
    /// As [`Self::names_by`], and where a selector matches no cluster.
    pub async fn ordered(&self, client: &Client) -> anyhow::Result<Option<Vec<String>>> {
        let mut names = self.names_by(client).await?;
        if let (Some([]), Some(selector)) = (names.as_deref(), &self.selector) {
            bail!("{}", nobody(selector));
        }
        if let Some(names) = &mut names {
            let mut known = BTreeSet::new();
            names.retain(|it| known.insert(it.clone()));
        }
        Ok(names)
    }
}

/// Returns what is said of a selector that matches no cluster.
pub(super) fn nobody(selector: &str) -> String {
    format!(
        "no Cluster has labels that {selector:?} matches: kubectl get clusters --show-labels shows them"
    )
}

/// Returns the names of the clusters that a selector matches, by the API's own judgement.
pub(super) async fn selected(client: &Client, selector: &str) -> anyhow::Result<Vec<String>> {
    let api: Api<Head<Cluster>> = Api::all(client.clone());
    let these = ListParams::default().labels(selector);
    let found = call("list clusters", Head::<Cluster>::list(&api, &these)).await?;
    Ok(found.items.iter().map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn chosen(words: &[&str], selector: Option<&str>) -> Clusters {
        let words = words.iter().map(|it| word(it).unwrap());
        Clusters::of(words.collect(), selector.map(str::to_owned))
    }

    #[test]
    fn clusters_are_named_as_kubectl_names_objects() {
        for (words, expected) in [
            (&["a", "b"][..], &["a", "b"][..]),
            (&["cluster/a", "clusters/b"], &["a", "b"]),
            (&["clusters", "a", "b"], &["a", "b"]),
            (&["clusters.cluster.karmada.io/a"], &["a"]),
            (&["cluster/cluster"], &["cluster"]),
            (&["cluster"], &[]),
        ] {
            assert_eq!(chosen(words, None).names(), expected, "{words:?}");
        }
        for wrong in ["pod/a", "cluster/"] {
            assert!(word(wrong).unwrap_err().contains("cluster/"), "{wrong}");
        }
        selector(" ").unwrap_err();
    }

    #[tokio::test]
    async fn a_selector_is_judged_by_the_api_and_none_is_no_order_to_the_whole_fleet() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let client = fixtures::api(move |request| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let items = if query.contains("eu") {
                json!([{"metadata": {"name": "m1"}}, {"metadata": {"name": "m2"}}])
            } else {
                json!([])
            };
            seen.lock().push(query);
            (200, json!({"metadata": {}, "items": items}))
        });
        let of = async |words: &[&str], selector| chosen(words, selector).ordered(&client).await;
        let found = of(&["clusters"], Some("region in (eu)")).await.unwrap();
        assert_eq!(found.unwrap(), ["m1", "m2"]);
        assert!(asked.lock()[0].contains("labelSelector=region+in+%28eu%29"));
        assert_eq!(of(&[], None).await.unwrap(), None);
        let found = of(&["m2", "m1", "m2"], None).await.unwrap();
        assert_eq!(found.unwrap(), ["m2", "m1"]);
        for (words, selector, part) in [
            (&[][..], Some("region=asia"), "no Cluster has labels"),
            (&["m1"], Some("region=eu"), "not m1 and -l region=eu"),
            (&["clusters"], None, "names are missing"),
        ] {
            let reported = of(words, selector).await.unwrap_err().to_string();
            assert!(reported.contains(part), "{reported}");
        }
        assert_eq!(
            chosen(&["clusters"], None)
                .or_all()
                .names_by(&client)
                .await
                .unwrap(),
            None
        );
    }
}
