//! Decides which cluster is primary, as a function of the workload's place and of what the Works of
//! the object say. Pure.
//!
//! At most one cluster is ordered to be primary: another one becomes so only when each that may
//! have been primary has said that it is demoted, or is certainly fenced.

use super::mark::{Reported, Step};

/// Facts about an object and the workload that it follows.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// Kind and name of the workload.
    pub workload: &'a str,
    /// Clusters that the workload is placed in.
    pub holders: &'a [String],
    /// Clusters that the object is in, or is to be in.
    pub copies: Vec<Copy<'a>>,
    /// Whether the role goes on while a cluster is silent.
    pub promotes_unreachable: bool,
}

/// Object in one cluster.
#[derive(Clone, Debug)]
pub struct Copy<'a> {
    /// Name of the cluster.
    pub cluster: &'a str,
    /// Whether the object is propagated there.
    pub is_target: bool,
    /// Work of the object in the cluster, if there is one.
    pub order: Option<Order>,
    /// Whether the cluster is not silent.
    pub reach: Reach,
    /// Reason why the data is not demoted yet: the workload may still use it.
    pub in_use: Option<String>,
}

/// Work of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Step that it records; `None` if the object had no role before.
    pub step: Option<Step>,
    /// Role that its agent reports.
    pub reported: Reported,
}

/// Whether a cluster is not silent, as far as the role of an object depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The cluster is not silent, and carries out its orders.
    Reporting,
    /// The cluster is silent, and its agent has certainly demoted the object.
    Fenced,
    /// The cluster is silent, and the object may be primary: why.
    Silent(String),
}

/// Role of each cluster that the object is propagated to, or stays in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Steps by cluster; `None` leaves the field to the template, as before.
    pub steps: Vec<(String, Option<Step>)>,
    /// Whether a cluster becomes primary by this decision.
    pub promotes: bool,
    /// Reason why the role does not change yet.
    pub wait: Option<String>,
}

/// Returns the step of each cluster, and what the roles wait for.
pub fn decide(scene: &Scene<'_>) -> Decision {
    let holder = match scene.holders {
        [one] => one,
        none_or_several => {
            let wait = (!none_or_several.is_empty()).then(|| {
                format!(
                    "{} is placed in {}: a role needs one cluster, and none changes while there are several",
                    scene.workload,
                    none_or_several.join(" and ")
                )
            });
            return Decision {
                steps: scene.steps(unchanged),
                promotes: false,
                wait,
            };
        }
    };
    let others = || scene.copies.iter().filter(|it| it.cluster != holder);
    let blocked = others().find_map(|it| blocks(it, scene.promotes_unreachable));
    let primary = scene.copies.iter().find(|it| it.cluster == holder);
    let is_primary = |it: &Copy<'_>| it.order.is_some_and(|it| it.step == Some(Step::Primary));
    let wait = match primary {
        _ if blocked.is_some() => blocked,
        Some(it) if is_primary(it) && it.is_target => None,
        Some(it) if !it.is_target => Some(not_propagated(scene, holder)),
        None => Some(not_propagated(scene, holder)),
        Some(it) if it.reach != Reach::Reporting => {
            Some(format!("{holder} is to be primary, and is silent"))
        }
        Some(_) => None,
    };
    let steps = scene.steps(|it| {
        if it.cluster == holder {
            return match wait {
                None => Some(Step::Primary),
                Some(_) => unchanged(it),
            };
        }
        let reported = it.order.unwrap_or_default().reported;
        match unchanged(it) {
            Some(Step::Demoting) if reported == Reported::Demoted => Some(Step::Secondary),
            Some(Step::Primary) | None if it.in_use.is_none() => Some(Step::Demoting),
            step => step,
        }
    });
    Decision {
        steps,
        promotes: wait.is_none() && primary.is_some_and(|it| !is_primary(it)),
        wait,
    }
}

impl Scene<'_> {
    fn steps(&self, step: impl Fn(&Copy<'_>) -> Option<Step>) -> Vec<(String, Option<Step>)> {
        let copies = self.copies.iter();
        copies
            .filter(|it| it.is_target || stays(it))
            .map(|it| (it.cluster.to_owned(), step(it)))
            .collect()
    }
}

/// Returns the step of a cluster whose role does not change. Where the workload is, a new order may
/// meet an object that is primary already; elsewhere it makes a secondary one.
fn unchanged(copy: &Copy<'_>) -> Option<Step> {
    match (copy.order, &copy.in_use) {
        (Some(order), _) => order.step,
        (None, Some(_)) => Some(Step::Demoting),
        (None, None) => Some(Step::Secondary),
    }
}

/// Returns whether an object stays where it is not propagated any more: it may be primary there,
/// and nothing but its demotion makes sure that it does not remain so.
fn stays(copy: &Copy<'_>) -> bool {
    let step = copy.order.and_then(|it| it.step);
    step.is_some() && blocks(copy, false).is_some()
}

/// Returns why another cluster cannot be promoted as far as this one is concerned.
fn blocks(copy: &Copy<'_>, promotes_unreachable: bool) -> Option<String> {
    let cluster = copy.cluster;
    let Some(order) = copy.order else {
        let why = copy.in_use.as_ref()?;
        return Some(format!("{cluster} may be primary: {why}"));
    };
    match (order.step, &copy.reach) {
        (Some(Step::Secondary), _) | (Some(Step::Demoting), Reach::Fenced) => None,
        (Some(Step::Demoting), _) if order.reported == Reported::Demoted => None,
        (Some(Step::Demoting), Reach::Silent(_)) if promotes_unreachable => None,
        (Some(Step::Demoting), Reach::Reporting) => {
            Some(format!("{cluster} has not said yet that it is demoted"))
        }
        (_, Reach::Silent(why)) if !promotes_unreachable => Some(format!(
            "{cluster} is silent and may be primary (whenUnreachable: Wait): {why}"
        )),
        _ => Some(match &copy.in_use {
            Some(why) => format!("{cluster} stays as it is until the workload has left it: {why}"),
            None => format!("{cluster} is to be demoted"),
        }),
    }
}

fn not_propagated(scene: &Scene<'_>, holder: &str) -> String {
    let workload = scene.workload;
    format!("{workload} is placed in {holder}, and its policy does not bring the object there")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a copy from words: the cluster, `-` (no Work), `?` (no role), `P`, `D` or `S`, and
    /// `demoted`, `fenced`, `silent`, `used` or `left` (not propagated any more).
    fn copy(words: &str) -> Copy<'_> {
        let words: Vec<_> = words.split(' ').collect();
        let has = |word: &str| words.contains(&word);
        let step = match words[1] {
            "P" => Some(Step::Primary),
            "D" => Some(Step::Demoting),
            "S" => Some(Step::Secondary),
            _ => None,
        };
        let reported = if has("demoted") {
            Reported::Demoted
        } else {
            Reported::Nothing
        };
        Copy {
            cluster: words[0],
            is_target: !has("left"),
            order: (words[1] != "-").then_some(Order { step, reported }),
            reach: if has("fenced") {
                Reach::Fenced
            } else if has("silent") {
                Reach::Silent("no lease".to_owned())
            } else {
                Reach::Reporting
            },
            in_use: has("used").then(|| "it is being removed".to_owned()),
        }
    }

    /// Returns the steps of copies, which are read as [`copy`] does, and what was decided.
    fn decided(holders: &str, copies: &str, promotes: bool) -> (String, Decision) {
        let holders = holders.split(", ").filter(|it| !it.is_empty());
        let holders: Vec<_> = holders.map(str::to_owned).collect();
        let scene = Scene {
            workload: "StatefulSet db",
            holders: &holders,
            copies: copies.split(", ").map(copy).collect(),
            promotes_unreachable: promotes,
        };
        let decision = decide(&scene);
        let letter = |step: &Option<Step>| match step {
            Some(Step::Primary) => "P",
            Some(Step::Demoting) => "D",
            Some(Step::Secondary) => "S",
            None => "?",
        };
        let steps = decision.steps.iter();
        let steps: Vec<_> = steps
            .map(|it| format!("{} {}", it.0, letter(&it.1)))
            .collect();
        (steps.join(", "), decision)
    }

    /// Where the workload is, the copies, and their steps, with Wait as with Promote.
    const CASES: &[(&str, &str, &str)] = &[
        // The first placement.
        ("a", "a -, b -", "a P, b S"),
        // Not placed yet.
        ("", "a -, b -", "a S, b S"),
        // Placed now.
        ("a", "a S, b S", "a P, b S"),
        // At rest.
        ("a", "a P, b S", "a P, b S"),
        // No cluster.
        ("", "a P, b S", "a P, b S"),
        // Divided.
        ("a, b", "a P, b S", "a P, b S"),
        // The workload is still there.
        ("b", "a P used, b S", "a P, b S"),
        // It has left.
        ("b", "a P, b S", "a D, b S"),
        // Not demoted yet.
        ("b", "a D, b S", "a D, b S"),
        // Demoted.
        ("b", "a D demoted, b S", "a S, b P"),
        // Moved on meanwhile.
        ("c", "a D, b P, c S", "a D, b D, c S"),
        // Moved back meanwhile.
        ("a", "a D, b S", "a P, b S"),
        // Back, and the other was promoted.
        ("a", "a D, b P", "a D, b D"),
        // A third one is promoted once.
        ("c", "a D demoted, b D, c S", "a S, b D, c S"),
        // A new cluster.
        ("a", "a P, b S, c -", "a P, b S, c S"),
        // A silent one that was never primary.
        ("b", "a D demoted, b S, c S silent", "a S, b P, c S"),
        // Silent, and the workload is to stay there.
        ("b", "a P silent used, b S", "a P, b S"),
        // Silent, and the workload is not there or is given up.
        ("b", "a P silent, b S", "a D, b S"),
        // Fenced, and not reported yet.
        ("b", "a P fenced, b S", "a D, b S"),
        // Fenced.
        ("b", "a D fenced, b S", "a D, b P"),
        // The fenced one returned.
        ("b", "a D, b P", "a D, b P"),
        // The new one is silent.
        ("b", "a D demoted, b S silent", "a S, b S"),
        // Not propagated there.
        ("b", "a D demoted", "a S"),
        // Deselected there.
        ("b", "a D demoted, b S left", "a S"),
        // Deselected while primary.
        ("b", "a P left, b S", "a D, b S"),
        // Deselected, and not demoted yet.
        ("b", "a D left, b S", "a D, b S"),
        // Deselected, and demoted.
        ("b", "a D left demoted, b S", "b P"),
        // Deselected while silent, and the other was promoted.
        ("b", "a D left silent, b P", "a D, b P"),
        // A new order where the workload still is.
        ("b", "a - used, b -", "a D, b S"),
        // Deselected where the workload is.
        ("a", "a P left, b S", "a P, b S"),
        // Objects of before: the others first.
        ("a", "a ?, b ?", "a ?, b D"),
        // Objects of before: demoted.
        ("a", "a ?, b D demoted", "a P, b S"),
        // Objects of before, divided.
        ("a, b", "a ?, b ?", "a ?, b ?"),
    ];

    #[test]
    fn one_cluster_is_primary_after_all_others_are_demoted_or_fenced() {
        let check = |holders: &str, copies: &str, promotes: bool, expected: &str| {
            let (steps, decision) = decided(holders, copies, promotes);
            assert_eq!(steps, expected, "{copies} for {holders}: {promotes}");
            let all = decision.steps.iter();
            let primaries = all.filter(|it| it.1 == Some(Step::Primary));
            assert!(primaries.count() < 2, "{copies}: {steps}");
            let changes = copies.contains(" P");
            let may_promote = promotes || !changes;
            assert!(may_promote || !decision.promotes, "{copies}: {decision:?}");
        };
        for (holders, copies, expected) in CASES {
            for promotes in [false, true] {
                check(holders, copies, promotes, expected);
            }
        }
        // Silent, and ordered to be primary, or deselected.
        for copies in ["a D silent used, b S", "a D left silent, b S"] {
            check("b", copies, false, "a D, b S");
            check("b", copies, true, "a D, b P");
        }
    }

    #[test]
    fn who_waits_is_reported_for_what() {
        for (holders, copies, expected) in [
            ("a", "a P, b S", ""),
            ("a, b", "a P, b S", "StatefulSet db is placed in a and b: "),
            (
                "b",
                "a P used, b S",
                "a stays as it is until the workload has left it: it is being removed",
            ),
            ("b", "a P, b S", "a is to be demoted"),
            ("b", "a D, b S", "a has not said yet that it is demoted"),
            (
                "b",
                "a P silent used, b S",
                "a is silent and may be primary (whenUnreachable: Wait): no lease",
            ),
            ("b", "a S, b S silent", "b is to be primary, and is silent"),
            (
                "b",
                "a - used, b -",
                "a may be primary: it is being removed",
            ),
            ("b", "a S", "StatefulSet db is placed in b, and its policy"),
        ] {
            let wait = decided(holders, copies, false).1.wait;
            let reported = wait.as_deref().unwrap_or_default();
            let is_so = reported.starts_with(expected) && wait.is_none() == expected.is_empty();
            assert!(is_so, "{copies}: {wait:?}");
        }
    }
}
