//! What must be true at each point of the story. Pure: pictures in, what is missing out.

use std::collections::{BTreeMap, BTreeSet};

use super::picture::{Picture, Workload, places};
use super::scenario::{
    ALLOWED, FAILED_TAINT, SETTINGS, SHOP, SHOP_REPLICAS, VICTIM, WEB, WEB_REPLICAS,
};

/// Nothing is missing, or this is.
pub type Verdict = Result<(), String>;

/// Checks that all clusters have joined, are ready, and that no taint of their first moments keeps
/// workloads away.
pub fn joined(picture: &Picture) -> Verdict {
    for (name, cluster) in &picture.clusters {
        ensure(cluster.ready == "True", || match cluster.ready.as_str() {
            "" => format!("{name} has not reported yet"),
            ready => format!("{name} has Ready={ready} ({})", cluster.reason),
        })?;
        ensure(cluster.taints.is_empty(), || {
            format!("{name} has taints {}", join(&cluster.taints))
        })?;
    }
    Ok(())
}

/// Checks that the workloads run as first placed: weights 1:2 give one and two, the others are in
/// two of the allowed clusters, the victim among them.
pub fn running(picture: &Picture) -> Verdict {
    let web = picture.workload(WEB);
    placed_as(&web, WEB, &[("member1", 1), ("member2", 2)])?;
    settled(&web, WEB, None)?;
    for (name, replicas) in [(SHOP, SHOP_REPLICAS), (SETTINGS, 1)] {
        let workload = picture.workload(name);
        let placed = two_allowed(&workload, name)?;
        ensure(placed.contains(VICTIM), || {
            format!("{name} is not on {VICTIM}, so that nothing of it could fail over")
        })?;
        settled(&workload, name, Some(replicas))?;
    }
    goes_along(picture)
}

/// Checks that what the Deployment refers to is placed wherever the Deployment is.
fn goes_along(picture: &Picture) -> Verdict {
    let clusters = |name: &str| -> BTreeSet<String> {
        let placed = picture.workload(name).placed;
        placed.unwrap_or_default().into_keys().collect()
    };
    let lacking: BTreeSet<String> = &clusters(SHOP) - &clusters(SETTINGS);
    ensure(lacking.is_empty(), || {
        format!("{SHOP} is on {} without {SETTINGS}", join(&lacking))
    })
}

/// Checks that the control plane has noticed that the victim is silent.
pub fn unknown(picture: &Picture) -> Verdict {
    let victim = picture.clusters.get(VICTIM).cloned().unwrap_or_default();
    ensure(victim.ready == "Unknown", || {
        format!("{VICTIM} still has Ready={}", victim.ready)
    })
}

/// Checks that the victim is declared failed.
pub fn tainted(picture: &Picture) -> Verdict {
    let taints = picture
        .clusters
        .get(VICTIM)
        .map(|victim| victim.taints.clone())
        .unwrap_or_default();
    ensure(taints.contains(FAILED_TAINT), || {
        format!("{VICTIM} does not have taint {FAILED_TAINT}")
    })
}

/// Checks that everything is placed anew: member2 has all of web, shop keeps its healthy cluster
/// and gains an allowed one, and its settings go along.
pub fn moved(picture: &Picture, before: &Picture) -> Verdict {
    placed_as(&picture.workload(WEB), WEB, &[("member2", WEB_REPLICAS)])?;
    let placed = two_allowed(&picture.workload(SHOP), SHOP)?;
    ensure(!placed.contains(VICTIM), || {
        format!("{SHOP} is still placed on {VICTIM}")
    })?;
    let kept: BTreeSet<String> = before
        .workload(SHOP)
        .placed
        .unwrap_or_default()
        .into_keys()
        .filter(|cluster| cluster != VICTIM)
        .collect();
    ensure(kept.is_subset(&placed), || {
        format!(
            "{SHOP} left a healthy cluster: it was on {}, it is on {}",
            join(&kept),
            join(&placed)
        )
    })?;
    goes_along(picture)
}

/// Checks that the new copies are healthy.
pub fn healthy_elsewhere(picture: &Picture, before: &Picture) -> Verdict {
    moved(picture, before)?;
    settled(&picture.workload(WEB), WEB, None)?;
    settled(&picture.workload(SHOP), SHOP, Some(SHOP_REPLICAS))?;
    settled(&picture.workload(SETTINGS), SETTINGS, Some(1))
}

/// Checks that the victim is back: ready, and no longer declared failed.
pub fn back(picture: &Picture) -> Verdict {
    let victim = picture.clusters.get(VICTIM).cloned().unwrap_or_default();
    ensure(victim.ready == "True", || {
        format!("{VICTIM} has Ready={} ({})", victim.ready, victim.reason)
    })?;
    ensure(victim.taints.is_empty(), || {
        format!("{VICTIM} still has taints {}", join(&victim.taints))
    })
}

/// Checks that the victim runs no old copies any more, and that nobody is leaving.
pub fn old_copies_removed(picture: &Picture) -> Verdict {
    for name in [WEB, SHOP, SETTINGS] {
        let workload = picture.workload(name);
        ensure(!workload.copies.contains_key(VICTIM), || {
            format!("{name} still has its old copy in {VICTIM}")
        })?;
        ensure(workload.leaving.is_empty(), || {
            format!("{name} is still leaving {}", join(&workload.leaving))
        })?;
    }
    Ok(())
}

/// Checks that the story has come to its end.
pub fn ended(picture: &Picture, before: &Picture) -> Verdict {
    healthy_elsewhere(picture, before)?;
    back(picture)?;
    old_copies_removed(picture)
}

/// Checks that everything is placed as it was before, and that nothing is leaving.
pub fn unmoved(picture: &Picture, before: &Picture) -> Verdict {
    for name in [WEB, SHOP, SETTINGS] {
        let (now, then) = (picture.workload(name), before.workload(name));
        ensure(now.placed == then.placed, || {
            format!(
                "{name} moved: it was on [{}], it is on [{}]",
                places(&then.placed.clone().unwrap_or_default()),
                places(&now.placed.clone().unwrap_or_default())
            )
        })?;
        ensure(now.leaving.is_empty(), || {
            format!("{name} is leaving {}", join(&now.leaving))
        })?;
    }
    Ok(())
}

fn ensure(holds: bool, missing: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(missing()) }
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}

fn placed_as(workload: &Workload, name: &str, expected: &[(&str, i64)]) -> Verdict {
    let expected: BTreeMap<String, i64> = expected
        .iter()
        .map(|(cluster, replicas)| ((*cluster).to_owned(), *replicas))
        .collect();
    let placed = workload
        .placed
        .as_ref()
        .ok_or_else(|| format!("{name} has no binding yet"))?;
    ensure(*placed == expected, || {
        format!(
            "{name} is placed on [{}], not on [{}]",
            places(placed),
            places(&expected)
        )
    })
}

fn two_allowed(workload: &Workload, name: &str) -> Result<BTreeSet<String>, String> {
    let placed = workload
        .placed
        .as_ref()
        .ok_or_else(|| format!("{name} has no binding yet"))?;
    let clusters: BTreeSet<String> = placed.keys().cloned().collect();
    ensure(clusters.len() == 2, || {
        format!(
            "{name} is placed on [{}], not on two clusters",
            join(&clusters)
        )
    })?;
    ensure(
        clusters
            .iter()
            .all(|cluster| ALLOWED.contains(&cluster.as_str())),
        || {
            format!(
                "{name} is placed on [{}], which its policy does not allow",
                join(&clusters)
            )
        },
    )?;
    Ok(clusters)
}

/// Checks that the members run what the binding says, as many replicas as placed there (or `each`),
/// all of them serving, and that the fleet knows it.
fn settled(workload: &Workload, name: &str, each: Option<i64>) -> Verdict {
    for (cluster, replicas) in workload.placed.iter().flatten() {
        let wanted = each.unwrap_or(*replicas);
        let copy = workload.copies.get(cluster).copied().unwrap_or_default();
        ensure(copy.wanted == wanted && copy.ready == wanted, || {
            format!(
                "{name} has {} of {wanted} replicas ready in {cluster}",
                copy.ready
            )
        })?;

        ensure(workload.healthy.contains(cluster), || {
            format!("{name} in {cluster} is not reported healthy to the fleet")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Copy;

    fn workload(placed: &[(&str, i64)], copies: &[(&str, i64)]) -> Workload {
        Workload {
            placed: Some(
                placed
                    .iter()
                    .map(|(name, replicas)| ((*name).to_owned(), *replicas))
                    .collect(),
            ),
            leaving: BTreeSet::new(),
            healthy: copies.iter().map(|(name, _)| (*name).to_owned()).collect(),
            copies: copies
                .iter()
                .map(|(name, ready)| {
                    (
                        (*name).to_owned(),
                        Copy {
                            wanted: *ready,
                            ready: *ready,
                        },
                    )
                })
                .collect(),
        }
    }

    fn start() -> Picture {
        let mut picture = Picture::default();
        picture.workloads.insert(
            WEB,
            workload(
                &[("member1", 1), ("member2", 2)],
                &[("member1", 1), ("member2", 2)],
            ),
        );
        picture.workloads.insert(
            SHOP,
            workload(
                &[("member1", 2), ("member2", 2)],
                &[("member1", 2), ("member2", 2)],
            ),
        );
        picture.workloads.insert(
            SETTINGS,
            workload(
                &[("member1", 0), ("member2", 0)],
                &[("member1", 1), ("member2", 1)],
            ),
        );
        picture
    }

    fn moved_on() -> Picture {
        let mut picture = start();
        picture.workloads.insert(
            WEB,
            workload(&[("member2", 3)], &[("member1", 1), ("member2", 3)]),
        );
        picture.workloads.insert(
            SHOP,
            workload(
                &[("member2", 2), ("member5", 2)],
                &[("member2", 2), ("member5", 2)],
            ),
        );
        picture.workloads.insert(
            SETTINGS,
            workload(
                &[("member2", 0), ("member5", 0)],
                &[("member2", 1), ("member5", 1)],
            ),
        );
        picture
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut half = moved_on();
        half.workloads
            .insert(WEB, workload(&[("member2", 3)], &[("member2", 2)]));
        let mut strayed = moved_on();
        strayed
            .workloads
            .insert(SHOP, workload(&[("member3", 2), ("member5", 2)], &[]));
        let mut forbidden = moved_on();
        forbidden
            .workloads
            .insert(SHOP, workload(&[("member2", 2), ("member4", 2)], &[]));
        let mut parted = moved_on();
        parted.workloads.insert(
            SETTINGS,
            workload(&[("member2", 0), ("member3", 0)], &[("member2", 1)]),
        );
        let cases = [
            (
                moved(&parted, &start()),
                "shop is on member5 without shop-settings",
            ),
            (
                moved(&start(), &start()),
                "web is placed on [member1 (1), member2 (2)], not on [member2 (3)]",
            ),
            (
                healthy_elsewhere(&half, &start()),
                "web has 2 of 3 replicas ready in member2",
            ),
            (
                moved(&strayed, &start()),
                "shop left a healthy cluster: it was on member2, it is on member3, member5",
            ),
            (
                moved(&forbidden, &start()),
                "shop is placed on [member2, member4], which its policy does not allow",
            ),
            (
                old_copies_removed(&moved_on()),
                "web still has its old copy in member1",
            ),
        ];
        for (verdict, expected) in cases {
            assert_eq!(verdict, Err(expected.to_owned()));
        }
    }
}
