//! What the answers of the other members of etcd mean for one whose volume is empty. Pure.

use std::ops::ControlFlow::{self, Break, Continue};

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::Deserialize;

/// Page that says what to do.
const PAGE: &str = "https://github.com/muster-io/muster/blob/main/.github/FLEET_API.md";

/// The member whose volume is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Joining {
    /// Its peer URL.
    pub url: String,
    /// The id that it has when it starts as one of those that make a store: see [`initial_id`].
    pub id: u64,
    /// Whether it is started as one that was added to a cluster which runs.
    pub is_added: bool,
}

/// A member of a cluster, as etcd lists it at its peer URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Member {
    /// Its id. One that was added has another than those that make a store or restore a snapshot.
    pub id: u64,
    /// URLs at which members reach it.
    #[serde(rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    /// URLs at which clients reach it, which it announces at its first start.
    #[serde(rename = "clientURLs")]
    pub client_urls: Vec<String>,
}

/// Returns the id that etcd gives to a member of a new cluster, by its peer URL and the token of
/// the cluster.
pub(super) fn initial_id(url: &str, token: &str) -> u64 {
    let text = format!("{url}{token}");
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let first = hash.as_ref().iter().take(8);
    first.fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// Answer of another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// None, and why.
    Silent(String),
    /// Its volume is empty as well, and it waits likewise.
    Empty,
    /// etcd runs there, as part of a cluster of these members.
    Serves(Vec<Member>),
}

/// Decision about the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// etcd may start, and why.
    Start(String),
    /// etcd may join members that run, and why, if they say the same for a while: see [`Rounds`].
    Join(String),
    /// Not before something changes by itself.
    Wait(String),
    /// Not before somebody does something.
    Refuse(String),
}

/// Rounds of questions in a row that must allow a member to join.
const ROUNDS: usize = 5;

/// Counts the rounds in a row that allowed a member to join, and lets it wait until they suffice.
///
/// etcd lists its members while it reads its log after a restart, so that one which started months
/// ago is for an instant one which has never started. With the same id and an empty volume it would
/// have forgotten its votes, and the store could lose what it acknowledged.
#[derive(Debug, Default)]
pub(super) struct Rounds(usize);

impl Rounds {
    /// Returns what the verdict of a round means after those before it: why etcd may start or why
    /// it may not, or what the member goes on to wait for.
    pub(super) fn settle(
        &mut self,
        verdict: Verdict,
    ) -> ControlFlow<Result<String, String>, String> {
        let joins = matches!(verdict, Verdict::Join(_));
        self.0 = if joins { self.0 + 1 } else { 0 };
        match verdict {
            Verdict::Start(why) => Break(Ok(why)),
            Verdict::Refuse(why) => Break(Err(why)),
            Verdict::Wait(why) => Continue(why),
            Verdict::Join(why) if self.0 >= ROUNDS => Break(Ok(why)),
            Verdict::Join(why) => Continue(format!(
                "{why}, and if it still says so in {ROUNDS} s, etcd may start"
            )),
        }
    }
}

/// Judges the answers of all other members, with their names.
pub(super) fn judge(joining: &Joining, answers: &[(&str, Answer)]) -> Verdict {
    let mut joins = None;
    for (name, answer) in answers {
        let Answer::Serves(members) = answer else {
            continue;
        };
        match within(joining, name, members) {
            Verdict::Join(why) => joins = Some(why),
            verdict => return verdict,
        }
    }
    if let Some(why) = joins {
        return Verdict::Join(why);
    }
    let silent: Vec<String> = answers
        .iter()
        .filter_map(|(name, answer)| match answer {
            Answer::Silent(why) => Some(format!("{name} ({why})")),
            _ => None,
        })
        .collect();
    if silent.is_empty() && !joining.is_added {
        return Verdict::Start("the volume of every member is empty".to_owned());
    }
    Verdict::Wait(if joining.is_added {
        "no member serves the store that this one was added to".to_owned()
    } else {
        format!(
            "the volume of this member is empty, and others may have data: no answer of {}",
            silent.join(", ")
        )
    })
}

/// Judges the answer of one member that is part of a cluster.
fn within(joining: &Joining, name: &str, members: &[Member]) -> Verdict {
    let mut members = members.iter();
    let Some(own) = members.find(|it| it.peer_urls.contains(&joining.url)) else {
        return Verdict::Refuse(format!(
            "{name} serves a store that this member is no part of, and the volume of this one is empty: together they would be two stores. \
             A store does not get more members by fleetApi.profile: set it back to the former one, or restore a snapshot into the \
             new number of members ({PAGE}#from-one-member-of-etcd-to-three)"
        ));
    };
    let was_started = !own.client_urls.is_empty();
    let was_added = own.id != joining.id;
    match (joining.is_added, was_started, was_added) {
        (_, true, _) => Verdict::Refuse(format!(
            "{name} serves a store of which this member was a part, and the volume of this one is empty: its part is lost, while the others have \
             all data. Remove the member and add it again ({PAGE}#replace-a-member-of-etcd)"
        )),
        (false, false, true) => Verdict::Refuse(format!(
            "{name} serves a store to which this member was added: set fleetApi.etcd.initialClusterState=existing, so that it joins \
             ({PAGE}#replace-a-member-of-etcd)"
        )),
        (true, false, true) => {
            Verdict::Join(format!("{name} serves the store that it was added to"))
        }
        (_, false, false) => Verdict::Join(format!(
            "{name} has begun to make the store that this member belongs to"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "https://etcd-1:2380";
    const ID: u64 = 7;

    fn joining(is_added: bool) -> Joining {
        Joining {
            url: OWN.to_owned(),
            id: ID,
            is_added,
        }
    }

    fn member(id: u64, url: &str, was_started: bool) -> Member {
        Member {
            id,
            peer_urls: vec![url.to_owned()],
            client_urls: was_started
                .then(|| url.replace("2380", "2379"))
                .into_iter()
                .collect(),
        }
    }

    /// Returns the answer of a member that serves a cluster: the member with data, etcd-0, and
    /// perhaps one more member.
    fn serves(own: Option<Member>) -> Answer {
        let first = member(1, "https://etcd-0:2380", true);
        Answer::Serves(std::iter::once(first).chain(own).collect())
    }

    fn silent() -> Answer {
        Answer::Silent("connection refused".to_owned())
    }

    /// Returns the kind of a verdict in one word, and its sentence.
    fn verdict(is_added: bool, answers: [Answer; 2]) -> (&'static str, String) {
        let [first, last] = answers;
        match judge(&joining(is_added), &[("etcd-0", first), ("etcd-2", last)]) {
            Verdict::Start(why) => ("start", why),
            Verdict::Join(why) => ("join", why),
            Verdict::Wait(why) => ("wait", why),
            Verdict::Refuse(why) => ("refuse", why),
        }
    }

    #[test]
    fn the_id_of_a_member_is_that_which_etcd_gives_it() {
        // What etcd 3.5.1 logged for this URL and token.
        let id = initial_id("https://127.0.0.1:2380", "muster-fleet-muster-system");
        assert_eq!(format!("{id:x}"), "2e492d38daa2a0db");
    }

    #[test]
    fn members_make_a_store_once_every_other_one_says_that_it_is_empty() {
        use Answer::Empty;
        assert_eq!(verdict(false, [Empty, Empty]).0, "start");
        for answers in [[Empty, silent()], [silent(), Empty], [silent(), silent()]] {
            let (word, why) = verdict(false, answers);
            assert_eq!(word, "wait");
            assert!(why.contains("etcd-"), "{why}");
        }
    }

    #[test]
    fn a_member_beside_one_with_data_that_does_not_know_it_is_refused_whoever_else_is_empty() {
        for other in [Answer::Empty, silent(), serves(None)] {
            for answers in [[serves(None), other.clone()], [other, serves(None)]] {
                let (word, why) = verdict(false, answers);
                assert_eq!(word, "refuse");
                assert!(why.contains("fleetApi.profile"), "{why}");
            }
        }
        assert_eq!(verdict(true, [serves(None), Answer::Empty]).0, "refuse");
    }

    #[test]
    fn a_member_that_lost_its_volume_starts_once_it_was_removed_and_added_again() {
        let lost = serves(Some(member(ID, OWN, true)));
        for is_added in [false, true] {
            let (word, why) = verdict(is_added, [lost.clone(), silent()]);
            assert_eq!(word, "refuse");
            assert!(why.contains("add it again"), "{why}");
        }
        let added = serves(Some(member(99, OWN, false)));
        let (word, why) = verdict(false, [added.clone(), silent()]);
        assert_eq!(word, "refuse");
        assert!(why.contains("initialClusterState=existing"), "{why}");
        assert_eq!(verdict(true, [added, silent()]).0, "join");
    }

    #[test]
    fn a_member_that_is_late_joins_those_that_have_begun_to_make_the_store() {
        let begun = serves(Some(member(ID, OWN, false)));
        assert_eq!(verdict(false, [begun.clone(), silent()]).0, "join");
        assert_eq!(verdict(false, [Answer::Empty, begun.clone()]).0, "join");
        // One answer that refuses outweighs one that allows.
        assert_eq!(verdict(false, [begun, serves(None)]).0, "refuse");
    }

    #[test]
    fn a_member_joins_no_store_whose_members_are_still_reading_their_logs() {
        let join = || Verdict::Join("etcd-2 has begun to make the store".to_owned());
        let mut rounds = Rounds::default();
        let mut waits = |verdict| rounds.settle(verdict).is_continue();
        for _ in 1..ROUNDS {
            assert!(waits(join()));
        }
        assert!(waits(Verdict::Wait("no answer of etcd-2".to_owned())));
        for _ in 1..ROUNDS {
            assert!(waits(join()), "it counts from the start again");
        }
        assert!(matches!(rounds.settle(join()), Break(Ok(_))));
        let why = "its part is lost".to_owned();
        let refused = rounds.settle(Verdict::Refuse(why.clone()));
        assert_eq!(refused, Break(Err(why)));
        // Members that are all empty have no log, and wait for nothing.
        let why = "the volume of every member is empty".to_owned();
        let started = rounds.settle(Verdict::Start(why.clone()));
        assert_eq!(started, Break(Ok(why)));
    }

    #[test]
    fn a_member_that_was_added_makes_no_store() {
        use Answer::Empty;
        for answers in [[Empty, Empty], [silent(), silent()]] {
            assert_eq!(verdict(true, answers).0, "wait");
        }
    }
}
