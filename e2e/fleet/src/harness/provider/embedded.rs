//! The embedded API: a server in this process, gone with it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use kube::config::Kubeconfig;

use super::{Ability, Cluster, Forget, Provider};
use muster_test_apiserver::{ApiServer, Options, Running};

/// Makes embedded APIs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Provider for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn abilities(&self) -> BTreeSet<Ability> {
        [
            Ability::CollectGarbage,
            Ability::Restart,
            Ability::KeepHistory,
        ]
        .into()
    }

    fn start<'a>(
        &'a self,
        name: &'a str,
        _directory: &'a Path,
    ) -> BoxFuture<'a, anyhow::Result<Box<dyn Cluster>>> {
        Box::pin(async move {
            let options = Options {
                name: name.to_owned(),
                ..Options::default()
            };
            let server = ApiServer::start(options).await?;
            Ok(Box::new(server) as Box<dyn Cluster>)
        })
    }
}

impl Cluster for Running {
    fn administrator(&self) -> anyhow::Result<Kubeconfig> {
        self.admin_kubeconfig()
            .context("making the administrator's kubeconfig")
    }

    fn restart(&self, forget: Forget, down: Duration) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            self.stop();
            tokio::time::sleep(down).await;
            Self::restart(self, forget);
            Ok(())
        })
    }
}
