//! How a Deployment's ReplicaSets share its pods while a new template replaces an old one. Pure.

/// One ReplicaSet of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    /// Its name.
    pub name: String,
    /// It has the present template.
    pub current: bool,
    /// How many pods it is to have.
    pub wanted: usize,
    /// How many of them serve.
    pub available: usize,
}

/// Returns the pods that may be there beyond the number of replicas: a quarter, rounded up, the
/// default `maxSurge`.
const fn surge(replicas: usize) -> usize {
    replicas.div_ceil(4)
}

/// Returns the pods that may be missing of the number of replicas: a quarter, rounded down, the
/// default `maxUnavailable`.
pub(super) const fn unavailable(replicas: usize) -> usize {
    replicas / 4
}

/// Returns the sets whose number of pods is to change now, with the new number. The present set is
/// among `sets`.
pub(super) fn scale(replicas: usize, sets: &[Set]) -> Vec<(String, usize)> {
    let mut scaled: Vec<(String, usize)> = Vec::new();
    let Some(new) = sets.iter().find(|set| set.current) else {
        return scaled;
    };
    let old: Vec<&Set> = sets.iter().filter(|set| !set.current).collect();
    if old.iter().all(|set| set.wanted == 0) {
        if new.wanted != replicas {
            scaled.push((new.name.clone(), replicas));
        }
        return scaled;
    }
    let wanted: usize = sets.iter().map(|set| set.wanted).sum();
    let room = (replicas + surge(replicas)).saturating_sub(wanted);
    let target = replicas.min(new.wanted + room);
    if target != new.wanted {
        scaled.push((new.name.clone(), target));
    }
    let minimum = replicas - unavailable(replicas);
    scale_down(minimum, new, &old, wanted, &mut scaled);
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
            available,
        }
    }

    #[test]
    fn a_lone_set_follows_the_number_of_replicas() {
        assert_eq!(scale(3, &[set("new", 2, 2)]), [("new".to_owned(), 3)]);
        assert_eq!(
            scale(1, &[set("new", 2, 2), set("old", 0, 0)]),
            [("new".to_owned(), 1)]
        );
        assert!(scale(2, &[set("new", 2, 0)]).is_empty());
    }

    #[test]
    fn a_rolling_update_never_has_too_few_or_too_many() {
        for replicas in [3, 9] {
            let mut sets = [set("new", 0, 0), set("old", replicas, replicas)];
            for _ in 0..20 {
                for (name, wanted) in scale(replicas, &sets) {
                    let set = sets.iter_mut().find(|set| set.name == name).unwrap();
                    set.wanted = wanted;
                    set.available = set.available.min(wanted);
                }
                let all: usize = sets.iter().map(|set| set.wanted).sum();
                let serving: usize = sets.iter().map(|set| set.available).sum();
                let (most, least) = if replicas == 3 { (4, 3) } else { (12, 7) };
                assert!(all <= most && serving >= least, "{sets:?}");
                sets[0].available = sets[0].wanted;
            }
            assert_eq!((sets[0].wanted, sets[1].wanted), (replicas, 0));
        }
    }

    #[test]
    fn pods_that_do_not_serve_go_first() {
        let broken = set("broken", 3, 0);
        assert_eq!(
            scale(3, &[set("new", 1, 1), broken]),
            [("broken".to_owned(), 2)]
        );
    }
}
