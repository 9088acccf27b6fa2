//! Gate of a gateway: whether the requests of its clients are sent.

use std::sync::Arc;

use tokio::sync::watch;

use super::Gateway;

/// State of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Requests are sent.
    Open,
    /// Requests wait for another state, because it is not known yet whether the server is the right
    /// one.
    Held,
    /// Requests fail for this reason.
    Closed(Arc<str>),
}

/// Reason why a request was not sent.
#[derive(Debug, thiserror::Error)]
#[error("nothing is sent: {0}")]
struct Closed(Arc<str>);

/// Waits until a request may be sent.
///
/// # Errors
/// When the gate is closed.
pub(super) async fn pass(gate: &mut watch::Receiver<Gate>) -> Result<(), kube::Error> {
    loop {
        let state = gate.borrow_and_update().clone();
        match state {
            Gate::Open => return Ok(()),
            Gate::Closed(why) => return Err(kube::Error::Service(Closed(why).into())),
            // Without a gateway the state does not change any more, and the request ends with its
            // caller's deadline.
            Gate::Held => {
                if gate.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }
}

impl Gateway {
    /// Changes whether the requests of all clients are sent, from the next request on.
    pub fn set_gate(&self, gate: Gate) {
        self.gate.send_if_modified(|state| {
            let changes = *state != gate;
            if changes {
                *state = gate;
            }
            changes
        });
    }
}
