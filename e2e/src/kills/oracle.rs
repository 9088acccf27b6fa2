//! What must be true while processes are killed, and once they no longer are. Pure: scenes in, what
//! is wrong out.

use std::collections::BTreeSet;

use muster_sandbox::expect::Verdict;
use muster_sandbox::picture::Workload;

use super::cast::{Key, Scene, Spread};

/// Workloads that have fewer ready copies than their policy asks for. Copies in a member that is
/// cut off count: they go on working.
pub fn lost(scene: &Scene) -> Vec<String> {
    let lacking = |(key, workload): (&Key, &Workload)| {
        let (spread, name) = key;
        let (least, ready) = match spread.copies() {
            None => (
                spread.replicas(),
                workload.copies.values().map(|copy| copy.ready).sum::<i64>(),
            ),
            Some(copies) => (count(copies), count(complete(workload, *spread))),
        };
        (ready < least).then(|| format!("{name} had {ready} of {least} ready"))
    };
    scene.workloads.iter().filter_map(lacking).collect()
}

/// Workloads that have more in the members that can be reached than their policy asks for. What the
/// member that failed still has does not count: it cannot be known. Those that have to leave a
/// second member have their old copy there until the new one runs, and are not judged.
pub fn doubled(scene: &Scene, failed: &str, disturbed: &BTreeSet<Key>) -> Vec<String> {
    let excess = |(key, workload): (&Key, &Workload)| {
        let (spread, name) = key;
        let reached = workload
            .copies
            .iter()
            .filter(|(member, _)| member.as_str() != failed);
        let (most, found) = match spread.copies() {
            None => (
                spread.replicas(),
                reached.map(|(_, copy)| copy.wanted).sum::<i64>(),
            ),
            Some(copies) => (count(copies), count(reached.count())),
        };
        (found > most).then(|| format!("{name} had {found} instead of at most {most}"))
    };
    let judged = scene
        .workloads
        .iter()
        .filter(|(key, _)| !disturbed.contains(*key));
    judged.filter_map(excess).collect()
}

/// Checks that nothing is placed on a cluster any more.
pub fn moved(scene: &Scene, failed: &str) -> Verdict {
    match scene.placed_on(failed) {
        0 => Ok(()),
        left => Err(format!("{left} workloads are still placed on {failed}")),
    }
}

/// Checks that all clusters are well, every workload runs just where it is placed and is known to,
/// and no Work is left over.
pub fn at_rest(scene: &Scene) -> Verdict {
    muster_sandbox::expect::joined(&muster_sandbox::picture::Picture {
        clusters: scene.clusters.clone(),
        ..Default::default()
    })?;
    for ((spread, name), workload) in &scene.workloads {
        runs(*spread, workload).map_err(|wrong| format!("{name} {wrong}"))?;
    }
    works(scene)
}

fn runs(spread: Spread, workload: &Workload) -> Verdict {
    let Some(placed) = &workload.placed else {
        return Err("has no binding".to_owned());
    };
    if !workload.leaving.is_empty() {
        return Err(format!("is leaving {:?}", workload.leaving));
    }
    let whole = match spread.copies() {
        None => placed.values().sum::<i64>() == spread.replicas(),
        Some(copies) => placed.len() == copies,
    };
    if !whole {
        return Err(format!("is placed on {placed:?}"));
    }
    let members: BTreeSet<&String> = workload.copies.keys().collect();
    if members != placed.keys().collect() {
        return Err(format!("is placed on {placed:?} and is in {members:?}"));
    }
    for (member, copy) in &workload.copies {
        let wanted = match spread {
            Spread::Divided => placed[member],
            _ => spread.replicas(),
        };
        if (copy.wanted, copy.ready) != (wanted, wanted) {
            return Err(format!(
                "has {} of {} ready in {member}, {wanted} are placed there",
                copy.ready, copy.wanted
            ));
        }
        if !workload.healthy.contains(member) {
            return Err(format!("in {member} is not reported healthy"));
        }
    }
    Ok(())
}

/// Checks that the Works of the workloads are those of the placements: none is lacking, none is
/// left over.
fn works(scene: &Scene) -> Verdict {
    for cluster in scene.clusters.keys() {
        let placed = scene
            .workloads
            .iter()
            .filter_map(|((spread, name), workload)| {
                let placed = workload.placed.as_ref()?;
                let here = placed.contains_key(cluster);
                here.then(|| (spread.kind().to_owned(), name.clone()))
            });
        let mut expected: BTreeSet<(String, String)> = placed.collect();
        // Namespaces are brought along to every member.
        let there = scene.works.get(cluster).into_iter().flatten();
        for work in there.filter(|(kind, _)| kind != "Namespace") {
            if !expected.remove(work) {
                let (kind, name) = work;
                return Err(format!("{cluster} still has a Work of {kind} {name}"));
            }
        }
        if let Some((kind, name)) = expected.first() {
            return Err(format!("{cluster} has no Work of {kind} {name}"));
        }
    }
    Ok(())
}

fn complete(workload: &Workload, spread: Spread) -> usize {
    let complete = |copy: &&muster_sandbox::picture::Copy| copy.ready >= spread.replicas();
    workload.copies.values().filter(complete).count()
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_sandbox::picture::{ClusterView, Copy};

    use super::*;

    /// Returns a scene in which a workload of each spread runs as it should.
    fn scene() -> Scene {
        let ready = ClusterView {
            ready: "True".to_owned(),
            ..ClusterView::default()
        };
        let mut scene = Scene::default();
        for name in ["a", "b", "c"] {
            scene.clusters.insert(name.to_owned(), ready.clone());
        }
        place(&mut scene, Spread::Divided, &[("a", 3), ("b", 1)]);
        place(&mut scene, Spread::Single, &[("a", 2)]);
        place(&mut scene, Spread::Pair, &[("a", 2), ("b", 2)]);
        place(&mut scene, Spread::Settings, &[("a", 0), ("b", 0)]);
        scene
    }

    fn place(scene: &mut Scene, spread: Spread, placed: &[(&str, i64)]) {
        let name = "x".to_owned();
        for (member, _) in placed {
            let work = (spread.kind().to_owned(), name.clone());
            scene
                .works
                .entry((*member).to_owned())
                .or_default()
                .insert(work);
        }
        let copy = |(member, replicas): &(&str, i64)| {
            let replicas = if *replicas == 0 { 1 } else { *replicas };
            let copy = Copy {
                wanted: replicas,
                ready: replicas,
            };
            ((*member).to_owned(), copy)
        };
        let numbered = placed.iter().map(|(member, n)| ((*member).to_owned(), *n));
        let workload = Workload {
            placed: Some(numbered.collect()),
            leaving: BTreeSet::new(),
            healthy: placed
                .iter()
                .map(|(member, _)| (*member).to_owned())
                .collect(),
            copies: placed.iter().map(copy).collect::<BTreeMap<_, _>>(),
        };
        scene.workloads.insert((spread, name), workload);
    }

    fn change(spread: Spread, change: impl FnOnce(&mut Workload)) -> Scene {
        let mut scene = scene();
        let key = (spread, "x".to_owned());
        change(scene.workloads.get_mut(&key).expect("a workload"));
        scene
    }

    #[test]
    fn a_fleet_that_runs_as_placed_is_at_rest() {
        let scene = scene();
        assert_eq!(at_rest(&scene), Ok(()));
        assert!(lost(&scene).is_empty());
        assert!(doubled(&scene, "c", &BTreeSet::new()).is_empty());
        assert_eq!(moved(&scene, "c"), Ok(()));
        assert_eq!(
            moved(&scene, "b"),
            Err("3 workloads are still placed on b".to_owned())
        );
    }

    #[test]
    fn a_copy_too_few_is_lost_and_one_too_many_doubled() {
        let copy = Copy {
            wanted: 2,
            ready: 2,
        };
        for spread in Spread::ALL {
            let fewer = change(spread, |workload| {
                workload.copies.remove("a");
            });
            assert_eq!(lost(&fewer).len(), 1, "{spread:?}");
            assert!(at_rest(&fewer).is_err(), "{spread:?}");
            let more = change(spread, |workload| {
                workload.copies.insert("c".to_owned(), copy);
            });
            let none = BTreeSet::new();
            assert_eq!(doubled(&more, "z", &none).len(), 1, "{spread:?}");
            assert!(doubled(&more, "c", &none).is_empty(), "{spread:?}");
            let disturbed = BTreeSet::from([(spread, "x".to_owned())]);
            assert!(doubled(&more, "z", &disturbed).is_empty(), "{spread:?}");
            assert!(at_rest(&more).is_err(), "{spread:?}");
        }
    }

    #[test]
    fn a_fleet_that_is_not_done_is_not_at_rest() {
        let mut orphan = scene();
        let work = ("Deployment".to_owned(), "gone".to_owned());
        orphan.works.entry("c".to_owned()).or_default().insert(work);
        let mut lacking = scene();
        lacking.works.remove("b");
        let mut tainted = scene();
        let taint = "example.com/failed:NoExecute".to_owned();
        let view = tainted.clusters.get_mut("c").expect("a cluster");
        view.taints.insert(taint);
        let leaving = change(Spread::Pair, |workload| {
            workload.leaving.insert("c".to_owned());
        });
        let unreported = change(Spread::Single, |workload| workload.healthy.clear());
        for (scene, expected) in [
            (orphan, "c still has a Work of Deployment gone"),
            (lacking, "b has no Work of ConfigMap x"),
            (tainted, "c has taints example.com/failed:NoExecute"),
            (leaving, "x is leaving {\"c\"}"),
            (unreported, "x in a is not reported healthy"),
        ] {
            assert_eq!(at_rest(&scene), Err(expected.to_owned()));
        }
    }
}
