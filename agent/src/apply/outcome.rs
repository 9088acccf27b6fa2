//! What is said about a Work: its conditions, in Karmada's words.

use jiff::Timestamp;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{APPLIED, DISPATCHING};

/// Whether dispatching is allowed or suspended.
pub fn dispatching(suspended: bool, now: Timestamp) -> Condition {
    let (reason, message) = if suspended {
        (
            "SuspendDispatching",
            "Work dispatching is in a suspended state.",
        )
    } else {
        (
            "Dispatching",
            "Work is being dispatched to member clusters.",
        )
    };
    conditions::new(
        DISPATCHING,
        if suspended { FALSE } else { TRUE },
        reason,
        message,
        now,
    )
}

/// Whether everything was applied: `failures` are the messages of those of the `total` objects that were not.
pub fn applied(total: usize, failures: &[String], now: Timestamp) -> Condition {
    if failures.is_empty() {
        let message = "Manifest has been successfully applied";
        return conditions::new(APPLIED, TRUE, "AppliedSuccessful", message, now);
    }
    let succeeded = total - failures.len();
    let message = format!(
        "Failed to apply all manifests ({succeeded}/{total}): {}",
        aggregate(failures)
    );
    conditions::new(APPLIED, FALSE, "AppliedFailed", &message, now)
}

/// One message as it is, several as Kubernetes writes aggregates: each once, in brackets.
fn aggregate(messages: &[String]) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for message in messages {
        if !unique.contains(&message.as_str()) {
            unique.push(message);
        }
    }
    match unique[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", unique.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_applied_condition_counts_and_quotes_the_failures() {
        for (total, failures, status, message) in [
            (2, vec![], "True", "Manifest has been successfully applied"),
            (
                2,
                vec!["a"],
                "False",
                "Failed to apply all manifests (1/2): a",
            ),
            (
                3,
                vec!["a", "b"],
                "False",
                "Failed to apply all manifests (1/3): [a, b]",
            ),
            (
                3,
                vec!["a", "a"],
                "False",
                "Failed to apply all manifests (1/3): a",
            ),
        ] {
            let failures: Vec<String> = failures.into_iter().map(str::to_owned).collect();
            let condition = applied(total, &failures, Timestamp::UNIX_EPOCH);
            assert_eq!(
                (condition.status.as_str(), condition.message.as_str()),
                (status, message)
            );
        }
    }

    #[test]
    fn suspension_is_told() {
        let suspended = dispatching(true, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (suspended.status.as_str(), suspended.reason.as_str()),
            ("False", "SuspendDispatching")
        );
        let dispatched = dispatching(false, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (dispatched.status.as_str(), dispatched.reason.as_str()),
            ("True", "Dispatching")
        );
    }
}
