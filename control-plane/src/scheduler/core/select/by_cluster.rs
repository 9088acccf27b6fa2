//! Selects clusters under a constraint by cluster: the best ones, exchanged for larger ones if the
//! replicas do not fit.

use super::{Candidate, Groups, Load, SelectError};

/// Chooses between `groups.min` and `groups.max` of the ranked candidates, as many as there are.
pub(super) fn select(
    mut candidates: Vec<Candidate<'_>>,
    groups: Groups,
    load: Load,
) -> Result<Vec<Candidate<'_>>, SelectError> {
    if candidates.len() < groups.min {
        return Err(SelectError::TooFewClusters);
    }
    let need = candidates.len().min(groups.max);
    // No clusters have no room, not even for zero replicas (Karmada behaviour).
    if !load.duplicated && (need == 0 || !make_room(&mut candidates, need, load.replicas)) {
        return Err(SelectError::NotEnoughCapacity(need));
    }
    candidates.truncate(need);
    Ok(candidates)
}

/// Exchanges retained candidates, the least preferred first, for the roomiest of the rest until the
/// replicas fit. Each retained candidate is exchanged at most once. Karmada behaviour.
fn make_room(candidates: &mut [Candidate<'_>], need: usize, replicas: i64) -> bool {
    let (retained, rest) = candidates.split_at_mut(need);
    let mut room: i64 = retained.iter().map(Candidate::available).sum();
    for kept in retained.iter_mut().rev() {
        if room >= replicas {
            break;
        }
        // The first of the roomiest: the rest is ranked, so it is the most preferred of them.
        let roomiest = rest.iter_mut().reduce(|best, next| {
            if next.available() > best.available() {
                next
            } else {
                best
            }
        });
        if let Some(roomiest) = roomiest.filter(|roomiest| roomiest.available() > kept.available())
        {
            room += roomiest.available() - kept.available();
            std::mem::swap(kept, roomiest);
        }
    }
    room >= replicas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_clusters_have_room_for_nothing_but_for_copies() {
        for (duplicated, expected) in [
            (true, None),
            (false, Some(SelectError::NotEnoughCapacity(0))),
        ] {
            let load = Load {
                replicas: 0,
                fresh: false,
                duplicated,
                replacing: false,
            };
            let selected = select(Vec::new(), Groups { min: 0, max: 0 }, load);
            assert_eq!(selected.err(), expected, "{duplicated}");
        }
    }
}
