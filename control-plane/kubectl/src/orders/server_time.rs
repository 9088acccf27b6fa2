//! The time by the clock of the fleet API's server, which pauses, holds and taints are judged by.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::check::Asker;
use muster_shared::clock::{calendar, later};
use muster_shared::k8s::Client;

/// Time in which the server has to answer with its time.
const PATIENCE: Duration = Duration::from_secs(15);
/// Smallest difference of the clocks that is reported.
const WORTH_REPORTING: SignedDuration = SignedDuration::from_secs(30);

/// Asks the server for its time. Where it does not say it, the clock of this machine counts.
pub(super) async fn now(client: &Client) -> Timestamp {
    let clocks = Asker::new(client.clone(), PATIENCE).clocks().await;
    let ahead = SignedDuration::from_secs(clocks.map_or(0, |it| it.ahead()));
    if ahead.abs() > WORTH_REPORTING {
        let relation = if ahead.is_positive() {
            "behind"
        } else {
            "ahead of"
        };
        eprintln!(
            "Warning: the clock of this machine is {} s {relation} that of the fleet API, which counts",
            ahead.abs().as_secs()
        );
    }
    later(calendar(), ahead)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn what_is_dated_is_dated_by_the_server() {
        for ahead in [3_600, -3_600, 0] {
            let date = calendar() + SignedDuration::from_secs(ahead);
            let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
            let date = printer.timestamp_to_rfc9110_string(&date).unwrap();
            let service = tower::service_fn(move |_: Request<Body>| {
                let response = Response::builder().header("date", date.clone());
                async move { Ok::<_, std::io::Error>(response.body(Body::empty()).unwrap()) }
            });
            let time = now(&Client::new(service, "default")).await;
            let found = time.duration_since(calendar());
            let expected = SignedDuration::from_secs(ahead);
            assert!(
                (found - expected).abs() < SignedDuration::from_secs(5),
                "{found:?}"
            );
        }
    }
}
