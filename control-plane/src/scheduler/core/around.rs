//! Places a workload around clusters in which the order for it could not be carried out.

use super::{ClusterInfo, Snapshot};

/// Placements of one workload after which all clusters are asked for obstacles, in place of those
/// that were chosen.
const ROUNDS: usize = 3;

/// Reason why no placement is free of obstacles.
#[derive(Debug)]
pub struct Obstructed<P, E, O> {
    /// The placement that would be the best without obstacles; `None` if there is none either.
    pub first: Option<P>,
    /// Reason why no placement exists besides the clusters that are obstructed.
    pub failure: E,
    /// The clusters that were chosen although something is in the way there, and what is.
    pub obstacles: Vec<(String, O)>,
}

/// Returns the first placement of `place` that puts the workload into no cluster with an obstacle.
/// `new` names the clusters that a placement gives the workload to, and `obstacle` says what keeps
/// the order from being carried out in a cluster that does not have it yet.
///
/// # Errors
/// [`Obstructed`] if `place` fails, or fails without the clusters that have an obstacle.
pub fn place_around<P, E, O>(
    snapshot: &Snapshot,
    place: impl Fn(&Snapshot) -> Result<P, E>,
    new: impl Fn(&P) -> Vec<String>,
    obstacle: impl Fn(&str) -> Option<O>,
) -> Result<P, Obstructed<P, E, O>> {
    let (mut open, mut obstacles) = (snapshot.clone(), Vec::new());
    let (mut first, mut rounds) = (None, 0);
    // Each round closes one cluster more at least.
    loop {
        if rounds == ROUNDS {
            // Most clusters seem to be obstructed: the others are found at once.
            let names = snapshot.iter().map(ClusterInfo::name);
            let shut = names.filter(|name| obstacle(name).is_some());
            open = shut.fold(open, Snapshot::closing);
        }
        let placed = match place(&open) {
            Ok(placed) => placed,
            Err(failure) => {
                return Err(Obstructed {
                    first,
                    failure,
                    obstacles,
                });
            }
        };
        let before = obstacles.len();
        for name in new(&placed) {
            if let Some(why) = obstacle(&name) {
                open = open.closing(&name);
                obstacles.push((name, why));
            }
        }
        if obstacles.len() == before {
            return Ok(placed);
        }
        first.get_or_insert(placed);
        rounds += 1;
    }
}
