//! Running count of a cluster's nodes and pods.
//!
//! Of a pod only its node and the number of its request are kept, by UID, so that a new pod with a
//! reused name is not taken for the old one. Totals are kept by resource and by node and updated by
//! each event; a report reads one row per node and no pods.
//!
//! A new list does not clear the census. Objects that the list does not contain are removed when it
//! ends; until then the last counts are reported. What is known of an object that is listed and
//! does not decode is kept.

mod unreadable;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity as Wire, apis::meta::v1::ObjectMeta};
use kube::runtime::watcher::Event;

use super::{
    amounts::{Id, Names},
    models::Grades,
    request,
    row::{NodeRecord, Round, Row},
    shapes::{ShapeId, Shapes},
    view::{NodeView, PodView},
};
use crate::{
    api::cluster::{AllocatableModeling, NodeSummary, ResourceModel, ResourceSummary},
    quantity::{Format, Quantity},
};

/// The number of a node name.
type NodeId = u32;

/// A pod that takes resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pod {
    /// `None` until a node is found.
    node: Option<NodeId>,
    shape: ShapeId,
    /// The list that saw it last.
    round: Round,
}

// A hundred thousand of these are the better part of the agent's memory.
const _: () = assert!(size_of::<(u128, Pod)>() <= 32);

/// The sum of a resource over nodes, and over how many of them. It is exact, however large the
/// amounts are: what a node adds can be taken away again.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    nodes: u32,
    /// In nano units, of which only the lower bits are here,
    low: i128,
    /// and how often it went beyond them, up or down.
    carry: i64,
    format: Format,
}

impl Offer {
    fn add(&mut self, quantity: Quantity) {
        if self.nodes == 0 || (self.low, self.carry) == (0, 0) {
            self.format = quantity.format();
        }
        self.nodes += 1;
        let (low, beyond) = self.low.overflowing_add(quantity.nano());
        self.low = low;
        self.carry += i64::from(beyond) * i64::from(quantity.sign());
    }

    fn remove(&mut self, quantity: Quantity) {
        self.nodes -= 1;
        let (low, beyond) = self.low.overflowing_sub(quantity.nano());
        self.low = low;
        self.carry -= i64::from(beyond) * i64::from(quantity.sign());
    }

    /// Returns the sum in nano units, as far as they are known.
    fn nano(&self) -> i128 {
        match self.carry {
            0 => self.low,
            1.. => i128::MAX,
            _ => i128::MIN,
        }
    }
}

/// How far the list of a kind has come.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    round: Round,
    complete: bool,
}

impl List {
    fn start(&mut self) {
        self.round = self.round.wrapping_add(1);
    }
}

/// Running count of a cluster's nodes and pods.
#[derive(Debug, Default)]
pub struct Census {
    names: Names,
    shapes: Shapes,
    pods: HashMap<u128, Pod>,
    rows: Vec<Row>,
    row_ids: HashMap<Arc<str>, NodeId>,
    free_rows: Vec<NodeId>,
    offers: BTreeMap<Id, Offer>,
    allocated: Vec<i128>,
    allocating: Vec<i128>,
    pod_list: List,
    node_list: List,
    /// Nodes of which nothing could be read yet, and the lists that saw them last.
    unread: HashMap<String, Round>,
}

impl Census {
    /// Returns whether both kinds have been listed completely at least once, and the nodes are not
    /// all unreadable. Before that the counts are too low and must not be reported.
    pub fn is_complete(&self) -> bool {
        self.pod_list.complete && self.node_list.complete && !self.is_all_unread()
    }

    /// Applies an event of the watch on pods. Returns whether the counts may have changed.
    pub fn fold_pod(&mut self, event: Event<PodView>) -> bool {
        match event {
            Event::Init => {
                self.pod_list.start();
                false
            }
            Event::InitApply(pod) | Event::Apply(pod) => self.apply_pod(&pod),
            Event::Delete(pod) => self.delete_pod(&pod),
            Event::InitDone => {
                let round = self.pod_list.round;
                let stale = self.pods.iter().filter(|(_, pod)| pod.round != round);
                let stale: Vec<u128> = stale.map(|(uid, _)| *uid).collect();
                for uid in &stale {
                    self.remove_pod(*uid);
                }
                !std::mem::replace(&mut self.pod_list.complete, true) || !stale.is_empty()
            }
        }
    }

    /// Applies an event of the watch on nodes. Returns whether the counts may have changed.
    pub fn fold_node(&mut self, event: Event<NodeView>) -> bool {
        match event {
            Event::Init => {
                self.node_list.start();
                false
            }
            Event::InitApply(node) | Event::Apply(node) => self.apply_node(&node),
            Event::Delete(node) => self.delete_node(&node),
            Event::InitDone => {
                let round = self.node_list.round;
                let is_stale =
                    |row: &Row| row.node.as_ref().is_some_and(|node| node.round != round);
                let stale: Vec<NodeId> = (0..)
                    .zip(&self.rows)
                    .filter(|(_, row)| is_stale(row))
                    .map(|(id, _)| id)
                    .collect();
                for id in &stale {
                    self.set_node(*id, None);
                }
                let is_read = self.forget_unread();
                let is_first = !std::mem::replace(&mut self.node_list.complete, true);
                is_first || is_read || !stale.is_empty()
            }
        }
    }

    /// Counts a pod anew; returns whether that changed anything. A pod that has run to its end
    /// takes nothing.
    pub fn apply_pod(&mut self, view: &PodView) -> bool {
        let uid = uid(&view.metadata);
        if view.is_finished() {
            return self.remove_pod(uid);
        }
        let shape = self.shapes.hold(&request::of(view, &mut self.names));
        let node = view.node().map(|name| self.row(name));
        let pod = Pod {
            node,
            shape,
            round: self.pod_list.round,
        };
        if let Some(known) = self.pods.get_mut(&uid)
            && (known.node, known.shape) == (node, shape)
        {
            known.round = pod.round;
            self.shapes.release(shape);
            return false;
        }
        // First in, then out, so that neither the row nor the shape goes away in between.
        self.count(pod, 1);
        if let Some(before) = self.pods.insert(uid, pod) {
            self.count(before, -1);
            self.shapes.release(before.shape);
        }
        true
    }

    /// Forgets a pod; returns whether it had counted.
    pub fn delete_pod(&mut self, view: &PodView) -> bool {
        self.remove_pod(uid(&view.metadata))
    }

    fn remove_pod(&mut self, uid: u128) -> bool {
        let Some(pod) = self.pods.remove(&uid) else {
            return false;
        };
        self.count(pod, -1);
        self.shapes.release(pod.shape);
        true
    }

    /// Adds a pod to the sums, or takes it out of them.
    fn count(&mut self, pod: Pod, sign: i128) {
        let shape = self.shapes.get(pod.shape);
        let totals = if pod.node.is_some() {
            &mut self.allocated
        } else {
            &mut self.allocating
        };
        for (id, amount) in shape.iter() {
            let at = usize::from(*id);
            if totals.len() <= at {
                totals.resize(at + 1, 0);
            }
            totals[at] += sign * i128::from(*amount);
        }
        let Some(node) = pod.node else { return };
        let row = &mut self.rows[node as usize];
        row.pods = if sign > 0 { row.pods + 1 } else { row.pods - 1 };
        for (id, amount) in shape.iter() {
            let used = match row.used.iter_mut().find(|(known, _)| known == id) {
                Some((_, used)) => used,
                None => &mut row.used.push_mut((*id, 0)).1,
            };
            *used += sign * i128::from(*amount);
        }
        self.free_if_unused(node);
    }

    /// Counts a node anew; returns whether that changed anything.
    pub fn apply_node(&mut self, view: &NodeView) -> bool {
        let name = view.metadata.name.as_deref().unwrap_or_default();
        self.unread.remove(name);
        let mut allocatable = Vec::with_capacity(view.status.allocatable.len());
        for (name, quantity) in &view.status.allocatable {
            // What cannot be read is left out: the API server would have refused it.
            if let (Some(id), Ok(it)) = (self.names.intern(name), Quantity::from_wire(quantity)) {
                allocatable.push((id, it));
            }
        }
        let record = NodeRecord {
            ready: view.is_ready(),
            takes_pods: view.takes_pods(),
            allocatable,
            round: self.node_list.round,
        };
        let id = self.row(name);
        if let Some(known) = &mut self.rows[id as usize].node
            && (known.ready, known.takes_pods) == (record.ready, record.takes_pods)
            && known.allocatable == record.allocatable
        {
            known.round = record.round;
            return false;
        }
        self.set_node(id, Some(record));
        true
    }

    /// Forgets a node; returns whether it had counted. Its pods count until they are gone
    /// themselves.
    pub fn delete_node(&mut self, view: &NodeView) -> bool {
        self.forget_node(view.metadata.name.as_deref().unwrap_or_default())
    }

    fn forget_node(&mut self, name: &str) -> bool {
        let was_unread = self.unread.remove(name).is_some();
        let Some(id) = self.known_node(name) else {
            return was_unread;
        };
        self.set_node(id, None);
        true
    }

    /// Returns the row of a node that counts.
    fn known_node(&self, name: &str) -> Option<NodeId> {
        let id = self.row_ids.get(name).copied();
        id.filter(|id| self.rows[*id as usize].node.is_some())
    }

    fn set_node(&mut self, id: NodeId, record: Option<NodeRecord>) {
        for (resource, quantity) in record.iter().flat_map(|record| &record.allocatable) {
            self.offers.entry(*resource).or_default().add(*quantity);
        }
        let before = std::mem::replace(&mut self.rows[id as usize].node, record);
        for (resource, quantity) in before.iter().flat_map(|record| &record.allocatable) {
            if let Some(offer) = self.offers.get_mut(resource) {
                offer.remove(*quantity);
                if offer.nodes == 0 {
                    self.offers.remove(resource);
                }
            }
        }
        self.free_if_unused(id);
    }

    /// Returns the row of a node name, and makes one if there is none.
    fn row(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.row_ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let row = Row {
            name: Arc::clone(&name),
            ..Row::default()
        };
        let id = if let Some(id) = self.free_rows.pop() {
            self.rows[id as usize] = row;
            id
        } else {
            self.rows.push(row);
            NodeId::try_from(self.rows.len() - 1).expect("fewer nodes than u32 invariant")
        };
        self.row_ids.insert(name, id);
        id
    }

    fn free_if_unused(&mut self, id: NodeId) {
        let row = &mut self.rows[id as usize];
        if row.node.is_none() && row.pods == 0 && self.row_ids.remove(&row.name).is_some() {
            *row = Row::default();
            self.free_rows.push(id);
        }
    }

    /// Returns the number of nodes, and of ready nodes.
    pub fn node_summary(&self) -> NodeSummary {
        let nodes = || self.rows.iter().filter_map(|row| row.node.as_ref());
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        NodeSummary {
            total_num: count(nodes().count()),
            ready_num: count(nodes().filter(|node| node.ready).count()),
        }
    }

    /// Returns the totals of nodes and pods. A node that takes no pods counts with what its pods
    /// use, so that `allocatable` minus `allocated` is free.
    pub fn summary(&self) -> ResourceSummary {
        let withheld = self.withheld();
        let offered = |(id, offer): (&Id, &Offer)| {
            let withheld = withheld.get(id).copied().unwrap_or_default();
            let sum = Quantity::from_nano(offer.nano().saturating_sub(withheld), offer.format);
            (self.names.name(*id).to_owned(), sum.to_wire())
        };
        ResourceSummary {
            allocatable: self.offers.iter().map(offered).collect(),
            allocating: self.asked(&self.allocating),
            allocated: self.asked(&self.allocated),
            allocatable_modelings: Vec::new(),
        }
    }

    /// Returns what is free on nodes that take no pods, in nano units.
    fn withheld(&self) -> BTreeMap<Id, i128> {
        let mut withheld = BTreeMap::new();
        for row in &self.rows {
            let Some(node) = row.node.as_ref().filter(|node| !node.takes_pods) else {
                continue;
            };
            for (id, _) in &node.allocatable {
                let sum: &mut i128 = withheld.entry(*id).or_default();
                *sum = sum.saturating_add(row.free(node, *id).max(0));
            }
        }
        withheld
    }

    fn asked(&self, totals: &[i128]) -> BTreeMap<String, Wire> {
        let asked = (0..).zip(totals).filter(|(_, amount)| **amount != 0);
        asked
            .map(|(id, amount)| {
                let quantity = self.names.quantity(id, *amount);
                (self.names.name(id).to_owned(), quantity.to_wire())
            })
            .collect()
    }

    /// Returns the number of nodes of each grade; empty if the models define no grades.
    ///
    /// Nodes that cannot take another pod have no grade, because a counted node is assumed to take
    /// one. The same holds for nodes that have less of a graded resource than is requested on them,
    /// and for nodes that take no pods.
    pub fn modelings(&self, models: &[ResourceModel]) -> Vec<AllocatableModeling> {
        let Some(grades) = Grades::new(models) else {
            return Vec::new();
        };
        let ids: Vec<Option<Id>> = grades.names().map(|name| self.names.find(name)).collect();
        let mut counts = vec![0; models.len()];
        for row in &self.rows {
            let node = row.node.as_ref().filter(|node| node.takes_pods);
            let Some(node) = node.filter(|node| row.has_room(node)) else {
                continue;
            };
            let free = ids.iter().map(|id| id.map_or(0, |id| row.free(node, id)));
            if let Some(grade) = grades.grade(free) {
                counts[grade] += 1;
            }
        }
        let modeling = |(model, count): (&ResourceModel, i64)| AllocatableModeling {
            grade: model.grade,
            count,
        };
        models.iter().zip(counts).map(modeling).collect()
    }

    /// Returns the number of pods that are counted; finished pods are not.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }
}

/// Returns the uid as a number. One that is no UUID, as simulated API servers make them, is hashed
/// together with the name.
fn uid(meta: &ObjectMeta) -> u128 {
    let uid = meta.uid.as_deref().unwrap_or_default();
    let digits = uid.bytes().filter(|byte| *byte != b'-');
    let number = digits.clone().try_fold(0_u128, |number, digit| {
        Some(number << 4 | u128::from(char::from(digit).to_digit(16)?))
    });
    match number {
        Some(number) if digits.count() == 32 => number,
        _ => {
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            let hash = |salt: u8| hasher.hash_one((salt, uid, &meta.namespace, &meta.name));
            u128::from(hash(0)) << 64 | u128::from(hash(1))
        }
    }
}
