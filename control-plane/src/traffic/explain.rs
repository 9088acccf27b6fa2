//! Words for what became of a host name: the condition of the binding, and events. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_shared::check::few;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{HOSTNAME_PUBLISHED, HOSTNAME_TAKEN};

use super::decide::{Decision, MOST_CLUSTERS, State, Targets};

/// Most clusters that a text names.
const MOST_NAMED: usize = 10;

/// Reason and message of the condition about a host name.
pub type Outcome = (&'static str, String);

/// Reason of a name that leads where it should.
const PUBLISHED: &str = "Published";

/// Returns the outcome of a decision about a host name, with the states of the copies.
pub fn outcome(hostname: &str, decision: &Decision, states: &BTreeMap<String, State>) -> Outcome {
    let leads = || format!("{hostname} leads to {}", words(&decision.targets));
    if decision.targets.is_empty() {
        let why = reasons(states.keys().map(String::as_str), states);
        let text = format!("{hostname} is not published yet: {why}.");
        return ("NothingServes", text);
    }
    if decision.is_last_known {
        let clusters = decision.targets.keys().chain(states.keys());
        let clusters: BTreeSet<&str> = clusters.map(String::as_str).collect();
        let why = reasons(clusters, states);
        let text = format!(
            "{}, its last known addresses, since no cluster is known to serve it: {why}.",
            leads()
        );
        return ("LastKnown", text);
    }
    let mut text = format!("{}.", leads());
    let leaving = decision
        .targets
        .keys()
        .find_map(|it| match states.get(it)? {
            State::Leaves(why) => Some(format!(" Cluster {it} {why}, and no other serves it yet.")),
            State::Serves | State::Lost(_) => None,
        });
    text.extend(leaving);
    if !decision.left_out.is_empty() {
        let left_out = listed(&decision.left_out);
        text = format!(
            "{text} Healthy copies in {left_out} are left out: a name has either addresses or one host name, of {MOST_CLUSTERS} clusters at most."
        );
    }
    (PUBLISHED, text)
}

/// Returns the outcome for a template whose host name is taken (`problem`), and whose former one
/// stays until it is free, with the outcome of that.
pub fn former(problem: &str, (_, text): &Outcome) -> Outcome {
    let text = format!("{problem} Until it is free, the former name stays: {text}");
    (HOSTNAME_TAKEN, text)
}

/// Returns the condition of the binding.
pub fn condition((reason, message): Outcome, now: Timestamp) -> Condition {
    let status = if reason == PUBLISHED { TRUE } else { FALSE };
    conditions::new(HOSTNAME_PUBLISHED, status, reason, &message, now)
}

/// Returns the text of the event that a host name leads elsewhere.
pub fn moved(
    hostname: &str,
    before: &Targets,
    after: &Targets,
    states: &BTreeMap<String, State>,
) -> String {
    let lost = before.keys().filter(|it| !after.contains_key(*it));
    let lost: Vec<&str> = lost.map(String::as_str).collect();
    let now = format!("{hostname} leads to {} now", words(after));
    if lost.is_empty() {
        return format!("{now}.");
    }
    let why = reasons(lost, states);
    format!("{now}; it led to {} before: {why}.", words(before))
}

/// Returns the clusters with their addresses.
fn words(targets: &Targets) -> String {
    let word = |(cluster, addresses): (&String, &BTreeSet<String>)| {
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        format!("{cluster} ({})", addresses.join(", "))
    };
    listed(&targets.iter().map(word).collect::<Vec<_>>())
}

/// Returns why copies do not serve, by cluster.
fn reasons<'a>(
    clusters: impl IntoIterator<Item = &'a str>,
    states: &BTreeMap<String, State>,
) -> String {
    let reason = |cluster: &str| match states.get(cluster) {
        Some(State::Lost(why) | State::Leaves(why)) => format!("{cluster} {why}"),
        Some(State::Serves) => format!("{cluster} serves"),
        None => format!("{cluster} has no copy"),
    };
    let all: Vec<String> = clusters.into_iter().map(reason).collect();
    if all.is_empty() {
        return "it is placed nowhere".to_owned();
    }
    listed(&all)
}

fn listed(words: &[String]) -> String {
    few(words, MOST_NAMED, ", ", |more| format!(", and {more} more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(clusters: &[&str]) -> Targets {
        let entry = |it: &&str| ((*it).to_owned(), [format!("192.0.2.{}", &it[1..])].into());
        clusters.iter().map(entry).collect()
    }

    fn lost() -> BTreeMap<String, State> {
        let lost = State::Lost("has Ready=Unknown".to_owned());
        [("m1".to_owned(), lost)].into()
    }

    fn states() -> BTreeMap<String, State> {
        let lost = |it: &str| State::Lost(it.to_owned());
        [
            ("m1", lost("has Ready=Unknown")),
            ("m2", State::Serves),
            ("m3", State::Leaves("is drained".to_owned())),
        ]
        .map(|(name, state)| (name.to_owned(), state))
        .into()
    }

    #[test]
    fn a_condition_says_where_a_name_leads_and_why() {
        let decision = |clusters: &[&str], is_last_known, left_out: &[&str]| Decision {
            targets: targets(clusters),
            is_last_known,
            left_out: left_out.iter().map(|it| (*it).to_owned()).collect(),
            next: None,
        };
        for (decision, expected) in [
            (
                decision(&["m2"], false, &[]),
                ("True", "Published", "a.b leads to m2 (192.0.2.2)."),
            ),
            (
                decision(&["m3"], false, &[]),
                (
                    "True",
                    "Published",
                    "a.b leads to m3 (192.0.2.3). Cluster m3 is drained, and no other serves it yet.",
                ),
            ),
            (
                decision(&["m2"], false, &["m4"]),
                (
                    "True",
                    "Published",
                    "a.b leads to m2 (192.0.2.2). Healthy copies in m4 are left out: a name has either addresses or one host name, of 50 clusters at most.",
                ),
            ),
            (
                decision(&["m1", "m9"], true, &[]),
                (
                    "False",
                    "LastKnown",
                    "a.b leads to m1 (192.0.2.1), m9 (192.0.2.9), its last known addresses, since no cluster is known to serve it: m1 has Ready=Unknown, m9 has no copy.",
                ),
            ),
        ] {
            let states = if decision.is_last_known {
                lost()
            } else {
                states()
            };
            let outcome = outcome("a.b", &decision, &states);
            let condition = condition(outcome, Timestamp::UNIX_EPOCH);
            let got = (&*condition.status, &*condition.reason, &*condition.message);
            assert_eq!(got, expected);
        }
        let (reason, text) = outcome("a.b", &Decision::default(), &BTreeMap::new());
        assert_eq!(reason, "NothingServes");
        assert_eq!(text, "a.b is not published yet: it is placed nowhere.");
    }

    #[test]
    fn an_event_says_where_a_name_led_and_why_not_any_more() {
        for (before, after, expected) in [
            (
                &["m1"][..],
                &["m2"][..],
                "a.b leads to m2 (192.0.2.2) now; it led to m1 (192.0.2.1) before: m1 has Ready=Unknown.",
            ),
            (
                &["m2"],
                &["m1", "m2"],
                "a.b leads to m1 (192.0.2.1), m2 (192.0.2.2) now.",
            ),
        ] {
            let reported = moved("a.b", &targets(before), &targets(after), &states());
            assert_eq!(reported, expected);
        }
        let many: Vec<String> = (0..12).map(|it| it.to_string()).collect();
        assert_eq!(listed(&many), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 2 more");
    }
}
