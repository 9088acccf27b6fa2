//! Writes of one priority.

use kube::Client;

use super::traffic::{Priority, Traffic};

/// Writes of one priority to one API. Cheap to clone.
///
/// The client of the priority is returned by [`when_idle`](Self::when_idle) only, so that no
/// request of this priority is sent before its writer has waited for more urgent ones.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    traffic: Traffic,
    priority: Priority,
}

impl Writer {
    pub(super) const fn new(client: Client, traffic: Traffic, priority: Priority) -> Self {
        Self {
            client,
            traffic,
            priority,
        }
    }

    /// Waits until no request of a higher priority is in flight, up to the longest time of this
    /// priority, and returns the client for the writes of one reconciliation.
    ///
    /// Wait before reading the object that is to be written: what was read before may be outdated
    /// afterwards.
    pub async fn when_idle(&self) -> Client {
        self.traffic.idle(self.priority).await;
        self.client.clone()
    }
}
