//! Random plans: a fleet, what people do to it, and what goes wrong, drawn from a seed.

mod data;
mod hosts;
mod witnesses;

pub use self::witnesses::PEERS;
use crate::design;
use crate::faults::{Fault, FaultKind, Moment};
use crate::feature::Feature;
use crate::history::{Actor, Api, Process};
use crate::people::{Dice, Mix, Script, Site, Size};
use crate::plan::{Phases, Plan};
use crate::random::Random;

/// How large random plans are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says what a plan has")]
pub struct Scale {
    /// Members, workloads and steps.
    pub size: Size,
    /// What people do in one plan of three; in the others they do less.
    pub mix: Mix,
    /// Faults.
    pub faults: u64,
    /// Features of policies and orders that people set and unset in one plan; 0 for plans in which
    /// people do what the mix says.
    pub features: usize,
    /// Whether these are only what holds workloads where they are, and what asks for moves.
    pub holds: bool,
    /// Whether data follows the workloads, and people set what moves or holds these.
    pub data: bool,
    /// Whether the host of the fleet API dies and comes back, and a standby is promoted.
    pub hosts: bool,
    /// Whether members watch each other, and are moved from when no peer sees them.
    pub witnesses: bool,
    /// Lengths of the phases.
    pub phases: Phases,
}

impl Scale {
    /// A few members for a quarter of an hour.
    pub const SMALL: Self = Self {
        size: Size {
            members: 3,
            workloads: 4,
            steps: 6,
            busy: 600_000,
            push: 20,
        },
        mix: Mix::EVERYTHING,
        faults: 6,
        features: 0,
        holds: false,
        data: false,
        hosts: false,
        witnesses: false,
        phases: Phases {
            busy: 600_000,
            calm: 1_200_000,
            rest: 60_000,
            fresh: 60_000,
        },
    };

    /// What is run with each test: fewer workloads, steps and faults, for a shorter time.
    pub const BRIEF: Self = Self {
        size: Size {
            members: 3,
            workloads: 3,
            steps: 5,
            busy: 300_000,
            push: 20,
        },
        faults: 5,
        phases: Phases {
            busy: 300_000,
            calm: 900_000,
            rest: 30_000,
            fresh: 45_000,
        },
        ..Self::SMALL
    };

    /// People set and unset features of policies and orders, several at a time.
    pub const FEATURES: Self = Self {
        size: Size {
            members: 3,
            workloads: 3,
            steps: 120,
            busy: 420_000,
            push: 15,
        },
        faults: 7,
        features: 16,
        phases: Phases {
            busy: 420_000,
            calm: 900_000,
            rest: 30_000,
            fresh: 45_000,
        },
        ..Self::SMALL
    };

    /// People hold several workloads where they are, ask for moves meanwhile, and let go: what
    /// waited is due at once.
    pub const HOLDS: Self = Self {
        size: Size {
            workloads: 6,
            steps: 90,
            ..Self::FEATURES.size
        },
        faults: 2,
        features: HOLDS.len(),
        holds: true,
        ..Self::FEATURES
    };

    /// Data follows the workloads, and waits for engines that take their time.
    pub const DATA: Self = Self {
        size: Size {
            steps: 30,
            ..Self::FEATURES.size
        },
        features: data::FEATURES.len(),
        data: true,
        ..Self::FEATURES
    };

    /// The host of the fleet API dies, a standby with an older store is promoted, and the old host
    /// comes back, at any moment.
    pub const HOSTS: Self = Self {
        size: Size {
            steps: 12,
            busy: 480_000,
            ..Self::SMALL.size
        },
        faults: 4,
        hosts: true,
        phases: Phases {
            busy: 480_000,
            calm: 1_200_000,
            rest: 30_000,
            fresh: 45_000,
        },
        ..Self::SMALL
    };

    /// Members watch each other over links that fail, one of them lies, and policies ask both the
    /// host and the peers.
    pub const WITNESSES: Self = Self {
        size: Size {
            members: 5,
            push: 0,
            ..Self::HOSTS.size
        },
        hosts: false,
        witnesses: true,
        ..Self::HOSTS
    };
}

/// Features that hold workloads where they are, and those that ask for moves.
const HOLDS: [Feature; 8] = [
    Feature::PauseFleet,
    Feature::PauseCluster,
    Feature::SuspendScheduling,
    Feature::Rebalance,
    Feature::Failback,
    Feature::Drain,
    Feature::Cordon,
    Feature::Taint,
];

/// Draws a plan from a seed.
pub fn plan(seed: u64, scale: Scale) -> Plan {
    let mut plan = if scale.features > 0 {
        of_features(seed, scale)
    } else {
        of_mix(seed, scale)
    };
    if scale.hosts {
        let faults = hosts::lose(&mut Random::new(seed, "hosts"), &plan);
        plan.faults.extend(faults);
    }
    if scale.data {
        data::follow(&mut Random::new(seed, "data"), &mut plan);
    }
    if scale.witnesses {
        witnesses::ask(&mut Random::new(seed, "witnesses"), &mut plan);
    }
    plan
}

/// Returns a plan in which people do what the mix says.
fn of_mix(seed: u64, scale: Scale) -> Plan {
    // The less people wish for, the less the oracles excuse.
    let mixes = [Mix::DRAINS, Mix::OPERATIONS, scale.mix];
    let mix = *Random::new(seed, "mix").one(&mixes);
    let script = Script::random(&mut Random::new(seed, "people"), scale.size, mix);
    let mut random = Random::new(seed, "faults");
    let replicas = if random.percent(50) { 2 } else { 1 };
    let mut faults: Vec<Fault> = (1..=scale.faults)
        .map(|id| {
            fault(
                &mut random,
                id,
                None,
                &script.sites,
                replicas,
                scale.phases.busy,
            )
        })
        .collect();
    if random.percent(30) {
        faults.extend(flapping(
            &mut random,
            scale.faults + 1,
            &script.sites,
            scale.phases.busy,
        ));
    }
    let gate = random.percent(90);
    let flags = [
        format!("--feature-gates=Failover={gate}"),
        "--resource-eviction-rate=0.5".to_owned(),
    ];
    Plan {
        seed,
        replicas,
        flags: flags.to_vec(),
        // Elections of agents are most of what is written: one plan in four has them.
        agent_flags: vec![format!("--leader-elect={}", random.percent(25))],
        sites: script.sites,
        everywhere: script.everywhere,
        objects: script.objects,
        steps: script.steps,
        faults,
        phases: scale.phases,
    }
}

/// Returns a plan in which people set and unset features, and each kind of fault that its design
/// names happens once.
fn of_features(seed: u64, scale: Scale) -> Plan {
    let faults = usize::try_from(scale.faults).unwrap_or(usize::MAX);
    let design = design::of(seed, scale.features, faults);
    let mut people = Random::new(seed, "people");
    let features: &[Feature] = match () {
        () if scale.holds => &HOLDS,
        () if scale.data => &data::FEATURES,
        () => &design.features,
    };
    let script = Script::of_features(&mut people, scale.size, features);
    let mut random = Random::new(seed, "faults");
    let replicas = if random.percent(30) { 2 } else { 1 };
    let busy = scale.phases.busy;
    let kinds = (1..).zip(&design.faults);
    let faults = kinds.map(|(id, which)| {
        let which = Some(*which);
        fault(&mut random, id, which, &script.sites, replicas, busy)
    });
    // Some seeds have no faults, so that nothing excuses what goes wrong in them.
    let is_calm = seed.is_multiple_of(CALM);
    let mut faults: Vec<Fault> = faults.filter(|_| !is_calm).collect();
    if !seed.is_multiple_of(2) {
        let again = (1..).zip(&design.faults).map(|(id, which)| {
            let which = Some(*which);
            let id = AGAIN + id;
            let fault = fault(&mut random, id, which, &script.sites, replicas, busy);
            let until = fault.until.min(fault.from + BRIEFLY);
            Fault { until, ..fault }
        });
        faults.extend(again.collect::<Vec<_>>());
    }
    let gaps: Vec<Fault> = faults
        .iter_mut()
        .filter_map(|it| relisted(&mut random, it))
        .collect();
    faults.extend(gaps);
    // With a low rate few moves show that one was not paid for.
    let rate = match *random.one(&["0.5", "0.05", "0.05"]) {
        _ if scale.holds => "0.05",
        _ if scale.data => "0.5",
        rate => rate,
    };
    let flags = [
        "--feature-gates=Failover=true,PropagationPolicyPreemption=true".to_owned(),
        format!("--resource-eviction-rate={rate}"),
    ];
    Plan {
        seed,
        replicas,
        flags: flags.to_vec(),
        agent_flags: vec![format!("--leader-elect={}", random.percent(25))],
        sites: script.sites,
        everywhere: script.everywhere,
        objects: script.objects,
        steps: script.steps,
        faults,
        phases: scale.phases,
    }
}

/// One seed of so many has no faults.
const CALM: u64 = 4;
/// Beginning of the numbers of faults of a kind that happens a second time, which every other seed
/// has: a new fault meets other features than one that lasts.
const AGAIN: u64 = 50;
/// The longest that such a fault lasts, in milliseconds: oracles excuse much while one does.
const BRIEFLY: u64 = 20_000;

/// Returns the gap in the watches that goes with a fault of short lists, after which everything is
/// listed anew: who lists nothing meets no list that lacks objects.
fn relisted(random: &mut Random, fault: &mut Fault) -> Option<Fault> {
    let FaultKind::Short {
        actor, api, share, ..
    } = &mut fault.kind
    else {
        return None;
    };
    *share = u16::try_from(random.between(200, 800)).unwrap_or(500);
    let kind = FaultKind::Miss {
        actor: actor.clone(),
        api: api.clone(),
        pause: 1_000,
        plural: None,
    };
    // The lists stay as they are for long enough that something is done by them.
    fault.until = fault.until.max(fault.from + random.between(30_000, 90_000));
    Some(Fault {
        id: 100 + fault.id,
        from: fault.from + 1_000,
        until: fault.until,
        kind,
    })
}

/// Returns a fault of a kind by its number, or of any.
fn fault(
    random: &mut Random,
    id: u64,
    which: Option<usize>,
    sites: &[Site],
    replicas: u8,
    busy: u64,
) -> Fault {
    let from = random.below(busy);
    // Most are short; some last longer than every grace period.
    let length = if random.percent(70) {
        random.between(1_000, 60_000)
    } else {
        random.between(60_000, 400_000)
    };
    Fault {
        id,
        from,
        until: from.saturating_add(length),
        kind: kind(random, which, sites, replicas),
    }
}

/// Returns the faults of a member that comes and goes several times.
fn flapping(random: &mut Random, first: u64, sites: &[Site], busy: u64) -> Vec<Fault> {
    let member = random.one(sites).name.clone();
    let mut at = random.below(busy / 2);
    let times = random.between(3, 8);
    (first..first + times)
        .map(|id| {
            let from = at + random.between(5_000, 60_000);
            at = from + random.between(5_000, 120_000);
            let member = member.clone();
            Fault {
                id,
                from,
                until: at,
                kind: FaultKind::Down { member },
            }
        })
        .collect()
}

/// Lists of all kinds that lack some objects.
const fn short(actor: Actor, api: Api, share: u16) -> FaultKind {
    FaultKind::Short {
        actor,
        api,
        share,
        plural: None,
    }
}

/// How often each kind of fault is drawn, in the order of [`FaultKind::NAMES`].
const SHARES: [u64; 21] = [
    4, 2, 5, 2, 4, 3, 6, 3, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 3, 1,
];

fn kind(random: &mut Random, which: Option<usize>, sites: &[Site], replicas: u8) -> FaultKind {
    let site = random.one(sites).clone();
    let (process, api) = way(random, &site, replicas);
    let actor = Actor::Process(process.clone());
    let share = u16::try_from(random.between(20, 500)).unwrap_or(100);
    match which.unwrap_or_else(|| random.share(&SHARES)) {
        0 => FaultKind::Partition {
            actor,
            api,
            silent: random.percent(60),
        },
        1 => FaultKind::Down { member: site.name },
        2 => FaultKind::Refuse {
            actor,
            api,
            code: *random.one(&[403, 409, 410, 422, 429, 500, 503, 504]),
            share,
        },
        3 => FaultKind::LoseRequests { actor, api, share },
        4 => FaultKind::LoseAnswers { actor, api, share },
        5 => FaultKind::Slow {
            actor,
            api,
            delay: random.between(100, 20_000),
        },
        6 => FaultKind::Crash {
            process,
            nth: random.between(1, 30),
            moment: *random.one(&[Moment::BeforeSending, Moment::AfterCommit]),
            of_all: random.percent(30),
        },
        7 => FaultKind::Lag {
            actor,
            api,
            lag: random.between(100, 30_000),
            plural: None,
        },
        8 => FaultKind::Break { actor, api },
        9 => FaultKind::Miss {
            actor,
            api,
            pause: random.between(1_000, 30_000),
            plural: None,
        },
        10 => FaultKind::Repeat { actor, api },
        11 => FaultKind::Stale { actor, api },
        12 => FaultKind::Garble { actor, api, share },
        13 => FaultKind::Nonsense {
            actor,
            api: Api::Member(site.name),
            share,
        },
        14 => short(actor, api, share),
        15 => FaultKind::Quota {
            api: Api::Member(site.name),
            evicted: usize::try_from(random.between(1, 3)).unwrap_or(1),
        },
        16 => {
            let at_fleet = random.percent(50);
            let kinds: &[&str] = if at_fleet {
                &["works", "resourcebindings", "clusters", "events"]
            } else {
                &["deployments", "statefulsets", "configmaps", "jobs"]
            };
            FaultKind::Deny {
                plural: (*random.one(kinds)).to_owned(),
                api: if at_fleet {
                    Api::Fleet
                } else {
                    Api::Member(site.name)
                },
                fails: random.percent(50),
            }
        }
        17 => FaultKind::Nodes {
            count: usize::try_from(random.between(1, 3)).unwrap_or(1),
            member: site.name,
        },
        18 => FaultKind::Clock {
            offset: signed(random, 3_600),
        },
        19 => FaultKind::Skew {
            process,
            jump: signed(random, 3_600),
            drift: if random.percent(50) {
                signed(random, 100)
            } else {
                0
            },
        },
        _ => FaultKind::ServerClock {
            jump: signed(random, 3_600),
            api: if random.percent(70) {
                Api::Fleet
            } else {
                Api::Member(site.name)
            },
        },
    }
}

/// Returns a number from 1 to `most`, or the negative of one.
fn signed(random: &mut Random, most: u64) -> i64 {
    let number = i64::try_from(random.between(1, most)).unwrap_or(1);
    if random.percent(50) { number } else { -number }
}

/// Returns a process and an API that it talks to.
fn way(random: &mut Random, site: &Site, replicas: u8) -> (Process, Api) {
    let member = Api::Member(site.name.clone());
    let replica = u8::try_from(random.below(u64::from(replicas))).unwrap_or_default();
    let control_plane = Process::ControlPlane(replica);
    if site.push && random.percent(50) {
        return (control_plane, member);
    }
    if site.push || random.percent(50) {
        return (control_plane, Api::Fleet);
    }
    let api = if random.percent(70) {
        Api::Fleet
    } else {
        member
    };
    (Process::Agent(site.name.clone()), api)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plans_follow_from_their_seeds_and_have_every_kind_of_fault() {
        assert_eq!(plan(1, Scale::SMALL), plan(1, Scale::SMALL));
        assert_ne!(plan(1, Scale::SMALL), plan(2, Scale::SMALL));
        let kinds: BTreeSet<String> = (0..60)
            .flat_map(|seed| plan(seed, Scale::SMALL).faults)
            .map(|fault| fault.kind.name())
            .collect();
        assert_eq!(kinds, FaultKind::NAMES.map(str::to_owned).into());
    }

    #[test]
    fn a_plan_of_features_has_the_kinds_of_faults_of_its_design() {
        for seed in 0..40 {
            let plan = plan(seed, Scale::FEATURES);
            let design = design::of(seed, Scale::FEATURES.features, 7);
            let wanted = design
                .faults
                .iter()
                .map(|it| FaultKind::NAMES[*it].to_owned());
            let kinds = plan.faults.iter().map(|fault| fault.kind.name());
            let kinds: Vec<String> = kinds.take(7).collect();
            let is_calm = seed.is_multiple_of(CALM);
            assert!(is_calm == kinds.is_empty(), "seed {seed}");
            assert!(is_calm || wanted.eq(kinds), "seed {seed}");
        }
    }
}
