//! False alarms, counted: faults of the network between members and host, and real deaths, are
//! played second by second through the functions that decide (`liveness`, `Sight`, `choose`,
//! `judge`, `taint::decide`), under one policy without witnesses and one with them.
//!
//! `MUSTER_TRIALS=1000 cargo test -p muster-control-plane --lib false_alarms -- --nocapture` prints
//! the counts of the manual.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use muster_fuzz::Random;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::conditions::{self, TRUE};
use muster_shared::k8s::{ResourceExt as _, Taint};
use muster_shared::names::condition::READY;
use muster_shared::peers::{PEERS, Peer, Sight, condition_type, write};
use serde_json::json;
use tokio::time::Instant;

use super::choose::{Candidate, choose};
use super::judge::{Witness, judge, troubled_since};
use crate::clusters::cluster::monitor::tests::GRACES;
use crate::clusters::cluster::monitor::{Liveness, Verdict};
use crate::clusters::taint::decide::{Scene, decide};
use crate::clusters::taint::record::Record;

/// Faults and deaths that are played unless `MUSTER_TRIALS` says another number.
const TRIALS: u64 = 200;
/// Clusters of the fleet, two in each region.
const CLUSTERS: usize = 8;
/// Second at which the fault begins: all have reported and have been seen before.
const BEGIN: u64 = 60;
/// Seconds for which the policy wants its conditions, as in the proposal.
const WINDOW: u64 = 300;
/// Seconds between two renewals of a lease.
const BEAT: u64 = 10;
/// Handshakes of a hundred that fail for no reason.
const NOISE: u64 = 1;

/// What is broken from [`BEGIN`] on.
#[derive(Default)]
struct Fault {
    /// Members that do not reach the host.
    cut: BTreeSet<usize>,
    /// Members that are dead.
    dead: BTreeSet<usize>,
    /// A member that does not reach another one.
    route: Option<(usize, usize)>,
    /// Second at which everything works again.
    end: u64,
}

struct Member {
    cluster: Cluster,
    liveness: Liveness,
    next_beat: u64,
    /// The peers by their places, with what is known of them and when they are called next.
    sights: BTreeMap<usize, (Sight, u64)>,
    /// Whether something is known of a peer that was not reported to the host.
    has_report: bool,
    /// What the policies without and with witnesses have done.
    followed: [Followed; 2],
}

/// What a policy has done to a member.
#[derive(Default)]
struct Followed {
    taints: Vec<Taint>,
    record: Record,
    again: Option<Timestamp>,
    /// Second at which the taint that evicts came.
    tainted: Option<u64>,
}

struct World {
    begun: Instant,
    members: Vec<Member>,
    witnesses: BTreeMap<usize, BTreeSet<usize>>,
    /// The policies without and with witnesses.
    policies: [ClusterTaintPolicy; 2],
    random: Random,
    /// Time at which a verdict about witnesses may change by itself.
    again: Option<Timestamp>,
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + i64::try_from(second).unwrap()).unwrap()
}

fn policy(with_witnesses: bool) -> ClusterTaintPolicy {
    let wanted = |kind: &str, status: &str| json!({"conditionType": kind, "operator": "In", "statusValues": [status]});
    let mut conditions = vec![wanted("Ready", "Unknown")];
    if with_witnesses {
        conditions.push(wanted("SeenByPeers", "False"));
    }
    serde_json::from_value(json!({
        "metadata": {"name": "dead", "generation": 1},
        "spec": {"matchConditions": conditions, "taintsToAdd": [{
            "key": "example.com/dead", "effect": "NoExecute",
            "addOnMatchSeconds": WINDOW, "removeOnMismatchSeconds": 180,
        }]},
    }))
    .unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let names: Vec<String> = (0..CLUSTERS).map(|n| format!("m{n}")).collect();
        let place = |name: &str| names.iter().position(|it| it == name).unwrap();
        let candidates = names.iter().enumerate().map(|(n, name)| Candidate {
            name: name.clone(),
            place: format!("region{}", n / 2),
            has_agent: true,
        });
        let choice = choose(&candidates.collect::<Vec<_>>(), 3);
        let begun = Instant::now();
        let members = names.iter().map(|name| {
            let watched = choice.watched.get(name).into_iter().flatten();
            let peers: Vec<Peer> = watched
                .map(|it| Peer {
                    name: it.clone(),
                    address: format!("https://{it}"),
                })
                .collect();
            let ready = conditions::new(READY, TRUE, "ClusterReady", "", at(0));
            let sights = peers.iter().map(|peer| {
                let sight = Sight::begin(peer, &[]);
                (place(&peer.name), (sight, random.bits() % 25))
            });
            Member {
                sights: sights.collect(),
                has_report: false,
                liveness: Liveness::new(Some(&ready), begun, begun),
                cluster: serde_json::from_value(json!({
                    "metadata": {"name": name, "annotations": {PEERS: write(&peers)}},
                    "spec": {"syncMode": "Pull"}, "status": {"conditions": [ready]},
                }))
                .unwrap(),
                next_beat: random.bits() % BEAT,
                followed: Default::default(),
            }
        });
        let members = members.collect();
        let by = |it: &BTreeSet<String>| it.iter().map(|it| place(it)).collect();
        let witnesses = choice.witnesses.iter();
        Self {
            begun,
            members,
            witnesses: witnesses.map(|(name, it)| (place(name), by(it))).collect(),
            policies: [policy(false), policy(true)],
            random,
            again: None,
        }
    }

    /// Plays one second.
    fn step(&mut self, second: u64, fault: &Fault) {
        let (now, instant) = (at(second), self.begun + Duration::from_secs(second));
        let is_on = (BEGIN..fault.end).contains(&second);
        let mut is_update = self.again.is_some_and(|again| again <= now);
        for (place, member) in self.members.iter_mut().enumerate() {
            if is_on && fault.dead.contains(&place) {
                continue;
            }
            for (peer, (sight, due)) in &mut member.sights {
                if *due > second {
                    continue;
                }
                let is_broken = fault.dead.contains(peer) || fault.route == Some((place, *peer));
                let fails = is_on && is_broken || self.random.bits() % 100 < NOISE;
                let before = sight.reach;
                sight.note(!fails);
                member.has_report |= sight.reach != before;
                let pause = sight.pause().as_secs();
                let spread = self.random.bits() % (2 * pause / 5 + 1);
                *due = second + pause - pause / 5 + spread + if fails { 5 } else { 0 };
            }
            if is_on && fault.cut.contains(&place) {
                continue;
            }
            let status = member.cluster.status.as_mut().unwrap();
            if member.next_beat <= second {
                member.next_beat = second + BEAT;
                member.liveness.lease(Some(now), instant);
                let ready = conditions::new(READY, TRUE, "ClusterReady", "", now);
                if conditions::set(&mut status.conditions, ready.clone()) {
                    member.liveness.ready(Some(&ready), instant);
                    is_update = true;
                }
            }
            if !std::mem::take(&mut member.has_report) {
                continue;
            }
            for (peer, (sight, _)) in &member.sights {
                let report = sight.condition(&format!("m{peer}"), now);
                is_update |= report.is_some_and(|it| conditions::set(&mut status.conditions, it));
            }
        }
        for member in &mut self.members {
            if let Verdict::Silent(silence) = member.liveness.judge(GRACES, instant) {
                let ready = silence.condition(now);
                let status = member.cluster.status.as_mut().unwrap();
                is_update |= conditions::set(&mut status.conditions, ready.clone());
                member.liveness.wrote(ready);
            }
        }
        if is_update {
            self.report(now);
        }
        for member in &mut self.members {
            for (policy, followed) in self.policies.iter().zip(&mut member.followed) {
                if is_update || followed.again.is_some_and(|again| again <= now) {
                    followed.taint(&mut member.cluster, policy, second);
                }
            }
        }
    }

    /// Returns whether a member is ready, or one that is ready reaches it.
    fn lives(&self, name: &str) -> bool {
        let is_ready = |it: &Cluster| it.condition(READY).is_some_and(|it| it.status == TRUE);
        let reaches = condition_type(name);
        let mut all = self.members.iter().map(|it| &it.cluster);
        all.any(|it| {
            let sees = || it.condition(&reaches).is_some_and(|it| it.status == TRUE);
            is_ready(it) && (it.name_any() == name || sees())
        })
    }

    /// Judges what the witnesses of all members see.
    fn report(&mut self, now: Timestamp) {
        self.again = None;
        for place in 0..self.members.len() {
            let about = self.members[place].cluster.name_any();
            let witnesses = self.witnesses.get(&place).into_iter().flatten();
            let witnesses: Vec<Witness> = witnesses
                .map(|it| Witness::of(&self.members[*it].cluster, &about, |peer| self.lives(peer)))
                .collect();
            let cluster = &mut self.members[place].cluster;
            let verdict = judge(&witnesses, troubled_since(cluster), now);
            let status = cluster.status.as_mut().unwrap();
            conditions::set(&mut status.conditions, verdict.condition);
            let again = [self.again, verdict.again].into_iter().flatten();
            self.again = again.min();
        }
    }
}

impl Followed {
    fn taint(&mut self, cluster: &mut Cluster, policy: &ClusterTaintPolicy, second: u64) {
        cluster.spec.taints.clone_from(&self.taints);
        let scene = Scene {
            cluster,
            record: Some(self.record.clone()),
            policies: &[policy],
            selects: &|_| true,
            is_gone: &|_| false,
            lacks_some: false,
            is_refused: &|_| false,
            is_first: false,
            reserves: true,
        };
        let outcome = decide(&scene, at(second));
        self.again = outcome.again;
        if let Some(taints) = outcome.taints {
            if !taints.is_empty() {
                self.tainted.get_or_insert(second);
            }
            self.taints = taints;
        }
        if let Some(record) = outcome.record {
            self.record = record;
        }
    }
}

/// Plays a fault and what follows it, and returns for each member when it got the taint that evicts
/// without and with witnesses.
fn play(fault: &Fault, seed: u64) -> Vec<[Option<u64>; 2]> {
    let mut world = World::new(seed);
    for second in 0..fault.end.min(BEGIN + 2 * WINDOW) + 120 {
        world.step(second, fault);
        let mut dead = fault.dead.iter().map(|place| &world.members[*place]);
        let is_tainted = |it: &Member| it.followed.iter().all(|it| it.tainted.is_some());
        if !fault.dead.is_empty() && dead.all(is_tainted) {
            break;
        }
    }
    let members = world.members.iter();
    members
        .map(|it| [it.followed[0].tainted, it.followed[1].tainted])
        .collect()
}

/// Returns a fault of the network between members and host: of one member, of a region, or of the
/// host; in some of them a witness does not reach the member either.
fn network_fault(random: &mut Random) -> (Fault, &'static str) {
    let place = usize::try_from(random.bits() % CLUSTERS as u64).unwrap();
    let mut fault = Fault {
        end: BEGIN + 30 + random.bits() % 900,
        ..Fault::default()
    };
    let kind = match random.bits() % 10 {
        0..=6 => {
            fault.cut.insert(place);
            "one member"
        }
        7..=8 => {
            fault.cut.extend([place, place ^ 1]);
            "one region"
        }
        _ => {
            fault.cut.extend(0..CLUSTERS);
            "the host"
        }
    };
    if random.bits().is_multiple_of(10) {
        let other = (place + 1 + usize::try_from(random.bits() % (CLUSTERS as u64 - 1)).unwrap())
            % CLUSTERS;
        fault.route = Some((other, place));
    }
    (fault, kind)
}

/// Returns the death of one member, or of a region.
fn death(random: &mut Random) -> (Fault, usize) {
    let place = usize::try_from(random.bits() % CLUSTERS as u64).unwrap();
    let mut fault = Fault {
        end: u64::MAX / 2,
        ..Fault::default()
    };
    fault.dead.insert(place);
    if random.bits().is_multiple_of(5) {
        fault.dead.insert(place ^ 1);
    }
    (fault, place)
}

#[test]
fn witnesses_prevent_evictions_because_of_the_network_and_delay_those_of_deaths_by_seconds() {
    let asked = std::env::var("MUSTER_TRIALS").ok();
    let trials = asked.map_or(TRIALS, |it| it.parse().unwrap());
    let mut faults: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let mut random = Random::new(7);
    for seed in 0..trials {
        let (fault, kind) = network_fault(&mut random);
        let tainted = play(&fault, seed);
        let alarms = |of: usize| u64::from(tainted.iter().any(|it| it[of].is_some()));
        let [played, without, with] = faults.entry(kind).or_default();
        *played += 1;
        *without += alarms(0);
        *with += alarms(1);
    }
    let mut later = Vec::new();
    let mut took = Vec::new();
    let mut missed = 0;
    for seed in 0..trials {
        let (fault, place) = death(&mut random);
        match play(&fault, seed)[place] {
            [Some(without), Some(with)] => {
                took.push(without - BEGIN);
                later.push(with.saturating_sub(without));
            }
            _ => missed += 1,
        }
    }
    later.sort_unstable();
    took.sort_unstable();
    println!("{trials} faults of the network between members and host, a policy with {WINDOW} s:");
    println!("  cut off      played  evictions without witnesses  with 3 witnesses");
    for (kind, [played, without, with]) in &faults {
        println!("  {kind:<12} {played:>6}  {without:>27}  {with:>16}");
    }
    let of = |list: &[u64], percent: usize| list[(list.len() - 1) * percent / 100];
    println!("{trials} deaths: {missed} not noticed by both policies");
    println!(
        "  without witnesses: tainted {} s after the death (median; 99 of 100 within {} s)",
        of(&took, 50),
        of(&took, 99)
    );
    println!(
        "  with 3 witnesses: {} s later (median; 99 of 100 at most {} s, at most {} s)",
        of(&later, 50),
        of(&later, 99),
        of(&later, 100)
    );
    let total = |column: usize| faults.values().map(|it| it[column]).sum::<u64>();
    assert!(
        total(1) > trials / 4,
        "the faults are such that matter: {faults:?}"
    );
    assert_eq!(total(2), 0, "{faults:?}");
    assert_eq!(missed, 0, "every death is noticed");
    assert!(
        of(&later, 99) < 60,
        "99 of 100 are at most {} s later",
        of(&later, 99)
    );
}
