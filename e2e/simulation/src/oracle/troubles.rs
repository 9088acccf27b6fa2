//! Which faults last, and whom they keep from knowing or doing something.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::fault_kind::FaultKind;
use crate::history::{Actor, Api, Entry, Process, World};

/// Time for which a fault that is over still has consequences: watches are given up, lists are
/// tried again, processes are started anew.
const AFTERWARDS: SignedDuration = SignedDuration::from_secs(90);

/// The faults that last, and those that ended lately.
#[derive(Debug, Default)]
pub struct Troubles {
    /// By their numbers: the kind, and when it ended.
    faults: BTreeMap<u64, (FaultKind, Option<Timestamp>)>,
    /// When a process was last started.
    started: BTreeMap<Process, Timestamp>,
}

impl Troubles {
    /// Takes note of an entry.
    pub fn note(&mut self, entry: &Entry) {
        match entry.world() {
            Some(World::FaultBegins { id, detail, .. }) => {
                if let Ok(kind) = serde_json::from_value(detail.clone()) {
                    self.faults.insert(*id, (kind, None));
                }
            }
            Some(World::FaultEnds { id }) => {
                if let Some((_, ended)) = self.faults.get_mut(id) {
                    *ended = Some(entry.at);
                }
            }
            Some(World::Promoted) => {
                for (kind, ended) in self.faults.values_mut() {
                    if matches!(kind, FaultKind::HostLoss { .. }) {
                        *ended = Some(entry.at);
                    }
                }
            }
            Some(World::Started(process)) => {
                self.started.insert(process.clone(), entry.at);
            }
            _ => {}
        }
    }

    /// Returns the faults that last, or ended lately.
    fn lately(&self, now: Timestamp) -> impl Iterator<Item = &FaultKind> {
        self.faults.values().filter_map(move |(kind, ended)| {
            let is_near = ended.is_none_or(|at| now.duration_since(at) <= AFTERWARDS);
            is_near.then_some(kind)
        })
    }

    /// Returns whether something lately kept the control plane from knowing or doing something.
    pub fn of_control_plane(&self, now: Timestamp) -> bool {
        self.lately(now).any(concerns_control_plane) || self.is_started(now, is_control_plane)
    }

    /// Returns whether something lately kept what happens in a cluster from being reported or
    /// known.
    pub fn of_cluster(&self, cluster: &str, now: Timestamp) -> bool {
        let member = Api::Member(cluster.to_owned());
        let agent = Process::Agent(cluster.to_owned());
        let parties = [Actor::Process(agent.clone()), Actor::Workloads];
        let concerns = |kind: &FaultKind| {
            let is_of_nodes = matches!(kind, FaultKind::Nodes { member, .. } if member == cluster);
            let mut ways = parties
                .iter()
                .flat_map(|it| [(it, &Api::Fleet), (it, &member)]);
            is_of_nodes || ways.any(|(actor, api)| kind.concerns(actor, api))
        };
        self.lately(now)
            .any(|it| concerns(it) || concerns_control_plane(it))
            || self.is_started(now, |it| *it == agent || is_control_plane(it))
    }

    /// Returns whether the control plane may have been started from lists that lacked objects,
    /// lately.
    pub fn began_blindly(&self, now: Timestamp) -> bool {
        let is_short = |kind: &FaultKind| kind.distorts() && concerns_control_plane(kind);
        self.lately(now).any(is_short) && self.is_started(now, is_control_plane)
    }

    /// Returns whether what a process lists at a server lately lacked objects.
    pub fn lacks(&self, who: &Actor, server: &Api, now: Timestamp) -> bool {
        let mut kinds = self.lately(now);
        kinds.any(|it| matches!(it, FaultKind::Short { .. }) && it.concerns(who, server))
    }

    fn is_started(&self, now: Timestamp, is_meant: impl Fn(&Process) -> bool) -> bool {
        let mut started = self.started.iter().filter(|(process, _)| is_meant(process));
        started.any(|(_, at)| now.duration_since(*at) <= AFTERWARDS)
    }
}

const fn is_control_plane(process: &Process) -> bool {
    matches!(process, Process::ControlPlane(_))
}

fn concerns_control_plane(kind: &FaultKind) -> bool {
    let is_of_clocks = matches!(
        kind,
        FaultKind::Clock { .. } | FaultKind::Skew { .. } | FaultKind::ServerClock { .. }
    );
    is_of_clocks
        || matches!(kind, FaultKind::HostLoss { .. })
        || (0..4).any(|number| {
            let actor = Actor::Process(Process::ControlPlane(number));
            kind.concerns(&actor, &Api::Fleet)
        })
}
