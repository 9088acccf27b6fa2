//! Workloads that are asked to return: a few at a time. One that a new placement would not bring
//! home is tried less and less often.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;

use crate::fleet::binding::BindingKey;

/// First time after which a workload is tried again that a new placement would not bring home:
/// room changes all the time, and there may be very many of them.
pub(super) const AGAIN: Duration = Duration::from_mins(1);
/// Longest such time.
pub(super) const RARELY: Duration = Duration::from_hours(1);
/// Workloads that are asked to return and have not been placed yet, at most: the others are judged
/// when they are tried, since a window may close and a cluster may fail again meanwhile.
const MOST_ASKED: usize = 8;

/// Workloads that are asked to return, and those that wait until fewer are.
#[derive(Default)]
pub(super) struct InFlight(Mutex<State>);

#[derive(Default)]
struct State {
    asked: HashSet<BindingKey>,
    waiting: HashSet<BindingKey>,
}

impl InFlight {
    /// Returns whether a workload may be asked to return now; if not, it waits.
    pub fn begins(&self, key: &BindingKey) -> bool {
        let mut state = self.0.lock();
        let may = state.asked.len() < MOST_ASKED;
        if may {
            state.waiting.remove(key);
        } else {
            state.waiting.insert(key.clone());
        }
        may
    }

    /// Notes whether a workload is asked to return; returns those that are tried by it.
    pub fn note(&self, key: &BindingKey, is_asked: bool) -> Vec<BindingKey> {
        let mut state = self.0.lock();
        if is_asked {
            state.asked.insert(key.clone());
            return Vec::new();
        }
        if !state.asked.remove(key) {
            return Vec::new();
        }
        let free = MOST_ASKED.saturating_sub(state.asked.len());
        let next: Vec<BindingKey> = state.waiting.iter().take(free).cloned().collect();
        for key in &next {
            state.waiting.remove(key);
        }
        next
    }

    /// Notes the end of a try of a workload; returns another one that is tried next if this one
    /// has not used it.
    pub fn ends(&self, key: &BindingKey) -> Option<BindingKey> {
        let mut state = self.0.lock();
        if state.asked.contains(key) || state.asked.len() >= MOST_ASKED {
            return None;
        }
        let next = state.waiting.iter().next().cloned()?;
        state.waiting.remove(&next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::key;

    #[test]
    fn a_few_workloads_are_asked_to_return_at_a_time_and_the_others_when_these_are_placed() {
        let in_flight = InFlight::default();
        for number in 0..MOST_ASKED {
            let key = key(&number.to_string());
            assert!(in_flight.begins(&key));
            assert!(in_flight.note(&key, true).is_empty());
        }
        let late = key("late");
        assert!(!in_flight.begins(&late));
        let none = in_flight.note(&key("another"), false);
        assert!(none.is_empty(), "it was not asked");
        assert_eq!(in_flight.note(&key("0"), false), [key("late")]);
        assert!(in_flight.begins(&late));
    }

    #[test]
    fn a_permit_that_is_not_used_goes_on_to_another_workload_until_none_waits() {
        let in_flight = InFlight::default();
        let asked: Vec<_> = (0..MOST_ASKED).map(|it| key(&it.to_string())).collect();
        for key in &asked {
            in_flight.note(key, true);
        }
        let late: HashSet<_> = (0..92).map(|it| key(&format!("late-{it}"))).collect();
        for key in &late {
            assert!(!in_flight.begins(key));
            assert_eq!(in_flight.ends(key), None, "there is no turn");
        }
        let mut woken: Vec<_> = in_flight.note(&asked[0], false);
        let mut looked = HashSet::new();
        while let Some(key) = woken.pop() {
            assert!(in_flight.begins(&key));
            woken.extend(in_flight.ends(&key));
            looked.insert(key);
        }
        assert_eq!(looked, late, "each is looked at although none asks");
        assert!(
            !in_flight.begins(&asked[1]) || in_flight.ends(&asked[1]).is_none(),
            "it uses its turn"
        );
    }
}
