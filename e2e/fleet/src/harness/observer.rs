//! What can be seen of a fleet from outside: through the APIs, by watches, on paths that no fault
//! touches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::watch::{Followed, Informer, Selection};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The workloads of one member.
#[derive(Clone)]
pub struct MemberView {
    /// Its Deployments.
    pub deployments: Informer<Deployment>,
    /// Its ConfigMaps.
    pub config_maps: Informer<ConfigMap>,
}

/// What was seen of a fleet and its members, as their APIs showed it.
#[derive(Clone)]
pub struct View {
    /// The member clusters.
    pub clusters: Informer<Cluster>,
    /// What is placed where.
    pub bindings: Informer<ResourceBinding>,
    /// What each member is to run.
    pub works: Informer<Work>,
    /// The members by name.
    pub members: BTreeMap<String, MemberView>,
}

/// Keeps observing.
pub struct Observer {
    /// What was seen last.
    pub view: View,
    changes: watch::Sender<u64>,
    shutdown: CancellationToken,
    _guard: DropGuard,
}

/// A condition did not come true in time.
#[derive(Debug)]
pub struct Missing {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
    /// What was lacking at the end.
    pub lacking: String,
}

impl Missing {
    fn since(begun: Instant, what: &str, lacking: String) -> Self {
        Self {
            what: what.to_owned(),
            waited: begun.elapsed(),
            lacking,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            waited,
            lacking,
        } = self;
        write!(
            f,
            "not within {:.0} s: {what}; missing: {lacking}",
            waited.as_secs_f64()
        )
    }
}

impl std::error::Error for Missing {}

impl Observer {
    /// Prepares to observe; [`start`](Self::start) begins. The clients are for watches.
    pub fn new(fleet: &Client, members: impl IntoIterator<Item = (String, Client)>) -> Self {
        let members = members.into_iter().map(|(name, client)| {
            let view = MemberView {
                deployments: everything(&client),
                config_maps: everything(&client),
            };
            (name, view)
        });
        let shutdown = CancellationToken::new();
        let view = View {
            clusters: everything(fleet),
            bindings: everything(fleet),
            works: everything(fleet),
            members: members.collect(),
        };
        Self {
            view,
            changes: watch::Sender::new(0),
            _guard: shutdown.clone().drop_guard(),
            shutdown,
        }
    }

    /// Begins to observe, and returns when everything was seen once.
    pub async fn start(&self) {
        self.follow(&self.view.clusters).await;
        self.follow(&self.view.bindings).await;
        self.follow(&self.view.works).await;
        for member in self.view.members.values() {
            self.follow(&member.deployments).await;
            self.follow(&member.config_maps).await;
        }
    }

    async fn follow<K: Followed>(&self, informer: &Informer<K>) {
        let changes = self.changes.clone();
        informer.on_change(move |_| changes.send_modify(|count| *count += 1));
        tokio::spawn(informer.clone().run(self.shutdown.clone()));
        informer.synced().await;
    }

    /// Calls back after each single change of a binding or of what is in a member, however quickly
    /// they follow each other.
    pub fn on_each_change(&self, callback: impl Fn(&View) + Send + Sync + 'static) {
        let callback: Arc<dyn Fn(&View) + Send + Sync> = Arc::new(callback);
        let call = || {
            let (view, callback) = (self.view.clone(), Arc::clone(&callback));
            move || callback(&view)
        };
        let on_binding = call();
        self.view.bindings.on_change(move |_| on_binding());
        for member in self.view.members.values() {
            let (on_deployment, on_config_map) = (call(), call());
            member.deployments.on_change(move |_| on_deployment());
            member.config_maps.on_change(move |_| on_config_map());
        }
    }

    /// Notifies of changes anywhere.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits for a condition, asked again after each change that is seen. `Err` of the condition
    /// says what is lacking.
    pub async fn await_that(
        &self,
        what: &str,
        deadline: Duration,
        mut condition: impl FnMut(&View) -> Result<(), String>,
    ) -> Result<(), Missing> {
        let begun = Instant::now();
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let Err(lacking) = condition(&self.view) else {
                return Ok(());
            };
            // The sender is ours: it cannot be gone.
            let waited = tokio::time::timeout_at(begun + deadline, changes.changed()).await;
            if waited.is_err() {
                return Err(Missing::since(begun, what, lacking));
            }
        }
    }

    /// Watches for some time that a condition stays true.
    pub async fn holds_for(
        &self,
        what: &str,
        time: Duration,
        mut condition: impl FnMut(&View) -> Result<(), String>,
    ) -> Result<(), Missing> {
        let begun = Instant::now();
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if let Err(lacking) = condition(&self.view) {
                return Err(Missing::since(begun, what, lacking));
            }
            if tokio::time::timeout_at(begun + time, changes.changed())
                .await
                .is_err()
            {
                return Ok(());
            }
        }
    }
}

fn everything<K: Followed<DynamicType = ()>>(client: &Client) -> Informer<K> {
    Informer::new(Api::all(client.clone()), Selection::everything())
}
