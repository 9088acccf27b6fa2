//! Words for the caches that are missing: one sentence for each cause, whatever the kinds.

use std::collections::BTreeMap;

use muster_shared::check::listed;
use muster_shared::watch::Refused;

/// Number of kinds that a sentence names.
const NAMED: usize = 3;

/// Returns why caches are missing. Kinds without an error have been asked for and not answered yet;
/// they are named only if no other has an error, so that the words stay the same.
pub(super) fn words(missing: &[(&'static str, Option<Refused>)]) -> String {
    let mut causes: BTreeMap<Cause, Vec<(&str, &str)>> = BTreeMap::new();
    for (kind, refused) in missing {
        if let Some(refused) = refused {
            let cause = Cause::of(refused.code);
            causes
                .entry(cause)
                .or_default()
                .push((kind, &refused.words));
        }
    }
    if causes.is_empty() {
        let kinds: Vec<&str> = missing.iter().map(|(kind, _)| *kind).collect();
        return format!("{} not listed yet", listed(&kinds, NAMED));
    }
    let sentences = causes.iter().map(|(cause, found)| {
        let kinds: Vec<&str> = found.iter().map(|(kind, _)| *kind).collect();
        let (kinds, first) = (listed(&kinds, NAMED), found[0].1);
        match cause {
            Cause::Stranger => format!(
                "the fleet API does not accept the credentials of the control plane: {first}"
            ),
            Cause::NoRight => format!("no right to list and watch {kinds}: {first}"),
            Cause::Unserved => format!(
                "the fleet API does not serve {kinds}: its definitions are missing, or this is another API. \
                 `kubectl muster check` says which to apply; not all of them beside Karmada's"
            ),
            Cause::Other => format!("cannot list and watch {kinds}: {first}"),
        }
    });
    sentences.collect::<Vec<_>>().join("; ")
}

/// Causes, the one to be settled first before the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Stranger,
    Unserved,
    NoRight,
    Other,
}

impl Cause {
    fn of(code: Option<u16>) -> Self {
        match code {
            Some(401) => Self::Stranger,
            Some(403) => Self::NoRight,
            Some(404) => Self::Unserved,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once_with_the_kinds_that_it_hits() {
        let refused = |code: Option<u16>, words: &str| {
            Some(Refused {
                code,
                words: words.to_owned(),
            })
        };
        for (missing, expected) in [
            (
                vec![("works", None), ("leases", None)],
                "works, leases not listed yet",
            ),
            (
                vec![
                    ("clusters", refused(Some(404), "404")),
                    ("works", refused(Some(404), "404")),
                    ("leases", None),
                ],
                "the fleet API does not serve clusters, works: its definitions are missing",
            ),
            (
                vec![
                    ("a", refused(Some(403), "a is forbidden: User \"x\"")),
                    ("b", refused(Some(403), "b is forbidden: User \"x\"")),
                    ("c", refused(Some(403), "c")),
                    ("d", refused(Some(403), "d")),
                ],
                "no right to list and watch a, b, c and 1 more: a is forbidden: User \"x\"",
            ),
            (
                vec![("a", refused(Some(401), "Unauthorized"))],
                "does not accept the credentials of the control plane: Unauthorized",
            ),
            (
                vec![
                    ("a", refused(Some(403), "no")),
                    ("b", refused(None, "connection refused")),
                ],
                "no right to list and watch a: no; cannot list and watch b: connection refused",
            ),
        ] {
            let said = words(&missing);
            assert!(said.contains(expected), "{said}");
        }
    }
}
