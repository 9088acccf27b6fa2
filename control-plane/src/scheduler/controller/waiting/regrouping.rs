//! What becomes of those who wait when their demands are put together.

use super::tests::{asking, observe, room};
use super::*;
use crate::scheduler::tests::fixtures::{cluster, tainted};

/// Bindings that ask for these thousandths of a core each.
fn asking_for(most_ranges: usize, amounts: impl Iterator<Item = usize>) -> Waiting<usize> {
    let waiting = Waiting::new(false, most_ranges);
    for amount in amounts {
        let spec = asking(&format!("{amount}m"));
        waiting.put(&amount, Some((&spec, room(1_000))));
    }
    waiting
}

#[test]
fn as_many_demands_as_there_may_be_ranges_are_told_apart() {
    for (demands, is_exact) in [(8, true), (9, false)] {
        let waiting = asking_for(8, 1_000..1_000 + demands);
        let coarseness = waiting.state.lock().ranges.coarseness();
        assert_eq!(coarseness == Coarseness::EXACT, is_exact, "{demands}");
    }
}

#[test]
fn ranges_that_are_made_wider_leave_room_for_as_many_again() {
    // Nine steps of an eighth of an octave.
    let waiting = asking_for(16, (0..17).map(|step| 1_024 + 64 * step));
    let ranges = waiting.state.lock().ranges.len();
    assert!(ranges > 1 && ranges * 2 <= 16, "{ranges}");
}

#[test]
fn who_are_told_apart_are_not_put_together_anew_when_others_leave() {
    let waiting = asking_for(8, 1_000..1_009);
    let leave = |amounts: std::ops::Range<usize>| {
        amounts.for_each(|amount| waiting.put(&amount, None));
        let state = waiting.state.lock();
        (state.ranges.coarseness(), state.regrouped_at)
    };
    assert_eq!(leave(1_000..1_005), (Coarseness::EXACT, 4));
    assert_eq!(leave(1_005..1_008), (Coarseness::EXACT, 4));
}

#[test]
fn only_who_is_to_be_woken_is_woken_after_it_and_as_soon_as_before() {
    let spec = asking("1");
    let anything = Wait {
        wish: WaitsFor::Anything,
        lacking: 1,
    };
    for (is_touched, expected) in [(false, &[][..]), (true, &[(0, Duration::ZERO)])] {
        let waiting = Waiting::new(false, 2);
        // Many looks in vain, so that mere room would make the next one wait.
        for _ in 0..10 {
            waiting.put(&0, Some((&spec, anything)));
        }
        waiting.put(&1, Some((&spec, room(1))));
        if is_touched {
            let ill = tainted("m", 10, "x", "NoSchedule");
            observe(&waiting, &cluster("m", 10), &ill);
        }
        for number in 2..9 {
            let other = asking(&format!("{number}"));
            waiting.put(&number, Some((&other, room(1_000))));
        }
        assert!(waiting.state.lock().ranges.coarseness() > Coarseness::EXACT);
        assert_eq!(waiting.turn(), expected, "touched: {is_touched}");
    }
}
