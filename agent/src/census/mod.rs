//! What nodes and pods add up to, folded from watches into compact records.

use jiff::Timestamp;
use muster_shared::api::cluster::{NodeSummary, ResourceModel, ResourceSummary};
use muster_shared::k8s::Client;
use tokio_util::sync::CancellationToken;

/// The running sums.
#[derive(Clone)]
pub struct Census {
    started: Timestamp,
}

impl Census {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self {
            started: Timestamp::now(),
        }
    }

    /// Counts until shutdown.
    pub async fn run(self, member: Client, shutdown: CancellationToken) {
        let _ = member;
        shutdown.cancelled().await;
    }

    /// When counting began.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// The sums; `None` until everything was listed once.
    pub fn summary(&self, models: &[ResourceModel]) -> Option<(NodeSummary, ResourceSummary)> {
        let _ = models;
        None
    }

    /// Waits until the sums may have changed.
    pub async fn changed(&self) {
        std::future::pending().await
    }
}
