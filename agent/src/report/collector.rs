//! Collects what has to be polled: the version of the member and the kinds that it serves.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::clock::Clock;
use muster_shared::k8s::Client;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::discovery::Discovery;
use crate::discovery::catalog::Catalog;
use crate::measures::Step;
use crate::write::within;

/// The last good answer to each question.
#[derive(Clone, Debug)]
pub struct Collected {
    /// Whether the first questions of this process have been answered, well or not.
    pub is_asked: bool,
    /// Version of the member's API server.
    pub version: Option<String>,
    /// Time of the last good answer, if the latest request failed; `None` otherwise.
    pub version_since: Option<Timestamp>,
    /// Kinds that the member serves.
    pub catalog: Option<Arc<Catalog>>,
    /// Time of the last good answer, if the latest request failed; `None` otherwise.
    pub catalog_since: Option<Timestamp>,
}

impl Collected {
    /// Returns the state in which nothing was collected yet.
    pub fn nothing(now: Timestamp) -> Self {
        Self {
            is_asked: false,
            version: None,
            version_since: Some(now),
            catalog: None,
            catalog_since: Some(now),
        }
    }
}

/// Asks at the start and then once a period, and publishes the answers.
pub async fn collect(
    member: Client,
    discovery: Discovery,
    period: Duration,
    publish: watch::Sender<Collected>,
    clock: Arc<Clock>,
    shutdown: CancellationToken,
) {
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let asks = async {
        loop {
            timer.tick().await;
            let version = member.apiserver_version();
            let version = within("ask for the version of the member", version);
            let (version, catalog) = tokio::join!(version, discovery.refresh());
            let now = clock.now();
            publish.send_modify(|collected| {
                collected.is_asked = true;
                match version {
                    Ok(version) => {
                        collected.version = Some(version.git_version);
                        collected.version_since = None;
                        Step::Version.succeeded(now);
                    }
                    Err(error) => grow_old(&mut collected.version_since, now, "version", &error),
                }
                match catalog {
                    Ok(catalog) => {
                        collected.catalog = Some(catalog);
                        collected.catalog_since = None;
                        Step::Discovery.succeeded(now);
                    }
                    Err(error) => grow_old(&mut collected.catalog_since, now, "kinds", &error),
                }
            });
        }
    };
    shutdown.run_until_cancelled(asks).await;
}

/// Notes that an answer was not confirmed; says so once, not every period.
fn grow_old(since: &mut Option<Timestamp>, now: Timestamp, what: &str, error: &dyn Display) {
    if since.is_none() {
        tracing::warn!(what, %error, "not confirmed by the member: keeping what was known");
        *since = Some(now);
    }
}
