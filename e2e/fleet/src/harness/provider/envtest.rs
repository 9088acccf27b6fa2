//! Real APIs from released binaries, as child processes of this one.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use kube::config::Kubeconfig;
use tokio::sync::Mutex;

use super::{Ability, Cluster, Forget, Provider};
use crate::harness::envtest::{ASSETS, Envtest, Options};

/// Makes APIs from the binaries in one folder.
#[derive(Clone, Debug)]
pub struct Released {
    options: Options,
}

impl Released {
    /// Returns a provider with the binaries that the environment names.
    pub fn from_environment() -> anyhow::Result<Self> {
        let options = Options::from_environment()?;
        let options = options.with_context(|| {
            format!("the provider envtest needs {ASSETS}, a folder of binaries")
        })?;
        Ok(Self { options })
    }
}

impl Provider for Released {
    fn name(&self) -> &'static str {
        "envtest"
    }

    fn abilities(&self) -> BTreeSet<Ability> {
        let mut abilities = BTreeSet::from([Ability::Restart]);
        if self.options.has_manager() {
            abilities.insert(Ability::CollectGarbage);
        }
        abilities
    }

    fn patience(&self) -> u32 {
        // A handful of etcds and kube-apiservers start side by side on whatever machine this is.
        3
    }

    fn start<'a>(
        &'a self,
        name: &'a str,
        directory: &'a Path,
    ) -> BoxFuture<'a, anyhow::Result<Box<dyn Cluster>>> {
        Box::pin(async move {
            let options = Options {
                directory: Some(directory.join("envtest").join(name)),
                ..self.options.clone()
            };
            let api = Envtest::start(options).await?;
            let administrator = api.kubeconfig()?;
            Ok(Box::new(Started {
                administrator,
                api: Mutex::new(api),
            }) as Box<dyn Cluster>)
        })
    }
}

struct Started {
    administrator: Kubeconfig,
    api: Mutex<Envtest>,
}

impl Cluster for Started {
    fn administrator(&self) -> anyhow::Result<Kubeconfig> {
        Ok(self.administrator.clone())
    }

    /// Restarts the API; the history of watches is in the memory of kube-apiserver, so that it is
    /// always lost.
    fn restart(&self, _forget: Forget, down: Duration) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move { self.api.lock().await.restart(down).await })
    }
}
