//! Counts nodes and pods from two watches into compact records; the objects themselves are not
//! stored.
//!
//! [`capacity::Census`] has the sums. `report` writes them to `status.resourceSummary` of the
//! Cluster, from which the control plane estimates what fits (`scheduler/core/capacity`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use muster_shared::api::cluster::{NodeSummary, ResourceModel, ResourceSummary};
use muster_shared::capacity::{self, NodeView, PodView};
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client};
use muster_shared::watch::pages::Rejected;
use muster_shared::watch::{self, Event, Freshness, Selection};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::measures::Step;

/// Field selector without finished pods, which use no resources and may be most of the pods in a
/// cluster with many jobs. A pod that ends during the watch appears as deleted.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The sums of nodes and pods. Clones are cheap and share them.
#[derive(Clone)]
pub struct Census {
    sums: Arc<Mutex<capacity::Census>>,
    changed: Arc<Notify>,
    /// Time of the last sums, or the start of counting before the first.
    counted: Arc<Mutex<Timestamp>>,
    /// Time of the first requests for lists.
    asked: Arc<OnceLock<Instant>>,
    nodes: Arc<Freshness>,
    pods: Arc<Freshness>,
}

impl Census {
    /// Makes sums without any node or pod.
    pub fn begin() -> Self {
        let started = calendar();
        Self {
            sums: Arc::default(),
            changed: Arc::default(),
            counted: Arc::new(Mutex::new(started)),
            asked: Arc::default(),
            nodes: Arc::new(Freshness::new(started)),
            pods: Arc::new(Freshness::new(started)),
        }
    }

    /// Returns the time of the last sums, or the start of counting before the first.
    pub fn last_counted(&self) -> Timestamp {
        *self.counted.lock()
    }

    /// Returns whether the first lists are under way: none has failed, and they were asked for no
    /// longer ago than `grace`, or not yet because another agent led.
    pub fn is_awaited(&self, grace: Duration) -> bool {
        let is_late = self.asked.get().is_some_and(|at| at.elapsed() > grace);
        !self.is_complete() && !is_late && self.lost(Duration::ZERO).is_empty()
    }

    fn is_complete(&self) -> bool {
        let sums = self.sums.lock();
        sums.is_complete()
    }

    /// Returns the watch that is broken at present, and the time of its last message. Failures that
    /// end within `grace` are not reported, because servers restart.
    pub fn lost(&self, grace: Duration) -> Vec<(&'static str, Timestamp)> {
        let parts = [("nodes", &self.nodes), ("pods", &self.pods)].into_iter();
        parts
            .filter_map(|(part, touch)| Some((part, touch.lost_since(grace)?)))
            .collect()
    }

    /// Publishes the times of the last messages about nodes and pods as metrics.
    pub fn measure(&self) {
        Step::Nodes.succeeded(self.nodes.last_contact());
        Step::Pods.succeeded(self.pods.last_contact());
    }

    /// Counts until shutdown.
    pub async fn run(self, member: Client, shutdown: CancellationToken) {
        self.asked.get_or_init(Instant::now);
        let nodes: Api<NodeView> = Api::all(member.clone());
        let pods: Api<PodView> = Api::all(member);
        // Lists may be served from the cache of the API server: the watch brings the sums up to
        // date.
        let every = Selection::everything().recent();
        let nodes = watch::compact_events(&nodes, every.clone(), Arc::clone(&self.nodes));
        let pods = watch::compact_events(&pods, every.fields(UNFINISHED), Arc::clone(&self.pods));
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.fold(nodes, capacity::Census::fold_node, capacity::Census::keep_node) => {}
            () = self.fold(pods, capacity::Census::fold_pod, capacity::Census::keep_pod) => {}
        }
    }

    async fn fold<K>(
        &self,
        events: impl Stream<Item = Result<Event<K>, Rejected>>,
        fold: impl Fn(&mut capacity::Census, Event<K>) -> bool,
        keep: impl Fn(&mut capacity::Census, &Rejected) -> bool,
    ) {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let (changed, complete) = {
                let mut sums = self.sums.lock();
                let changed = match event {
                    Ok(event) => fold(&mut sums, event),
                    Err(unreadable) => keep(&mut sums, &unreadable),
                };
                (changed, sums.is_complete())
            };
            // Readers wait for complete lists.
            if changed && complete {
                self.changed.notify_one();
            }
        }
    }

    /// Returns the sums, with the nodes counted by grade if there are models; `None` until
    /// everything was listed once, and while no node can be read.
    pub fn summary(&self, models: &[ResourceModel]) -> Option<(NodeSummary, ResourceSummary)> {
        let sums = self.sums.lock();
        sums.is_complete().then(|| {
            *self.counted.lock() = calendar();
            let resources = ResourceSummary {
                allocatable_modelings: sums.modelings(models),
                ..sums.summary()
            };
            (sums.node_summary(), resources)
        })
    }

    /// Waits until the sums may have changed since the last time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn nothing_is_said_before_both_kinds_were_listed() {
        let census = Census::begin();
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"allocatable": {"cpu": "4", "pods": "10"}, "conditions": conditions});
        let node = json!({"metadata": {"name": "a", "uid": "a"}, "status": status});
        let listed = Event::InitApply(serde_json::from_value(node).unwrap());
        let nodes = stream::iter([Event::Init, listed, Event::InitDone].map(Ok));
        census
            .fold(
                nodes,
                capacity::Census::fold_node,
                capacity::Census::keep_node,
            )
            .await;
        assert_eq!(census.summary(&[]), None);
        let pods = stream::iter([Event::Init, Event::InitDone].map(Ok));
        census
            .fold(pods, capacity::Census::fold_pod, capacity::Census::keep_pod)
            .await;
        let (nodes, resources) = census.summary(&[]).unwrap();
        assert_eq!((nodes.total_num, nodes.ready_num), (1, 1));
        assert_eq!(resources.allocatable["cpu"].0, "4");
    }

    #[tokio::test]
    async fn the_time_of_the_last_sums_is_known_while_no_node_can_be_read() {
        let node = |name: &str| -> NodeView {
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
        };
        let unreadable = Rejected {
            namespace: String::new(),
            name: "b".to_owned(),
            uid: None,
            error: String::new(),
            resource_version: None,
            deleting: false,
            deleted: false,
        };
        let census = Census::begin();
        let pods = stream::iter([Event::Init, Event::InitDone].map(Ok));
        census
            .fold(pods, capacity::Census::fold_pod, capacity::Census::keep_pod)
            .await;
        let nodes = [
            Ok(Event::Init),
            Ok(Event::InitApply(node("a"))),
            Err(unreadable),
            Ok(Event::InitDone),
        ];
        census
            .fold(
                stream::iter(nodes),
                capacity::Census::fold_node,
                capacity::Census::keep_node,
            )
            .await;
        let started = census.last_counted();
        assert!(census.summary(&[]).is_some());
        let counted = census.last_counted();
        assert!(counted > started);
        census
            .fold(
                stream::iter([Ok(Event::Delete(node("a")))]),
                capacity::Census::fold_node,
                capacity::Census::keep_node,
            )
            .await;
        assert_eq!(census.summary(&[]), None);
        assert_eq!(census.last_counted(), counted);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_lists_are_awaited_for_a_while_and_not_once_one_has_failed() {
        let grace = Duration::from_secs(10);
        let census = Census::begin();
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(census.is_awaited(grace), "another agent leads");
        census.asked.get_or_init(Instant::now);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(census.is_awaited(grace));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!census.is_awaited(grace), "they hang");

        let complete = Census::begin();
        let nodes = stream::iter([Event::Init, Event::InitDone].map(Ok));
        complete
            .fold(
                nodes,
                capacity::Census::fold_node,
                capacity::Census::keep_node,
            )
            .await;
        assert!(complete.is_awaited(grace));
        let pods = stream::iter([Event::Init, Event::InitDone].map(Ok));
        complete
            .fold(pods, capacity::Census::fold_pod, capacity::Census::keep_pod)
            .await;
        assert!(!complete.is_awaited(grace));
    }
}
