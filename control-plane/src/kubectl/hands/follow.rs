//! Shows how a drain goes, until nothing is left that can leave.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use kube::Config;
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::cluster::Cluster;
use muster_shared::client::{self, Profile};
use muster_shared::clock::calendar;
use muster_shared::k8s::Api;
use muster_shared::taints::is_drain;
use muster_shared::watch::{Followed, Informer, Selection};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::progress::{End, Progress, count};
use crate::eviction::any_binding::AnyBinding;
use crate::kubectl::standstill::Standing;

/// Pause between two lines.
const PAUSE: Duration = Duration::from_secs(1);
/// Time within which the fleet has to be listed.
const LISTED: Duration = Duration::from_mins(1);

/// How a command waits.
#[derive(Clone, Copy, Debug)]
pub(in crate::kubectl) struct Waiting {
    /// For how long at most.
    pub patience: Option<Duration>,
    /// Whether the progress is shown on a terminal.
    pub is_terminal: bool,
}

/// Shows the progress until nothing is left that can leave.
pub(super) async fn follow(
    config: &Config,
    names: &[String],
    waiting: Waiting,
    is_resumed: bool,
) -> anyhow::Result<(Progress, End)> {
    let Waiting {
        patience,
        is_terminal,
    } = waiting;
    let client = client::connect(config, Profile::Watch)?;
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let changed = Arc::new(Notify::new());
    let clusters: Informer<Cluster> = watch(Api::all(client.clone()), &changed, &stop);
    let bindings: Informer<ResourceBinding> = watch(Api::all(client.clone()), &changed, &stop);
    let others: Informer<ClusterResourceBinding> = watch(Api::all(client), &changed, &stop);
    let standing = client::connect(config, Profile::Write)?;
    let mut standing = Standing::follow(standing, &changed, &stop);
    let listed = async {
        clusters.synced().await;
        bindings.synced().await;
        others.synced().await;
    };
    if timeout(LISTED, listed).await.is_err() {
        let why = [clusters.trouble(), bindings.trouble(), others.trouble()];
        let why = why.into_iter().flatten().next();
        bail!(
            "the fleet cannot be listed: {}",
            why.unwrap_or_else(|| "no answer".to_owned())
        );
    }
    // The first look.
    let _ = standing.changed().await;
    let deadline = patience.map(|patience| Instant::now() + patience);
    let mut seen = BTreeSet::new();
    let mut shown = Shown::new(is_terminal);
    loop {
        let known: HashMap<String, Arc<Cluster>> = names
            .iter()
            .filter_map(|name| Some((name.clone(), clusters.get(None, name)?)))
            .collect();
        let namespaced = bindings.list().into_iter().map(AnyBinding::from);
        let all: Vec<AnyBinding> = namespaced
            .chain(others.list().into_iter().map(AnyBinding::from))
            .collect();
        let now = calendar();
        let stopped = standing.borrow().of(known.values().map(Arc::as_ref), now);
        let progress = Progress {
            is_resumed,
            nothing_moves: stopped.reasons,
            ..count(&all, &known, &mut seen, now)
        };
        let is_drained = known
            .values()
            .all(|cluster| cluster.spec.taints.iter().any(is_drain));
        let end = if is_drained {
            progress.is_done().then_some(End::Done)
        } else {
            Some(End::Undrained)
        };
        let line = progress.line(is_terminal);
        let is_read = shown.show(&line, &progress.nothing_moves, end.is_some());
        let gone = (!is_read).then_some(End::Interrupted);
        if let Some(end) = end.or(gone) {
            return Ok((progress, end));
        }
        let patience = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let next = Instant::now() + PAUSE;
        let news = async {
            changed.notified().await;
            sleep_until(next).await;
        };
        let end = tokio::select! {
            () = news => continue,
            () = patience => End::TimedOut,
            _ = tokio::signal::ctrl_c() => End::Interrupted,
        };
        if is_terminal {
            eprintln!();
        }
        return Ok((progress, end));
    }
}

/// Follows the objects of an API until the token is cancelled, and notifies of each change.
pub(in crate::kubectl) fn watch<K: Followed>(
    api: Api<K>,
    changed: &Arc<Notify>,
    stop: &CancellationToken,
) -> Informer<K> {
    let informer = Informer::new(api, Selection::everything());
    let changed = Arc::clone(changed);
    informer.on_change(move |_| changed.notify_one());
    muster_shared::clock::spawn(informer.clone().run(stop.clone()));
    informer
}

/// What was shown of a progress.
#[derive(Debug)]
pub(in crate::kubectl) struct Shown {
    is_terminal: bool,
    line: Option<String>,
    nothing_moves: Vec<String>,
}

impl Shown {
    /// Nothing so far.
    pub fn new(is_terminal: bool) -> Self {
        Self {
            is_terminal,
            line: None,
            nothing_moves: Vec::new(),
        }
    }

    /// Prints what has changed: reasons why nothing moves, and the line of progress, which on a
    /// terminal takes the place of the last one. Returns whether somebody may still read it.
    pub fn show(&mut self, line: &str, nothing_moves: &[String], is_last: bool) -> bool {
        let mut text = String::new();
        let clear = if self.is_terminal { "\r\x1b[2K" } else { "" };
        if self.nothing_moves != nothing_moves {
            for reason in nothing_moves {
                let _ = writeln!(text, "{clear}Nothing moves: {reason}");
            }
            if nothing_moves.is_empty() {
                let _ = writeln!(text, "{clear}Movement goes on");
            }
            nothing_moves.clone_into(&mut self.nothing_moves);
            self.line = None;
        }
        if self.line.as_deref() != Some(line) || (is_last && self.is_terminal) {
            let end = if is_last || !self.is_terminal {
                "\n"
            } else {
                ""
            };
            let _ = write!(text, "{clear}{line}{end}");
            self.line = Some(line.to_owned());
        }
        let mut out = std::io::stderr();
        // A terminal that is gone must not end the command; a reader that has left does.
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        !written.is_err_and(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    }
}
