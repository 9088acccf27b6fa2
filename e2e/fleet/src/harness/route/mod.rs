//! The way of one party to one API, on which everything can go wrong that goes wrong between two
//! machines.
//!
//! Every agent and the control plane have routes of their own, so that one party can lose another
//! while everybody else, the test included, still reaches both. What can be done to one:
//!
//! | what | how |
//! |---|---|
//! | packets are lost | [`Route::set`] with a [`Condition`] |
//! | the party's clock is wrong | [`Route::set_clock`] |
//!
//! Both work in front of every provider's API; restarting the API itself is the provider's
//! ([`Cluster::restart`](super::provider::Cluster::restart)). Errors (429, 500, 503), requests that
//! hang or are held, and watches that break are injected into the embedded server, for everybody or
//! for one user and path: `muster_test_apiserver::faults`.

pub mod clock;
pub mod clock_proxy;
pub mod tcp_path;

use jiff::SignedDuration;
use kube::config::Kubeconfig;

pub use tcp_path::Condition;

use clock_proxy::ClockProxy;
use tcp_path::TcpPath;

/// A way to an API. Dropping it closes every connection on it.
#[derive(Debug)]
pub struct Route {
    path: TcpPath,
    proxy: ClockProxy,
}

impl Route {
    /// Opens a way to the API that the kubeconfig describes.
    pub async fn open(target: &Kubeconfig) -> anyhow::Result<Self> {
        let proxy = ClockProxy::open(target).await?;
        Ok(Self {
            path: TcpPath::open(proxy.address()).await?,
            proxy,
        })
    }

    /// Returns a kubeconfig with the same identity that leads this way. The identity must show a
    /// token: certificates end at the proxy.
    pub fn kubeconfig(&self, identity: Kubeconfig) -> Kubeconfig {
        self.proxy.admit(identity, self.path.address())
    }

    /// Changes the state of the network, for live connections too.
    pub fn set(&self, condition: Condition) {
        self.path.set(condition);
    }

    /// Makes the clock of the party on this way wrong by this much, ahead if positive; see
    /// [`clock`].
    pub fn set_clock(&self, wrong_by: SignedDuration) {
        self.proxy.set_clock(wrong_by);
    }

    /// Lets everything pass again; a wrong clock stays wrong.
    pub fn heal(&self) {
        self.set(Condition::Up);
    }

    /// Returns what is wrong on this way, for reports; `None` if nothing is.
    pub fn trouble(&self) -> Option<String> {
        let (network, clock) = (self.path.condition(), self.proxy.clock());
        let mut troubles = Vec::new();
        if network != Condition::Up {
            troubles.push(format!("network {network:?}"));
        }
        if !clock.is_zero() {
            troubles.push(format!("clock wrong by {clock:#}"));
        }
        (!troubles.is_empty()).then(|| troubles.join(", "))
    }
}
