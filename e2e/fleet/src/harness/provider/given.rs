//! Clusters that somebody else made: those of `kind`, and any whose kubeconfigs are given by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use kube::config::Kubeconfig;

use super::{Ability, Cluster, Provider};

/// The environment variable with the kubeconfigs.
pub const KUBECONFIGS: &str = "MUSTER_E2E_KUBECONFIGS";
/// What the given clusters can do: `pods`, `garbage`, with a comma between.
pub const ABILITIES: &str = "MUSTER_E2E_ABILITIES";
/// Where `e2e/kind/up` writes its kubeconfigs, `NAME.kubeconfig` each.
pub const KIND: &str = "MUSTER_E2E_KIND";

/// The fleet API among the names.
const FLEET: &str = "fleet";

/// Finds clusters by name.
#[derive(Clone, Debug)]
pub struct Given {
    name: &'static str,
    kubeconfigs: BTreeMap<String, PathBuf>,
    abilities: BTreeSet<Ability>,
}

impl Given {
    /// Returns a provider of the clusters with these names and kubeconfigs.
    pub fn of<const N: usize>(
        kubeconfigs: [(&str, &str); N],
        name: &'static str,
        abilities: impl IntoIterator<Item = Ability>,
    ) -> Self {
        let kubeconfigs = kubeconfigs.map(|(name, path)| (name.to_owned(), path.into()));
        Self {
            name,
            kubeconfigs: kubeconfigs.into(),
            abilities: abilities.into_iter().collect(),
        }
    }

    /// Returns a provider of the clusters that the environment names.
    pub fn from_environment() -> anyhow::Result<Self> {
        let text = std::env::var(KUBECONFIGS)
            .with_context(|| format!("the provider given needs {KUBECONFIGS}=fleet=PATH,..."))?;
        let kubeconfigs = parse(&text).with_context(|| format!("{KUBECONFIGS}={text:?}"))?;
        let text = std::env::var(ABILITIES).unwrap_or_default();
        let abilities = text.split(',').filter(|word| !word.is_empty());
        let abilities = abilities.map(|word| match word {
            "pods" => Ok(Ability::RunPods),
            "garbage" => Ok(Ability::CollectGarbage),
            _ => bail!("{ABILITIES}: unknown word {word:?}: there are pods and garbage"),
        });
        Ok(Self {
            name: "given",
            kubeconfigs,
            abilities: abilities.collect::<Result<_, _>>()?,
        })
    }

    /// Returns a provider of the clusters that `e2e/kind/up` made.
    pub fn kind() -> anyhow::Result<Self> {
        let folder = std::env::var(KIND).with_context(|| {
            format!("the provider kind needs {KIND}, the folder of e2e/kind/up")
        })?;
        let mut kubeconfigs = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {folder}"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.and_then(|name| name.strip_suffix(".kubeconfig")) {
                kubeconfigs.insert(name.to_owned(), path.clone());
            }
        }
        if !kubeconfigs.contains_key(FLEET) {
            bail!("{folder} has no fleet.kubeconfig: run e2e/kind/up");
        }
        Ok(Self {
            name: "kind",
            kubeconfigs,
            abilities: [Ability::RunPods, Ability::CollectGarbage].into(),
        })
    }
}

/// Reads `name=path,...`; a fleet and at least one member.
fn parse(text: &str) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for pair in text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (name, path) = pair
            .split_once('=')
            .with_context(|| format!("{pair:?} is not name=path"))?;
        if found.insert(name.to_owned(), path.into()).is_some() {
            bail!("{name:?} is named twice");
        }
    }
    if !found.contains_key(FLEET) || found.len() < 2 {
        bail!("a {FLEET} and at least one member are needed");
    }
    Ok(found)
}

impl Provider for Given {
    fn name(&self) -> &'static str {
        self.name
    }

    fn abilities(&self) -> BTreeSet<Ability> {
        self.abilities.clone()
    }

    fn most_members(&self) -> usize {
        self.kubeconfigs.len().saturating_sub(1)
    }

    fn patience(&self) -> u32 {
        4
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn start<'a>(
        &'a self,
        name: &'a str,
        _directory: &'a Path,
    ) -> BoxFuture<'a, anyhow::Result<Box<dyn Cluster>>> {
        Box::pin(async move {
            let known: Vec<&String> = self.kubeconfigs.keys().collect();
            let path = self
                .kubeconfigs
                .get(name)
                .with_context(|| format!("there is no cluster {name:?}, only {known:?}"))?;
            let kubeconfig = Kubeconfig::read_from(path)
                .with_context(|| format!("reading {}", path.display()))?;
            Ok(Box::new(Access(kubeconfig)) as Box<dyn Cluster>)
        })
    }
}

struct Access(Kubeconfig);

impl Cluster for Access {
    fn administrator(&self) -> anyhow::Result<Kubeconfig> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfigs_are_named_once_and_a_fleet_is_among_them() {
        let good = parse("fleet=/a, member1=/b").unwrap();
        assert_eq!(good["member1"], PathBuf::from("/b"));
        for (text, problem) in [
            ("member1=/b,member2=/c", "a fleet and at least one member"),
            ("fleet=/a", "a fleet and at least one member"),
            ("fleet=/a,fleet=/b", "named twice"),
            ("fleet", "is not name=path"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
