//! What is tried: each of these has to be refused.

#![expect(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tables of probes, written out"
)]

mod reports;
mod rights;

use serde_json::{Value, json};

use crate::stolen::Ask;
use reports::{bindings_and_policies, leases, other_clusters, own_cluster, works};
use rights::{admission, events, history, identities, secrets, the_rest};

/// Returns all probes.
pub(crate) fn all() -> Vec<Ask> {
    [
        own_cluster(),
        other_clusters(),
        works(),
        bindings_and_policies(),
        leases(),
        secrets(),
        identities(),
        rights::rights(),
        admission(),
        events(),
        history(),
        the_rest(),
    ]
    .concat()
}

/// Returns the probes that an agent's role allows, so that only a policy can refuse them: changes
/// of what it may write. The id of a Cluster, which the definition keeps from everybody, is not
/// among them.
pub(crate) fn of_policies() -> Vec<Ask> {
    let mut all = [own_cluster(), works(), events()].concat();
    all.retain(|ask| {
        let id = ask.what.ends_with(" id") || ask.what.contains("the id");
        let own = [
            "own Cluster",
            "own Work:",
            "events: rewrite",
            "events: count",
        ];
        !id && ask.method == "PATCH"
            && !ask.path.contains('?')
            && own.iter().any(|it| ask.what.starts_with(it))
    });
    all
}

fn metadata(metadata: Value) -> Value {
    json!({ "metadata": metadata })
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}
