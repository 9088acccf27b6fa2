//! Says in `/readyz` how the election stands.

use tokio_util::sync::CancellationToken;

use super::Leadership;
use crate::serve::Health;

/// What `/readyz` and the log say of a process that stands by.
pub(super) fn stands_by(holder: &str) -> String {
    format!("{holder:?} leads: standing by to take over, and doing nothing until then")
}

/// Name of the election in `/readyz`.
pub const PART: &str = "election";

/// Says in `/readyz` who leads instead of this process, and why the lease cannot be taken as long
/// as the API has never answered for it.
pub async fn tell(leadership: Leadership, health: Health, retire: CancellationToken) {
    let (mut holder, mut trouble) = (leadership.holder(), leadership.trouble.subscribe());
    let mut until = leadership.until.subscribe();
    let mut answered = leadership.always;
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
            () = retire.cancelled() => return,
            Ok(()) = holder.changed() => {}
            Ok(()) = trouble.changed() => {}
            Ok(()) = until.changed() => {}
        }
    }
}
