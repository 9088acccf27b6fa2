//! Lines: the end of the network at one program.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Config;
use kube::client::Body;
use muster_shared::client::{Error, Gateway, Limits, Profile, ResponseBody};
use muster_test_apiserver::User;
use tokio::sync::Notify;
use tower::BoxError;

use super::Network;
use crate::history::{Actor, Api};

/// Domain of the servers of a simulation.
const DOMAIN: &str = "simulation";

/// The network as one program sees it. Once the program is killed, nothing that is left of it can
/// send or receive anything.
#[derive(Clone)]
pub struct Line(Arc<Inner>);

struct Inner {
    network: Arc<Network>,
    actor: Actor,
    users: Users,
    is_alive: AtomicBool,
    crashed: Notify,
}

impl Debug for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Line").field(self.actor()).finish()
    }
}

/// As whom APIs know a program.
#[derive(Clone, Debug)]
pub struct Users {
    /// The fleet API.
    pub fleet: User,
    /// The APIs of members.
    pub members: User,
    /// Its host name.
    pub host: String,
}

/// Returns the configuration of a client of an API.
pub fn config(api: &Api) -> Config {
    let url = format!("http://{api}.{DOMAIN}");
    Config::new(url.parse().unwrap_or_default())
}

impl Line {
    /// Returns the line of a program.
    pub fn new(network: &Arc<Network>, actor: Actor, users: Users) -> Self {
        Self(Arc::new(Inner {
            network: Arc::clone(network),
            actor,
            users,
            is_alive: AtomicBool::new(true),
            crashed: Notify::new(),
        }))
    }

    /// Returns the actor at this end of the line.
    pub fn actor(&self) -> &Actor {
        &self.0.actor
    }

    /// Returns whether the program still runs.
    pub fn is_alive(&self) -> bool {
        self.0.is_alive.load(Ordering::Relaxed)
    }

    /// Ends the program's part in the network.
    pub fn sever(&self) {
        self.0.is_alive.store(false, Ordering::Relaxed);
    }

    /// Kills the program at this moment, as a fault does.
    pub(super) fn crash(&self) {
        self.sever();
        self.0.crashed.notify_one();
    }

    /// Waits until a fault kills the program.
    pub async fn crashed(&self) {
        self.0.crashed.notified().await;
    }

    /// Returns a gateway to an API; `label` names it in metrics.
    pub fn gateway(&self, label: &'static str, api: &Api) -> Arc<Gateway> {
        Gateway::over(Arc::new(self.clone()), label, config(api))
    }

    /// Returns a client of an API.
    ///
    /// # Errors
    /// Never, as no connection is prepared.
    pub fn client(&self, api: &Api, profile: Profile) -> Result<kube::Client, Error> {
        self.gateway("simulation", api)
            .client(profile, Limits::NONE)
    }
}

impl muster_shared::client::Network for Line {
    fn send(
        &self,
        config: &Config,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, BoxError>> {
        let host = config.cluster_url.host().unwrap_or_default();
        let name = host.strip_suffix(DOMAIN).unwrap_or(host);
        let address = match name.trim_end_matches('.') {
            // Who is no process asks the host that counts.
            "fleet" if !matches!(self.0.actor, Actor::Process(_)) => {
                self.0.network.role(&Api::Fleet)
            }
            "fleet" => Api::Fleet,
            "standby" => Api::Standby,
            member => Api::Member(member.to_owned()),
        };
        let users = &self.0.users;
        let user = match &address {
            Api::Fleet | Api::Standby => users.fleet.clone(),
            Api::Member(_) => users.members.clone(),
        };
        let line = self.clone();
        Box::pin(Arc::clone(&self.0.network).carry(line, address, user, request))
    }

    fn host(&self) -> String {
        self.0.users.host.clone()
    }

    fn handshake(&self, host: &str, _: u16) -> BoxFuture<'static, Result<(), String>> {
        let name = host.strip_suffix(DOMAIN).unwrap_or(host);
        let member = Api::Member(name.trim_end_matches('.').to_owned());
        let line = self.clone();
        Box::pin(async move {
            let reached = line.0.network.reach(&line, &member).await;
            reached.map_err(|reset| reset.to_string())
        })
    }
}
