//! How a Deployment's ReplicaSets share its pods while a new template replaces an old one. Pure.

use k8s_openapi::api::apps::v1::DeploymentSpec;
use muster_shared::k8s::IntOrString;

/// One ReplicaSet of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    /// Its name.
    pub name: String,
    /// It has the present template.
    pub current: bool,
    /// How many pods it is to have.
    pub wanted: usize,
    /// How many pods it has.
    pub pods: usize,
    /// How many of them serve.
    pub available: usize,
}

/// How old pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The old go first, then the new come.
    Recreate,
    /// Never more than `surge` pods too many, never more than `unavailable` too few.
    Rolling {
        /// Pods beyond the number of replicas.
        surge: usize,
        /// Pods of the number of replicas that may be missing.
        unavailable: usize,
    },
}

impl Strategy {
    /// Returns the strategy of a Deployment: percentages round up for the surge and down for the
    /// missing, and both cannot be nothing (Kubernetes' `ResolveFenceposts`).
    pub(super) fn of(spec: &DeploymentSpec, replicas: usize) -> Self {
        let strategy = spec.strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
            return Self::Recreate;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".to_owned());
        let surge = rolling
            .and_then(|rolling| rolling.max_surge.as_ref())
            .unwrap_or(&quarter);
        let missing = rolling
            .and_then(|rolling| rolling.max_unavailable.as_ref())
            .unwrap_or(&quarter);
        let (surge, unavailable) = (
            scaled(surge, replicas, true),
            scaled(missing, replicas, false),
        );
        let unavailable = if surge == 0 && unavailable == 0 {
            1
        } else {
            unavailable
        };
        Self::Rolling { surge, unavailable }
    }
}

fn scaled(value: &IntOrString, of: usize, up: bool) -> usize {
    match value {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            if up {
                (of * percent).div_ceil(100)
            } else {
                of * percent / 100
            }
        }
    }
}

/// Returns the sets whose number of pods is to change now, with the new number. The present set is
/// among `sets`.
pub(super) fn scale(
    replicas: usize,
    strategy: Strategy,
    paused: bool,
    sets: &[Set],
) -> Vec<(String, usize)> {
    let mut scaled: Vec<(String, usize)> = Vec::new();
    let Some(new) = sets.iter().find(|set| set.current) else {
        return scaled;
    };
    let old: Vec<&Set> = sets.iter().filter(|set| !set.current).collect();
    if old
        .iter()
        .all(|set| set.wanted == 0 && (strategy != Strategy::Recreate || set.pods == 0))
    {
        if new.wanted != replicas {
            scaled.push((new.name.clone(), replicas));
        }
        return scaled;
    }
    if paused {
        return scaled;
    }
    match strategy {
        Strategy::Recreate => {
            scaled.extend(
                old.iter()
                    .filter(|set| set.wanted > 0)
                    .map(|set| (set.name.clone(), 0)),
            );
        }
        Strategy::Rolling { surge, unavailable } => {
            let wanted: usize = sets.iter().map(|set| set.wanted).sum();
            let room = (replicas + surge).saturating_sub(wanted);
            let target = replicas.min(new.wanted + room);
            if target != new.wanted {
                scaled.push((new.name.clone(), target));
            }
            scale_down(
                replicas.saturating_sub(unavailable),
                new,
                &old,
                wanted,
                &mut scaled,
            );
        }
    }
    scaled
}

/// Takes from the old sets what is not needed for `minimum` pods to serve: first pods that do not
/// serve anyway.
fn scale_down(
    minimum: usize,
    new: &Set,
    old: &[&Set],
    wanted: usize,
    scaled: &mut Vec<(String, usize)>,
) {
    let starting = new.wanted.saturating_sub(new.available);
    let mut spare = wanted.saturating_sub(minimum + starting);
    let serving: usize = new.available + old.iter().map(|set| set.available).sum::<usize>();
    let mut spare_serving = serving.saturating_sub(minimum);
    for set in old.iter().filter(|set| set.wanted > 0) {
        let idle = set.wanted.saturating_sub(set.available).min(spare);
        spare -= idle;
        let busy = set
            .available
            .min(set.wanted - idle)
            .min(spare)
            .min(spare_serving);
        spare -= busy;
        spare_serving -= busy;
        if idle + busy > 0 {
            scaled.push((set.name.clone(), set.wanted - idle - busy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, wanted: usize, available: usize) -> Set {
        Set {
            name: name.to_owned(),
            current: name == "new",
            wanted,
            pods: wanted,
            available,
        }
    }

    fn steps(replicas: usize, strategy: Strategy, sets: &[Set]) -> Vec<(String, usize)> {
        scale(replicas, strategy, false, sets)
    }

    #[test]
    fn a_lone_set_follows_the_number_of_replicas() {
        let rolling = Strategy::Rolling {
            surge: 1,
            unavailable: 0,
        };
        assert_eq!(
            steps(3, rolling, &[set("new", 2, 2)]),
            [("new".to_owned(), 3)]
        );
        assert_eq!(
            steps(1, rolling, &[set("new", 2, 2), set("old", 0, 0)]),
            [("new".to_owned(), 1)]
        );
        assert!(steps(2, rolling, &[set("new", 2, 0)]).is_empty());
    }

    #[test]
    fn a_rolling_update_never_has_too_few_or_too_many() {
        let rolling = Strategy::Rolling {
            surge: 1,
            unavailable: 0,
        };
        let mut sets = [set("new", 0, 0), set("old", 3, 3)];
        for _ in 0..20 {
            let changes = steps(3, rolling, &sets);
            for (name, wanted) in changes {
                let set = sets.iter_mut().find(|set| set.name == name).unwrap();
                set.wanted = wanted;
                set.available = set.available.min(wanted);
            }
            let all: usize = sets.iter().map(|set| set.wanted).sum();
            let serving: usize = sets.iter().map(|set| set.available).sum();
            assert!(all <= 4 && serving >= 3, "{sets:?}");
            sets[0].available = sets[0].wanted;
        }
        assert_eq!((sets[0].wanted, sets[1].wanted), (3, 0));
    }

    #[test]
    fn pods_that_do_not_serve_go_first() {
        let rolling = Strategy::Rolling {
            surge: 1,
            unavailable: 0,
        };
        let sets = [set("new", 1, 1), set("broken", 3, 0)];
        let sets = [
            sets[0].clone(),
            Set {
                current: false,
                ..sets[1].clone()
            },
        ];
        assert_eq!(steps(3, rolling, &sets), [("broken".to_owned(), 2)]);
    }

    #[test]
    fn recreate_waits_until_the_old_pods_are_gone() {
        let leaving = Set {
            pods: 2,
            ..set("old", 0, 0)
        };
        assert_eq!(
            steps(2, Strategy::Recreate, &[set("new", 0, 0), set("old", 2, 2)]),
            [("old".to_owned(), 0)]
        );
        assert!(steps(2, Strategy::Recreate, &[set("new", 0, 0), leaving]).is_empty());
        assert_eq!(
            steps(2, Strategy::Recreate, &[set("new", 0, 0), set("old", 0, 0)]),
            [("new".to_owned(), 2)]
        );
    }

    #[test]
    fn percentages_round_so_that_something_moves() {
        let of = |surge: &str, missing: &str, replicas| {
            let spec: DeploymentSpec = serde_json::from_value(serde_json::json!({
                "selector": {}, "template": {},
                "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}},
            }))
            .unwrap();
            Strategy::of(&spec, replicas)
        };
        assert_eq!(
            of("25%", "25%", 2),
            Strategy::Rolling {
                surge: 1,
                unavailable: 0
            }
        );
        assert_eq!(
            of("0%", "25%", 2),
            Strategy::Rolling {
                surge: 0,
                unavailable: 1
            }
        );
    }
}
