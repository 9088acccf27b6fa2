//! Lists of conditions, updated by the rules of `meta.SetStatusCondition`: one condition of each
//! type, whose transition time changes only with its status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde_json::{Value, json};

/// The condition holds.
pub const TRUE: &str = "True";
/// The condition does not hold.
pub const FALSE: &str = "False";
/// It is not known whether the condition holds.
pub const UNKNOWN: &str = "Unknown";

/// Maximum number of characters of a condition's message, as in Kubernetes' definition. With a
/// longer message the API server rejects the whole status.
const LONGEST_MESSAGE: usize = 32_768;

/// Makes a condition that was observed at `now`. A message that is too long is cut off.
pub fn new(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    let end = message.floor_char_boundary(LONGEST_MESSAGE);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message[..end].to_owned(),
        last_transition_time: Time(now),
        observed_generation: None,
    }
}

/// Returns the merge patch of the conditions of an object, upon the version of it that was read:
/// the list is replaced as a whole, and others write it, too.
pub fn patch(read: &ObjectMeta, conditions: &[Condition]) -> Value {
    json!({
        "metadata": {"resourceVersion": read.resource_version},
        "status": {"conditions": conditions},
    })
}

/// Returns the condition of a type.
pub fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Returns the status of the condition of a type.
pub fn status<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a str> {
    get(conditions, kind).map(|condition| condition.status.as_str())
}

/// Returns whether the condition of a type exists and is True.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    status(conditions, kind) == Some(TRUE)
}

/// Returns whether a condition says something else than the known one of its type: another status
/// or message.
pub fn is_update(known: Option<&Condition>, said: &Condition) -> bool {
    known.is_none_or(|known| known.status != said.status || known.message != said.message)
}

/// Puts a condition into the list and returns whether the list changed. If the status stays the
/// same, so does the old transition time; otherwise `observation.last_transition_time` is used.
pub fn set(conditions: &mut Vec<Condition>, observation: Condition) -> bool {
    let Some(known) = conditions
        .iter_mut()
        .find(|known| known.type_ == observation.type_)
    else {
        conditions.push(observation);
        return true;
    };
    let last_transition_time = if known.status == observation.status {
        known.last_transition_time.clone()
    } else {
        observation.last_transition_time.clone()
    };
    let updated = Condition {
        last_transition_time,
        ..observation
    };
    let changed = *known != updated;
    *known = updated;
    changed
}

/// Returns the list with all observations, or `None` if that changes nothing.
pub fn merge(
    conditions: &[Condition],
    observations: impl IntoIterator<Item = Condition>,
) -> Option<Vec<Condition>> {
    let mut merged = conditions.to_vec();
    let mut changed = false;
    for observation in observations {
        changed |= set(&mut merged, observation);
    }
    changed.then_some(merged)
}

/// Removes the condition of a type and returns whether it existed.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: &str, reason: &str, second: i64) -> Condition {
        new("Ready", status, reason, "", at(second))
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let mut conditions = vec![ready(TRUE, "ClusterReady", 1)];
        assert!(
            !set(&mut conditions, ready(TRUE, "ClusterReady", 2)),
            "nothing new"
        );
        assert!(
            set(&mut conditions, ready(TRUE, "Other", 3)),
            "another reason is reported"
        );
        assert_eq!(conditions[0].last_transition_time.0, at(1));
        assert!(set(&mut conditions, ready(FALSE, "Other", 4)));
        assert_eq!(conditions[0].last_transition_time.0, at(4));
    }

    #[test]
    fn a_message_that_would_be_refused_is_cut_off() {
        let long = "é".repeat(LONGEST_MESSAGE);
        let condition = new("Ready", TRUE, "Long", &long, at(1));
        assert_eq!(condition.message.len(), LONGEST_MESSAGE);
        assert!(long.starts_with(&condition.message));
    }

    #[test]
    fn conditions_of_others_stay_where_they_are() {
        let other = new("Other", TRUE, "R", "", at(0));
        let merged = merge(
            std::slice::from_ref(&other),
            [ready(TRUE, "ClusterReady", 1)],
        )
        .unwrap();
        assert_eq!(merged, [other, ready(TRUE, "ClusterReady", 1)]);
        assert_eq!(merge(&merged, [ready(TRUE, "ClusterReady", 9)]), None);
    }

    #[test]
    fn what_was_removed_is_gone() {
        let mut conditions = vec![ready(TRUE, "ClusterReady", 1)];
        assert!(is_true(&conditions, "Ready"));
        assert!(remove(&mut conditions, "Ready"));
        assert!(!remove(&mut conditions, "Ready"));
        assert_eq!(status(&conditions, "Ready"), None);
    }
}
