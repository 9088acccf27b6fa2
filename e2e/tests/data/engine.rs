//! Plays the controllers of two replication engines in the members, slowly and by their documented
//! states, and watches that no two members are primary and that nothing starts before its data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use muster_e2e::harness::fleet::Fleet;
use muster_shared::k8s::{Api, Client, Pod, StatefulSet};
use muster_shared::watch::{Change, Followed, Informer, Selection};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Time that an engine takes for each step.
const SLOW: Duration = Duration::from_millis(700);

/// Beginning of the violation that two members are primary.
const TWO: &str = "two primaries";

/// An engine, by the kind that it acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// `VolumeReplication` of csi-addons.
    Volume,
    /// `VolumeReplicationGroup` of Ramen.
    Group,
}

impl Engine {
    const ALL: [Self; 2] = [Self::Volume, Self::Group];

    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::Volume => ("replication.storage.openshift.io", "VolumeReplication"),
            Self::Group => ("ramendr.openshift.io", "VolumeReplicationGroup"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind))
    }

    /// Returns the states on the way to a role, the last of which is the role itself.
    fn steps(self, is_primary: bool, generation: i64) -> Vec<Value> {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "",
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let status = |state: &str, conditions: [Value; 2]| json!({"state": state, "observedGeneration": generation, "conditions": conditions});
        match (self, is_primary) {
            (Self::Volume, true) => vec![status(
                "Primary",
                [
                    condition("Completed", "True", "Promoted"),
                    condition("Degraded", "False", "Healthy"),
                ],
            )],
            // What was written last is copied after the volume says that it is secondary.
            (Self::Volume, false) => [("True", "VolumeDegraded"), ("False", "Healthy")]
                .map(|(degraded, reason)| {
                    status(
                        "Secondary",
                        [
                            condition("Completed", "True", "Demoted"),
                            condition("Degraded", degraded, reason),
                        ],
                    )
                })
                .to_vec(),
            // The data of the cluster is restored after the volumes are.
            (Self::Group, true) => ["False", "True"]
                .map(|restored| {
                    status(
                        "Primary",
                        [
                            condition("DataReady", "True", "Ready"),
                            condition("ClusterDataReady", restored, "Restored"),
                        ],
                    )
                })
                .to_vec(),
            (Self::Group, false) => [("False", "Replicating"), ("True", "DataProtected")]
                .map(|(protected, reason)| {
                    status(
                        "Secondary",
                        [
                            condition("DataReady", "True", "Replicating"),
                            condition("DataProtected", protected, reason),
                        ],
                    )
                })
                .to_vec(),
        }
    }
}

/// What an engine has come to in a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Generation that it acts on.
    generation: i64,
    /// Whether its object says `primary`.
    is_promoted: bool,
    /// Whether its data can be written, or is not copied to the others yet.
    is_primary: bool,
    /// Whether its data is complete.
    is_ready: bool,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<(String, Engine), Held>,
    /// Pods by member.
    pods: BTreeMap<String, usize>,
    /// Members in which the workload was seen to start, in order.
    starts: Vec<String>,
    violations: Vec<String>,
}

/// The engines of all members, with what was seen.
#[derive(Clone)]
pub struct Engines {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
    stop: CancellationToken,
}

impl Engines {
    /// Begins to play in all members of a fleet.
    pub async fn start(fleet: &Fleet) -> Self {
        let engines = Self {
            state: Arc::default(),
            changes: watch::Sender::new(0),
            stop: CancellationToken::new(),
        };
        for (name, member) in &fleet.members {
            let watching = &member.api.watch_client;
            for engine in Engine::ALL {
                let api = Api::all_with(watching.clone(), &engine.resource());
                let (playing, name, client) =
                    (engines.clone(), name.clone(), member.api.client.clone());
                let informer: Informer<DynamicObject> = Informer::new(api, Selection::everything());
                informer.on_change(move |change| playing.see(&client, &name, engine, change));
                engines.follow(informer).await;
            }
            let (watcher, of) = (engines.clone(), name.clone());
            let pods: Informer<Pod> = Informer::new(
                Api::namespaced(watching.clone(), "default"),
                Selection::everything(),
            );
            pods.on_change(move |change| watcher.count(&of, change));
            engines.follow(pods).await;
            let (watcher, of) = (engines.clone(), name.clone());
            let sets: Informer<StatefulSet> = Informer::new(
                Api::namespaced(watching.clone(), "default"),
                Selection::everything(),
            );
            sets.on_change(move |change| {
                if matches!(change, Change::Applied { old: None, .. }) {
                    watcher.begins(&of);
                }
            });
            engines.follow(sets).await;
        }
        engines
    }

    async fn follow<K: Followed>(&self, informer: Informer<K>) {
        tokio::spawn(informer.clone().run(self.stop.clone()));
        informer.synced().await;
    }

    /// Takes in a change of an object, and acts on it as its controller would.
    fn see(&self, client: &Client, member: &str, engine: Engine, change: &Change<DynamicObject>) {
        let Change::Applied { new, .. } = change else {
            return;
        };
        let generation = new.metadata.generation.unwrap_or_default();
        let is_promoted = new.data["spec"]["replicationState"] == "primary";
        let mut state = self.state.lock();
        let key = (member.to_owned(), engine);
        let held = state.held.entry(key).or_default();
        if held.generation == generation {
            return;
        }
        (held.generation, held.is_promoted, held.is_ready) = (generation, is_promoted, false);
        state.check(engine);
        drop(state);
        let resource = engine.resource();
        let namespace = new.namespace().unwrap_or_default();
        let api = Api::namespaced_with(client.clone(), &namespace, &resource);
        let play = self
            .clone()
            .play(api, new.name_any(), member.to_owned(), engine, generation);
        tokio::spawn(play);
    }

    async fn play(
        self,
        api: Api<DynamicObject>,
        name: String,
        member: String,
        engine: Engine,
        generation: i64,
    ) {
        let mut changes = self.changes.subscribe();
        let key = (member.clone(), engine);
        let is_promoted = self.state.lock().held[&key].is_promoted;
        let steps = engine.steps(is_promoted, generation);
        let last = steps.len() - 1;
        for (at, status) in steps.into_iter().enumerate() {
            tokio::time::sleep(SLOW).await;
            // A volume that pods use is not demoted.
            while !is_promoted
                && self
                    .state
                    .lock()
                    .pods
                    .get(&member)
                    .is_some_and(|it| *it > 0)
            {
                _ = changes.changed().await;
            }
            {
                let mut state = self.state.lock();
                let held = state.held.entry(key.clone()).or_default();
                if held.generation != generation {
                    return;
                }
                held.is_primary = is_promoted || (held.is_primary && at < last);
                held.is_ready = at == last;
                state.check(engine);
            }
            let patch = Patch::Merge(json!({"status": status}));
            if let Err(error) = api
                .patch_status(&name, &PatchParams::default(), &patch)
                .await
            {
                self.state
                    .lock()
                    .violations
                    .push(format!("the engine in {member}: {error}"));
            }
        }
        self.notify();
    }

    fn count(&self, member: &str, change: &Change<Pod>) {
        let mut state = self.state.lock();
        let count = state.pods.entry(member.to_owned()).or_default();
        match change {
            Change::Applied { old: None, .. } => *count += 1,
            Change::Deleted { .. } => *count -= 1,
            Change::Applied { .. } => return,
        }
        drop(state);
        self.notify();
    }

    /// Takes in that the workload was created in a member.
    fn begins(&self, member: &str) {
        let mut state = self.state.lock();
        state.starts.push(member.to_owned());
        for engine in Engine::ALL {
            let held = state.held.get(&(member.to_owned(), engine)).copied();
            let held = held.unwrap_or_default();
            if !(held.is_primary && held.is_ready) {
                let violation =
                    format!("the workload starts in {member} before {engine:?}: {held:?}");
                state.violations.push(violation);
            }
        }
        drop(state);
        self.notify();
    }

    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Waits until the workload has started in a member for the `count`th time in all, and one
    /// engine of each kind, that one's, is primary.
    pub async fn until_started(&self, count: usize, patience: Duration) -> anyhow::Result<String> {
        let mut changes = self.changes.subscribe();
        let wait = async {
            loop {
                changes.borrow_and_update();
                if let Some(member) = self.state.lock().starts.get(count - 1) {
                    return member.clone();
                }
                // The sender is ours: it cannot be gone.
                _ = changes.changed().await;
            }
        };
        let started = tokio::time::timeout(patience, wait).await;
        started.map_err(|_| anyhow::anyhow!("the workload does not start: {:?}", self.state.lock()))
    }

    /// Waits until all members but one are demoted.
    pub async fn until_only_primary(&self, member: &str, patience: Duration) -> anyhow::Result<()> {
        let mut changes = self.changes.subscribe();
        let wait = async {
            loop {
                changes.borrow_and_update();
                let is_so = |((of, _), held): (&(String, Engine), &Held)| {
                    let wanted = of == member;
                    (held.is_promoted, held.is_primary, held.is_ready) == (wanted, wanted, true)
                };
                if self.state.lock().held.iter().all(is_so) {
                    return;
                }
                _ = changes.changed().await;
            }
        };
        let only = tokio::time::timeout(patience, wait).await;
        only.map_err(|_| {
            anyhow::anyhow!("{member} is not the only primary: {:?}", self.state.lock())
        })
    }

    /// Forgets that two members were primary, where the storage is taken to fence the old one.
    pub fn forgive(&self) {
        let violations = &mut self.state.lock().violations;
        violations.retain(|it| !it.starts_with(TWO));
    }

    /// Ends the play.
    ///
    /// # Errors
    /// Two members were primary at once, or something started before its data.
    pub fn end(&self) -> anyhow::Result<()> {
        self.stop.cancel();
        let violations = std::mem::take(&mut self.state.lock().violations);
        anyhow::ensure!(violations.is_empty(), "{violations:#?}");
        Ok(())
    }
}

impl State {
    /// Notes if two members are ordered to be primary, or still are.
    fn check(&mut self, engine: Engine) {
        let all = self.held.iter().filter(|((_, of), _)| *of == engine);
        let all: Vec<_> = all.collect();
        let promoted = all.iter().filter(|(_, held)| held.is_promoted).count();
        let others = all.iter().filter(|it| it.1.is_primary && !it.1.is_promoted);
        if promoted > 1 || (promoted == 1 && others.count() > 0) {
            let violation = format!("{TWO}: {all:?}");
            self.violations.push(violation);
        }
    }
}
