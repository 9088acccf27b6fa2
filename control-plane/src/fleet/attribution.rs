//! Orders of people: who gave them, when, and why.
//!
//! An object that orders are given about has the last ones in an annotation, the newest at the end.
//! `kubectl muster` writes it with the order, and admission has the last word: it replaces the name
//! of whoever ordered by that of the user who writes, and adds orders that were given in another
//! way, such as by `kubectl edit`. Without admission, what was not ordered by `kubectl muster` is
//! named by the name of the program that wrote it. What an object brings along of former times, as
//! from a backup, is what whoever writes it says.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::{PropagationSpec, SuspendClusters};
use muster_shared::check::listed;
use muster_shared::k8s::{ManagedFieldsEntry, ObjectMeta, Taint};
use muster_shared::names::annotation::ORDERED_BY;
use muster_shared::names::taint::{CORDON, DRAIN};
use muster_shared::taints::{describe, is_of_command};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pause::Pause;

/// Orders that an annotation keeps.
const KEPT: usize = 8;
/// Age of an order at most that is given with the write that records it: clocks differ, and one
/// about many clusters takes a while.
const FRESH: SignedDuration = SignedDuration::from_hours(1);
/// Time that lies at most between a write and the time that it gives a taint: admission dates it.
const SAME_MOMENT: SignedDuration = SignedDuration::from_secs(2);
/// Clusters of a suspension that are named at most.
const MOST_NAMED: usize = 5;
/// Letters of a text of an order at most.
pub const LONGEST: usize = 200;
/// Name under which `kubectl muster` writes. A pause in this name is a step of another order.
pub const COMMAND: &str = "kubectl-muster";

/// The orders that have an author.
pub mod order {
    /// Empties a cluster.
    pub const DRAIN: &str = "drain";
    /// Ends that.
    pub const UNDRAIN: &str = "undrain";
    /// Keeps new workloads out of a cluster.
    pub const CORDON: &str = "cordon";
    /// Ends that.
    pub const UNCORDON: &str = "uncordon";
    /// Puts taints on a cluster or takes them off.
    pub const TAINT: &str = "taint";
    /// Lets nothing leave a cluster.
    pub const PAUSE: &str = "pause";
    /// Ends that.
    pub const RESUME: &str = "resume";
    /// Suspends what a policy propagates.
    pub const SUSPEND: &str = "suspend";
    /// Ends or changes that.
    pub const UNSUSPEND: &str = "unsuspend";
    /// Has workloads placed anew.
    pub const REBALANCE: &str = "rebalance";
}

/// An order with its author.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attribution {
    /// The order, one of [`order`].
    pub order: String,
    /// Change in words, of an order whose name does not say it, such as `tainted key:NoExecute`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub change: String,
    /// User as the API server knows them; empty if that is not known.
    pub by: String,
    /// Time of the order.
    pub at: Option<Timestamp>,
    /// Reason, in the words of the person who ordered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Attribution {
    /// Returns the orders that an object has in its annotation, the newest last. One that cannot be
    /// read is left out.
    pub fn all(metadata: &ObjectMeta) -> Vec<Self> {
        let annotations = metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(ORDERED_BY));
        let read = text.and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        let all = read.unwrap_or_default().into_iter();
        let all = all.filter_map(|it| serde_json::from_value::<Self>(it).ok());
        newest(all.map(Self::bounded).collect())
    }

    /// Returns the annotation of an object that is given one more order, or another step of its
    /// last one.
    pub fn added(metadata: &ObjectMeta, order: Self) -> String {
        let (mut all, order) = (Self::all(metadata), order.bounded());
        // Admission may have named the author of the first step, whom the second does not know.
        let is_known = all.last().is_some_and(|last| {
            let is_by_same = order.by.is_empty() || order.by == last.by;
            is_by_same
                && (&order.order, &order.change, &order.at, &order.reason)
                    == (&last.order, &last.change, &last.at, &last.reason)
        });
        if !is_known {
            all.push(order);
        }
        text(all)
    }

    /// Returns the newest of two orders of which one ends the other, if it is the first of them and
    /// was not given before `since`, when what it wants came to be.
    pub fn in_force(
        metadata: &ObjectMeta,
        begins: &str,
        ends: &str,
        since: Option<Timestamp>,
    ) -> Option<Self> {
        let mut all = Self::all(metadata).into_iter().rev();
        let last = all.find(|it| [begins, ends].contains(&it.order.as_str()))?;
        // Times of objects are whole seconds.
        let is_old = since
            .zip(last.at)
            .is_some_and(|(since, at)| at.as_second() < since.as_second());
        (last.order == begins && !is_old).then_some(last)
    }

    /// Returns the order by which a cluster is drained, or else cordoned.
    pub fn of_command(cluster: &Cluster) -> Option<Self> {
        let taints = cluster.spec.taints.iter().filter(|it| is_of_command(it));
        let orders = taints.map(|taint| {
            let since = taint.time_added.as_ref().map(|it| it.0);
            let (begins, ends) = match taint.key.as_str() {
                DRAIN => (order::DRAIN, order::UNDRAIN),
                _ => (order::CORDON, order::UNCORDON),
            };
            Self::in_force(&cluster.metadata, begins, ends, since)
        });
        orders.flatten().min_by_key(|it| it.order != order::DRAIN)
    }

    /// Returns the order by which somebody put a taint on a cluster, as far as that is known: that
    /// of `kubectl muster taint`, or else the program that wrote the taints when this one came.
    pub fn of_taint(metadata: &ObjectMeta, taint: &Taint) -> Option<Self> {
        let written = || {
            let added = taint.time_added.as_ref()?.0;
            let order = Self::by_program(metadata, order::TAINT, &["spec", "taints"])?;
            let apart = added.duration_since(order.at?).abs();
            (apart <= SAME_MOMENT).then_some(order)
        };
        Self::recorded(metadata, taint).or_else(written)
    }

    /// Returns the order of `kubectl muster taint` that put a taint on a cluster, if it is the
    /// last one about this taint and was not given long before the taint came.
    fn recorded(metadata: &ObjectMeta, taint: &Taint) -> Option<Self> {
        let (key, effect) = (&taint.key, &taint.effect);
        let begins = format!("tainted {}", describe(taint));
        let ends = [
            format!("untainted {key}"),
            format!("untainted {key}:{effect}"),
        ];
        let says = |it: &Self, words: &String| it.change.split(", ").any(|part| part == words);
        let is_about = |it: &Self| says(it, &begins) || ends.iter().any(|words| says(it, words));
        let mut all = Self::all(metadata).into_iter().rev();
        let last = all.find(|it| it.order == order::TAINT && is_about(it))?;
        let since = taint.time_added.as_ref().map(|it| it.0);
        let is_old = since
            .zip(last.at)
            .is_some_and(|(since, at)| since.duration_since(at) > FRESH);
        (says(&last, &begins) && !is_old).then_some(last)
    }

    /// Returns who wrote the field at `path` last, as far as the API server says: a program, and
    /// when. The control plane's own writes say nothing about people, and are left out.
    pub fn by_program(metadata: &ObjectMeta, order: &str, path: &[&str]) -> Option<Self> {
        let writers = metadata.managed_fields.iter().flatten();
        let owns = |writer: &&ManagedFieldsEntry| {
            let fields = writer.fields_v1.as_ref().map(|it| &it.0);
            let found = path.iter().fold(fields, |fields, field| {
                fields.and_then(|it| it.get(format!("f:{field}")))
            });
            found.is_some()
        };
        let is_own = |it: &&ManagedFieldsEntry| {
            let manager = it.manager.as_ref();
            manager.is_some_and(|it| it.starts_with("muster-"))
        };
        let writers = writers.filter(|it| owns(it) && !is_own(it));
        let last = writers.max_by_key(|it| it.time.clone())?;
        let program = last.manager.clone()?;
        let order = Self {
            order: order.to_owned(),
            by: format!("somebody with {program}"),
            at: last.time.as_ref().map(|it| it.0),
            ..Self::default()
        };
        Some(order.bounded())
    }

    fn bounded(mut self) -> Self {
        let texts = [
            &mut self.order,
            &mut self.change,
            &mut self.by,
            &mut self.reason,
        ];
        for text in texts {
            *text = plain(text);
        }
        self
    }

    /// Returns who gave the order, or `somebody`.
    pub fn author(&self) -> &str {
        if self.by.is_empty() {
            "somebody"
        } else {
            &self.by
        }
    }
}

impl fmt::Display for Attribution {
    /// Writes who ordered, when and why, to follow what was done.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by {}", self.author())?;
        if let Some(at) = self.at {
            write!(f, " at {at:.0}")?;
        }
        if !self.reason.is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

/// Returns the beginning of what people wrote, without control characters, which terminals obey.
pub fn plain(text: &str) -> String {
    let letters = text.chars().take(LONGEST);
    let plain = letters.map(|it| if it.is_control() { ' ' } else { it });
    plain.collect()
}

fn text(all: Vec<Attribution>) -> String {
    json!(newest(all)).to_string()
}

/// Returns those of some orders that an annotation keeps.
fn newest(mut all: Vec<Attribution>) -> Vec<Attribution> {
    all.drain(..all.len().saturating_sub(KEPT));
    all
}

/// An order that may be in force, as `None` or with what it says, and the names of the order that
/// begins or changes it and of the one that ends it.
pub type OrderInForce = (Option<String>, &'static str, &'static str);

/// Returns the orders about a cluster.
pub fn of_cluster(metadata: &ObjectMeta, taints: &[Taint], now: Timestamp) -> [OrderInForce; 3] {
    let tainted = |key: &str| {
        let is_there = taints.iter().any(|it| it.key == key);
        is_there.then(String::new)
    };
    // A pause that is a step of another order is not worth a word.
    let pause = Pause::of_annotations(metadata).filter(|it| !it.is_step(now));
    [
        (tainted(DRAIN), order::DRAIN, order::UNDRAIN),
        (tainted(CORDON), order::CORDON, order::UNCORDON),
        (pause.map(|it| it.to_string()), order::PAUSE, order::RESUME),
    ]
}

/// Returns in which clusters a suspension leaves copies as they are, in words; `None` if in none.
pub fn suspended_in(
    dispatching: Option<bool>,
    on_clusters: Option<&SuspendClusters>,
) -> Option<String> {
    let what = "its copies are neither created nor changed";
    if dispatching == Some(true) {
        return Some(format!("{what} in any cluster"));
    }
    let names = &on_clusters?.cluster_names;
    (!names.is_empty()).then(|| format!("{what} in {}", listed(names, MOST_NAMED)))
}

/// Returns the order of a policy to suspend what it propagates.
pub fn of_policy(spec: &PropagationSpec) -> [OrderInForce; 1] {
    let suspension = spec.suspension.as_ref();
    let suspension = suspension.filter(|it| {
        let clusters = it.dispatching_on_clusters.as_ref();
        suspended_in(it.dispatching, clusters).is_some()
    });
    let said = suspension.map(|it| json!(it).to_string());
    [(said, order::SUSPEND, order::UNSUSPEND)]
}

/// Returns the annotation of an object with its new orders attributed to the user who writes it;
/// `None` if the annotation says so already, or if the API server does not name the user. `old` is
/// the object as it was, `before` and `after` are the orders that were and that are in force.
pub fn attribute<const N: usize>(
    metadata: &ObjectMeta,
    old: &ObjectMeta,
    (before, after): ([OrderInForce; N], [OrderInForce; N]),
    user: &str,
    now: Timestamp,
) -> Option<String> {
    if user.is_empty() {
        return None;
    }
    let (known, mut all) = (Attribution::all(old), Attribution::all(metadata));
    let is_fresh = |it: &Attribution| {
        let age = it.at.map(|at| now.duration_since(at).abs());
        age.is_some_and(|age| age <= FRESH)
    };
    let is_new = |it: &Attribution| is_fresh(it) && !known.contains(it);
    let reported = format!(", as {user} says");
    let mut is_changed = false;
    for order in all.iter_mut().filter(|it| !known.contains(it)) {
        if is_fresh(order) {
            is_changed |= order.by != user;
            user.clone_into(&mut order.by);
        } else if !order.by.ends_with(&reported) {
            let mut by = order.author().to_owned();
            by.push_str(&reported);
            order.by = by;
            is_changed = true;
        }
    }
    for ((was, begins, ends), (is, ..)) in before.into_iter().zip(after) {
        let name = if is.is_some() { begins } else { ends };
        if was == is || all.iter().any(|it| it.order == name && is_new(it)) {
            continue;
        }
        let order = Attribution {
            order: name.to_owned(),
            by: user.to_owned(),
            at: Some(now),
            ..Attribution::default()
        };
        all.push(order.bounded());
        is_changed = true;
    }
    is_changed.then(|| text(all))
}

#[cfg(test)]
mod tests;
