//! Where Kubernetes APIs come from. A scenario never knows which provider it has, except through [`Abilities`].

mod embedded;

use std::path::Path;

use futures::future::BoxFuture;
use kube::config::Kubeconfig;

pub use embedded::Embedded;

/// What clusters of a provider can and cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Pods really start there. Otherwise the harness plays kubelets and workload controllers.
    pub runs_pods: bool,
    /// Owner references are followed and namespaces emptied when they go.
    pub collects_garbage: bool,
}

/// Makes Kubernetes APIs.
pub trait Provider: Send + Sync {
    /// Name for reports.
    fn name(&self) -> &'static str;
    /// What its clusters can do.
    fn abilities(&self) -> Abilities;
    /// Starts (or finds) the API of that name; files go below `directory`. It ends when dropped.
    fn start<'a>(
        &'a self,
        name: &'a str,
        directory: &'a Path,
    ) -> BoxFuture<'a, anyhow::Result<Box<dyn Cluster>>>;
}

/// One running Kubernetes API.
pub trait Cluster: Send + Sync {
    /// Access for somebody who may do everything.
    fn administrator(&self) -> anyhow::Result<Kubeconfig>;
}
