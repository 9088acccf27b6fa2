use super::State::{Leaves, Lost, Serves};
use super::*;

const SETTLE: Duration = Duration::from_secs(30);

/// Returns the addresses in a text such as `m1=192.0.2.1,192.0.2.2 m2=lb.example`.
fn targets(text: &str) -> Targets {
    let entry = |it: &str| {
        let (cluster, addresses) = it.split_once('=').unwrap();
        let addresses = addresses.split(',').map(str::to_owned).collect();
        (cluster.to_owned(), addresses)
    };
    text.split_whitespace().map(entry).collect()
}

fn leaves() -> State {
    Leaves("is drained".to_owned())
}

fn lost() -> State {
    Lost("is silent".to_owned())
}

/// Decides by what is published and by the copies: state, addresses, seconds of health. Returns
/// the targets, what is left out, and the seconds until the next look.
fn decided(
    published: &str,
    copies: &[(&str, State, &str, u64)],
) -> (Targets, bool, Vec<String>, Option<u64>) {
    let copies = copies.iter().map(|(cluster, state, addresses, seconds)| {
        let addresses = addresses.split(',').filter(|it| !it.is_empty());
        let copy = Copy {
            state: state.clone(),
            addresses: addresses.map(str::to_owned).collect(),
            healthy_for: Duration::from_secs(*seconds),
        };
        ((*cluster).to_owned(), copy)
    });
    let decision = decide(&targets(published), &copies.collect(), SETTLE);
    let next = decision.next.map(|it| it.as_secs());
    (
        decision.targets,
        decision.is_last_known,
        decision.left_out,
        next,
    )
}

#[test]
fn a_name_follows_the_healthy_copies() {
    for (what, published, copies, expected, next) in [
        (
            "nothing serves yet",
            "",
            vec![("m1", lost(), "1.1.1.1", 0)],
            "",
            None,
        ),
        (
            "rendered, without an address",
            "",
            vec![("m1", Serves, "", 99)],
            "",
            None,
        ),
        (
            "the first ones at once",
            "",
            vec![("m1", Serves, "1.1.1.1", 0), ("m2", Serves, "2.2.2.2", 0)],
            "m1=1.1.1.1 m2=2.2.2.2",
            None,
        ),
        (
            "lost: another takes over at once",
            "m1=1.1.1.1",
            vec![("m1", lost(), "1.1.1.1", 0), ("m2", Serves, "2.2.2.2", 0)],
            "m2=2.2.2.2",
            None,
        ),
        (
            "lost: out at once beside another",
            "m1=1.1.1.1 m2=2.2.2.2",
            vec![("m1", lost(), "1.1.1.1", 0), ("m2", Serves, "2.2.2.2", 99)],
            "m2=2.2.2.2",
            None,
        ),
        (
            "moved away: out at once",
            "m1=1.1.1.1 m2=2.2.2.2",
            vec![("m2", Serves, "2.2.2.2", 99)],
            "m2=2.2.2.2",
            None,
        ),
        (
            "returns when it was healthy for long enough",
            "m2=2.2.2.2",
            vec![("m1", Serves, "1.1.1.1", 12), ("m2", Serves, "2.2.2.2", 99)],
            "m2=2.2.2.2",
            Some(18),
        ),
        (
            "has returned",
            "m2=2.2.2.2",
            vec![("m1", Serves, "1.1.1.1", 30), ("m2", Serves, "2.2.2.2", 99)],
            "m1=1.1.1.1 m2=2.2.2.2",
            None,
        ),
        (
            "one that returns does not wait where it is the only one",
            "m2=2.2.2.2",
            vec![("m1", Serves, "1.1.1.1", 0), ("m2", lost(), "2.2.2.2", 0)],
            "m1=1.1.1.1",
            None,
        ),
        (
            "a restart forgets for how long, and takes nothing out",
            "m1=1.1.1.1 m2=2.2.2.2",
            vec![("m1", Serves, "1.1.1.1", 0), ("m2", Serves, "2.2.2.2", 0)],
            "m1=1.1.1.1 m2=2.2.2.2",
            None,
        ),
        (
            "a new address counts at once",
            "m1=1.1.1.1",
            vec![("m1", Serves, "9.9.9.9", 0)],
            "m1=9.9.9.9",
            None,
        ),
    ] {
        let got = decided(published, &copies);
        assert_eq!(got, (targets(expected), got.1, vec![], next), "{what}");
        assert_eq!(got.1, expected.is_empty(), "{what}");
    }
}

#[test]
fn a_name_follows_a_copy_that_leaves_once_another_serves() {
    for (what, published, copies, expected) in [
        (
            "one that leaves stays until another serves",
            "m1=1.1.1.1",
            vec![
                ("m1", leaves(), "1.1.1.1", 99),
                ("m2", lost(), "2.2.2.2", 0),
            ],
            "m1=1.1.1.1",
        ),
        (
            "one that leaves goes when another serves",
            "m1=1.1.1.1",
            vec![
                ("m1", leaves(), "1.1.1.1", 99),
                ("m2", Serves, "2.2.2.2", 0),
            ],
            "m2=2.2.2.2",
        ),
        (
            "one that leaves is better than one that is lost",
            "m1=1.1.1.1 m2=2.2.2.2",
            vec![
                ("m1", leaves(), "1.1.1.1", 99),
                ("m2", lost(), "2.2.2.2", 0),
            ],
            "m1=1.1.1.1",
        ),
    ] {
        let got = decided(published, &copies);
        assert_eq!(got, (targets(expected), false, vec![], None), "{what}");
    }
}

#[test]
fn a_name_keeps_its_last_known_addresses_while_nothing_is_known_to_serve() {
    for (what, published, copies, expected) in [
        (
            "silent",
            "m1=1.1.1.1",
            vec![("m1", lost(), "1.1.1.1", 0)],
            "m1=1.1.1.1",
        ),
        (
            "all silent",
            "m1=1.1.1.1 m2=2.2.2.2",
            vec![("m1", lost(), "1.1.1.1", 0), ("m2", lost(), "2.2.2.2", 0)],
            "m1=1.1.1.1 m2=2.2.2.2",
        ),
        (
            "silent, and its address is not reported any more",
            "m1=1.1.1.1",
            vec![("m1", lost(), "", 0)],
            "m1=1.1.1.1",
        ),
        (
            "gone from one, which may live in the other",
            "m1=1.1.1.1 m2=2.2.2.2",
            vec![("m2", lost(), "2.2.2.2", 0)],
            "m2=2.2.2.2",
        ),
        (
            "gone, and nowhere yet",
            "m1=1.1.1.1",
            vec![("m2", lost(), "", 0)],
            "m1=1.1.1.1",
        ),
        (
            "gone everywhere",
            "m1=1.1.1.1 m2=2.2.2.2",
            vec![],
            "m1=1.1.1.1 m2=2.2.2.2",
        ),
    ] {
        let got = decided(published, &copies);
        assert_eq!(got, (targets(expected), true, vec![], None), "{what}");
    }
}

#[test]
fn a_name_has_either_addresses_or_one_host_name() {
    for (what, published, copies, expected, left_out) in [
        (
            "both kinds of address",
            "",
            vec![("m1", Serves, "1.1.1.1,2001:db8::1,lb.example", 0)],
            "m1=1.1.1.1,2001:db8::1",
            "",
        ),
        (
            "addresses before host names",
            "",
            vec![("m1", Serves, "a.example", 0), ("m2", Serves, "2.2.2.2", 0)],
            "m2=2.2.2.2",
            "m1",
        ),
        (
            "the first host name",
            "",
            vec![
                ("m1", Serves, "b.example,a.example", 0),
                ("m2", Serves, "c.example", 0),
            ],
            "m1=a.example",
            "m2",
        ),
        (
            "the host name that it has stays",
            "m2=c.example",
            vec![
                ("m1", Serves, "a.example", 99),
                ("m2", Serves, "c.example", 99),
            ],
            "m2=c.example",
            "m1",
        ),
        (
            "a host name stays beside addresses that came later",
            "m1=a.example",
            vec![
                ("m1", Serves, "a.example", 99),
                ("m2", Serves, "2.2.2.2", 99),
            ],
            "m1=a.example",
            "m2",
        ),
        (
            "addresses take over from a host name that is lost",
            "m1=a.example",
            vec![("m1", lost(), "a.example", 0), ("m2", Serves, "2.2.2.2", 0)],
            "m2=2.2.2.2",
            "",
        ),
    ] {
        let left_out: Vec<String> = left_out.split_whitespace().map(str::to_owned).collect();
        let got = decided(published, &copies);
        assert_eq!(got, (targets(expected), false, left_out, None), "{what}");
    }
}

#[test]
fn a_name_leads_to_so_many_clusters_at_most_and_keeps_those_that_it_has() {
    let names: Vec<String> = (0..MOST_CLUSTERS + 2)
        .map(|it| format!("m{it:02}"))
        .collect();
    let copies: Vec<_> = names
        .iter()
        .map(|it| (it.as_str(), Serves, "1.1.1.1", 99))
        .collect();
    let last = names.last().unwrap();
    let (targets, _, left_out, _) = decided(&format!("{last}=1.1.1.1"), &copies);
    assert_eq!(targets.len(), MOST_CLUSTERS);
    assert!(targets.contains_key(last));
    assert_eq!(left_out.len(), 2);
}
