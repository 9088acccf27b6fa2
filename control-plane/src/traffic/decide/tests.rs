use super::State::{Leaves, Lost, Serves};
use super::*;

const SETTLE: Duration = Duration::from_secs(30);

/// Returns the addresses that a text gives a cluster, which are `1.1.1.1` of `m1` where none does.
fn addresses(cluster: &str, text: Option<&str>) -> BTreeSet<String> {
    let own = [&cluster[1..]; 4].join(".");
    let all = text.unwrap_or(&own).split(',');
    let all = all.filter(|it| !it.is_empty());
    all.map(str::to_owned).collect()
}

/// Splits a word such as `m1=192.0.2.1,192.0.2.2`.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((what, addresses)) => (what, Some(addresses)),
        None => (word, None),
    }
}

/// Returns the addresses in a text such as `m1 m2=lb.example`.
fn targets(text: &str) -> Targets {
    let entry = |word| {
        let (cluster, text) = split(word);
        (cluster.to_owned(), addresses(cluster, text))
    };
    text.split_whitespace().map(entry).collect()
}

/// Returns the copy that a word describes: `m1+30` has served for 30 seconds, `m1-0` is lost, and
/// `m1~0` leaves.
fn copy(word: &str) -> (String, Copy) {
    let (what, text) = split(word);
    let (cluster, rest) = what.split_at(what.find(['+', '-', '~']).unwrap());
    let (state, seconds) = rest.split_at(1);
    let copy = Copy {
        state: match state {
            "+" => Serves,
            "-" => Lost("is silent".to_owned()),
            _ => Leaves("is drained".to_owned()),
        },
        addresses: addresses(cluster, text),
        healthy_for: Duration::from_secs(seconds.parse().unwrap()),
    };
    (cluster.to_owned(), copy)
}

/// Decides by what is published and by the copies. Returns the targets, whether they are the last
/// known ones, what is left out, and the seconds until the next decision.
fn decided(published: &str, copies: &str) -> (Targets, bool, Vec<String>, Option<u64>) {
    let copies = copies.split_whitespace().map(copy).collect();
    let decision = decide(&targets(published), &copies, SETTLE);
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
        ("nothing serves yet", "", "m1-0", "", None),
        ("rendered, without an address", "", "m1+99=", "", None),
        ("the first ones at once", "", "m1+0 m2+0", "m1 m2", None),
        ("another takes over at once", "m1", "m1-0 m2+0", "m2", None),
        ("lost: out at once", "m1 m2", "m1-0 m2+99", "m2", None),
        ("moved away: out at once", "m1 m2", "m2+99", "m2", None),
        // It returns when it was healthy for long enough.
        ("not yet", "m2", "m1+12 m2+99", "m2", Some(18)),
        ("has returned", "m2", "m1+30 m2+99", "m1 m2", None),
        // One that returns does not wait there.
        ("the only one", "m2", "m1+0 m2-0", "m1", None),
        // It forgets for how long, and takes nothing out.
        ("a restart", "m1 m2", "m1+0 m2+0", "m1 m2", None),
        ("a new address", "m1", "m1+0=9.9.9.9", "m1=9.9.9.9", None),
    ] {
        let got = decided(published, copies);
        assert_eq!(got, (targets(expected), got.1, vec![], next), "{what}");
        assert_eq!(got.1, expected.is_empty(), "{what}");
    }
}

#[test]
fn a_name_follows_a_copy_that_leaves_once_another_serves() {
    for (published, copies, expected) in [
        ("m1", "m1~99 m2-0", "m1"),
        ("m1", "m1~99 m2+0", "m2"),
        // It is better than one that is lost.
        ("m1 m2", "m1~99 m2-0", "m1"),
    ] {
        let got = decided(published, copies);
        assert_eq!(got, (targets(expected), false, vec![], None), "{copies}");
    }
}

#[test]
fn a_name_keeps_its_last_known_addresses_while_nothing_is_known_to_serve() {
    for (what, published, copies, expected) in [
        ("silent", "m1", "m1-0", "m1"),
        ("all silent", "m1 m2", "m1-0 m2-0", "m1 m2"),
        ("its address is not reported any more", "m1", "m1-0=", "m1"),
        // It may live in the other.
        ("gone from one", "m1 m2", "m2-0", "m2"),
        ("gone, and nowhere yet", "m1", "m2-0=", "m1"),
        ("gone everywhere", "m1 m2", "", "m1 m2"),
    ] {
        let got = decided(published, copies);
        assert_eq!(got, (targets(expected), true, vec![], None), "{what}");
    }
}

#[test]
fn a_name_has_either_addresses_or_one_host_name() {
    let several = "m1+0=1.1.1.1,2001:db8::1,lb.example";
    let hosts = "m1+0=b.example,a.example m2+0=c.example";
    for (what, published, copies, expected, left_out) in [
        ("both kinds", "", several, "m1=1.1.1.1,2001:db8::1", ""),
        ("addresses first", "", "m1+0=a.example m2+0", "m2", "m1"),
        ("the first host name", "", hosts, "m1=a.example", "m2"),
        (
            "the host name that it has stays",
            "m2=c.example",
            "m1+99=a.example m2+99=c.example",
            "m2=c.example",
            "m1",
        ),
        (
            "a host name stays beside addresses that came later",
            "m1=a.example",
            "m1+99=a.example m2+99",
            "m1=a.example",
            "m2",
        ),
        (
            "addresses take over from a host name that is lost",
            "m1=a.example",
            "m1-0=a.example m2+0",
            "m2",
            "",
        ),
    ] {
        let left_out: Vec<String> = left_out.split_whitespace().map(str::to_owned).collect();
        let got = decided(published, copies);
        assert_eq!(got, (targets(expected), false, left_out, None), "{what}");
    }
}

#[test]
fn a_name_leads_to_so_many_clusters_at_most_and_keeps_those_that_it_has() {
    let names: Vec<String> = (0..MOST_CLUSTERS + 2)
        .map(|it| format!("m{it:02}"))
        .collect();
    let copies: Vec<String> = names.iter().map(|it| format!("{it}+99=1.1.1.1")).collect();
    let last = names.last().unwrap();
    let (targets, _, left_out, _) = decided(&format!("{last}=1.1.1.1"), &copies.join(" "));
    assert_eq!(targets.len(), MOST_CLUSTERS);
    assert!(targets.contains_key(last));
    assert_eq!(left_out.len(), 2);
}
