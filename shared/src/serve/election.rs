//! Says in `/readyz` who leads.

use tokio_util::sync::CancellationToken;

use super::Health;
use crate::lease::{Leadership, stands_by};

/// Name of the election in `/readyz`.
const PART: &str = "election";

/// Says in `/readyz` who leads instead of this process, and why the lease cannot be taken as long
/// as the API has never answered for it.
pub async fn report_election(leadership: Leadership, health: Health, shutdown: CancellationToken) {
    let (mut holder, mut trouble) = (leadership.holder(), leadership.trouble());
    let mut until = leadership.leads();
    let mut answered = leadership.is_without_election();
    health.expect(PART);
    loop {
        let leads = until.borrow_and_update().is_some();
        let other = holder.borrow_and_update().clone();
        let why = trouble.borrow_and_update().clone();
        answered |= leads || other.is_some();
        match (other, why) {
            (Some(other), _) if !leads => health.note(PART, Some(stands_by(&other))),
            (_, Some(why)) if !answered => {
                let words = format!("cannot take the lease of the election: {why}");
                health.ready(PART, Err(words));
            }
            _ if answered => health.note(PART, None),
            _ => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            Ok(()) = holder.changed() => {}
            Ok(()) = trouble.changed() => {}
            Ok(()) = until.changed() => {}
        }
    }
}
