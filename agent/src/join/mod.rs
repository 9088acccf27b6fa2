//! Becoming a member of the fleet, and what may be done before that is settled.

mod register;

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::lease::Leadership;
use muster_shared::queue::jittered;
use muster_shared::serve::Health;
use muster_shared::watch::Informer;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use self::register::{Error, Registration, ensure_namespace};

/// First and longest pause between attempts to join.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How far the member has come, each step permitting more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing is settled: do nothing.
    Stranger,
    /// The fleet knows a Cluster of our name and the member is silent. It would be wrong to be silent, too: we are alive, and we
    /// know that the member is not well.
    Registered,
    /// We are who we say: Works may be carried into the member.
    Member,
}

/// Tries to join until that works, then waits for shutdown; ends early only when it is refused for good, at once or later: our
/// role may show us no Cluster but our own, so that it may be the control plane who finds out that the member has another one.
pub async fn run(
    registration: Registration,
    clusters: Informer<Cluster>,
    leadership: Leadership,
    standing: watch::Sender<Standing>,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        refused = async {
            leadership.acquired().await;
            keep_trying(&registration, &standing, &health).await
        } => match refused {
            Ok(()) => tokio::select! {
                () = shutdown.cancelled() => Ok(()),
                problem = refusal(&clusters, &registration.settings.cluster_name) => Err(Error::Taken(problem)),
            },
            Err(error) => Err(error),
        },
    }
}

async fn keep_trying(
    registration: &Registration,
    standing: &watch::Sender<Standing>,
    health: &Health,
) -> Result<(), Error> {
    let (mut pause, longest) = PAUSES;
    loop {
        let error = match registration.register().await {
            Ok(()) => break,
            Err(error) if error.is_final() => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(%error, retry_in = ?pause, "could not join yet");
        health.ready("registration", Err(error.to_string()));
        if error.is_anonymity() && registration.is_known().await {
            advance(standing, Standing::Registered);
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(longest);
    }
    health.ready("registration", Ok(()));
    advance(standing, Standing::Member);
    Ok(())
}

/// Waits until our Cluster says that it is the wrong one, and gives its words.
async fn refusal(clusters: &Informer<Cluster>, name: &str) -> String {
    let news = Arc::new(Notify::new());
    let wake = Arc::clone(&news);
    clusters.on_change(move |_| wake.notify_one());
    loop {
        let cluster = clusters.get(None, name);
        if let Some(problem) = cluster.and_then(|cluster| register::twin(&cluster)) {
            return problem;
        }
        news.notified().await;
    }
}

fn advance(standing: &watch::Sender<Standing>, to: Standing) {
    standing.send_if_modified(|standing| {
        let further = *standing < to;
        if further {
            *standing = to;
        }
        further
    });
}
