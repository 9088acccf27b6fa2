//! Shows how something goes that moves workloads, until it has ended.

mod missing;

use std::fmt::Write as _;
use std::future::pending;
use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use kube::Config;
use muster_control_plane::fleet::binding::{BindingKey, Bindings};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client::{self, Profile};
use muster_shared::k8s::{Api, Resource};
use muster_shared::queue::wait_until;
use muster_shared::watch::{Followed, Informer, Selection};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::missing::Missing;
use super::output::{INTERRUPTED, TIMED_OUT, plain};
use super::standstill::MovementState;

/// Pause between two lines.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after which everything is checked again although no object has changed: pauses end by
/// themselves, and leases run out.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Time within which the fleet has to be listed.
const LISTED: Duration = Duration::from_mins(1);

/// Options by which a command waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// For how long at most.
    pub patience: Option<Duration>,
    /// Whether the progress is shown on a terminal.
    pub is_terminal: bool,
}

impl Waiting {
    /// Returns how a command waits for a time; 0 is for ever.
    pub fn of(timeout: Duration) -> Self {
        Self {
            patience: (timeout > Duration::ZERO).then_some(timeout),
            is_terminal: std::io::stderr().is_terminal(),
        }
    }
}

/// Reason why the wait ended before the progress did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The time is up.
    TimedOut,
    /// Ctrl-C, or the reader of the output has gone.
    Interrupted,
}

impl Stopped {
    /// Returns the exit code of a command whose waiting was stopped.
    pub fn code(self) -> u8 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::Interrupted => INTERRUPTED,
        }
    }
}

/// The state of the fleet at one moment.
pub(super) struct Snapshot<'a, K> {
    /// The objects by which the command goes.
    pub objects: &'a Informer<K>,
    /// All bindings of both scopes.
    pub bindings: Vec<Arc<AnyBinding>>,
    /// Which bindings have been deleted. One that is neither listed nor deleted may be there.
    pub deleted: Deleted<'a>,
    /// Time since the fleet was listed.
    pub waited: Duration,
    /// Reasons why nothing moves now.
    pub movement: &'a MovementState,
}

/// Whether a binding that is not listed has been deleted.
pub(super) type Deleted<'a> = &'a dyn Fn(&BindingKey) -> bool;

/// State of a progress at one moment.
pub(super) struct Check<P, E> {
    /// The progress itself.
    pub progress: P,
    /// The progress in one line.
    pub line: String,
    /// Reasons why nothing moves now.
    pub nothing_moves: Vec<String>,
    /// End of the progress, if it has ended.
    pub end: Option<E>,
}

/// Follows objects of one kind and all bindings, and shows what `check` finds in them after each
/// change, until that has ended or the waiting has been stopped. Returns the last progress, and how
/// it ended.
pub(super) async fn follow<K, P, E>(
    config: &Config,
    waiting: Waiting,
    mut check: impl FnMut(Snapshot<'_, K>) -> Check<P, E>,
) -> anyhow::Result<(P, Result<E, Stopped>)>
where
    K: Followed + Resource<DynamicType = ()>,
{
    let Waiting {
        patience,
        is_terminal,
    } = waiting;
    let client = client::connect(config, Profile::Watch)?;
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let changed = Arc::new(Notify::new());
    let objects: Informer<K> = Informer::new(Api::all(client.clone()), Selection::everything());
    start(&objects, &changed, &stop);
    let bindings = Bindings::new(&client);
    for (_, informer) in bindings.informers() {
        start(informer, &changed, &stop);
    }
    let requests = client::connect(config, Profile::Write)?;
    let listed = async {
        objects.synced().await;
        for (_, informer) in bindings.informers() {
            informer.synced().await;
        }
    };
    if timeout(LISTED, listed).await.is_err() {
        let bindings = bindings.informers().map(|(_, it)| it.trouble());
        let why = objects
            .trouble()
            .or_else(|| bindings.into_iter().flatten().next());
        bail!(
            "the clusters and workloads cannot be listed: {}",
            why.unwrap_or_else(|| "no answer".to_owned())
        );
    }
    let read = || Box::pin(MovementState::read(&requests));
    let mut movement = read().await;
    let missing = Missing::default();
    let deleted = |key: &BindingKey| missing.is_deleted(key, &bindings.presence(key));
    let begun = Instant::now();
    let deadline = patience.map(|patience| begun + patience);
    let mut shown = Shown::new(is_terminal);
    // One future for all rounds: a program that has listened for Ctrl-C once does not end by it.
    let mut interrupted = pin!(async {
        if tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    });
    loop {
        let Check {
            progress,
            line,
            nothing_moves,
            end,
        } = check(Snapshot {
            objects: &objects,
            bindings: bindings.iter().collect(),
            deleted: &deleted,
            waited: begun.elapsed(),
            movement: &movement,
        });
        let text = shown.text(&line, &nothing_moves, movement.is_read(), end.is_some());
        let has_reader = print(&text);
        if let Some(end) = end {
            return Ok((progress, Ok(end)));
        }
        if !has_reader {
            return Ok((progress, Err(Stopped::Interrupted)));
        }
        let next = Instant::now() + PAUSE;
        let observed = async {
            let _ = timeout(CHECK_EVERY, changed.notified()).await;
            sleep_until(next).await;
        };
        // Asked while it is waited, so that an API that does not answer holds nothing up.
        let awaited = async {
            let asked = async {
                if missing.ask(&requests).await {
                    changed.notify_one();
                }
            };
            tokio::join!(read(), observed, asked)
        };
        let stopped = tokio::select! {
            (now, (), ()) = awaited => {
                movement = now;
                continue;
            }
            () = wait_until(deadline) => Stopped::TimedOut,
            () = interrupted.as_mut() => Stopped::Interrupted,
        };
        if is_terminal {
            eprintln!();
        }
        return Ok((progress, Err(stopped)));
    }
}

/// Starts an informer, which notifies of each change.
fn start<K: Followed>(informer: &Informer<K>, changed: &Arc<Notify>, stop: &CancellationToken) {
    let changed = Arc::clone(changed);
    informer.on_change(move |_| changed.notify_one());
    muster_shared::clock::spawn(informer.clone().run(stop.clone()));
}

/// State of a progress that was printed last.
#[derive(Debug)]
struct Shown {
    is_terminal: bool,
    line: Option<String>,
    nothing_moves: Vec<String>,
}

impl Shown {
    /// Makes a record of the progress of which nothing was shown so far.
    fn new(is_terminal: bool) -> Self {
        Self {
            is_terminal,
            line: None,
            nothing_moves: Vec::new(),
        }
    }

    /// Returns what has changed: reasons why nothing moves, and the line of progress, which on a
    /// terminal takes the place of the last one. A reason that is missing is over if everything
    /// could be read (`is_read`).
    fn text(
        &mut self,
        line: &str,
        nothing_moves: &[String],
        is_read: bool,
        is_last: bool,
    ) -> String {
        let mut text = String::new();
        let clear = if self.is_terminal { "\r\x1b[2K" } else { "" };
        let mut reasons = nothing_moves.iter();
        let is_known = is_read || reasons.any(|it| !self.nothing_moves.contains(it));
        if is_known && self.nothing_moves != nothing_moves {
            for reason in nothing_moves {
                let _ = writeln!(text, "{clear}Nothing moves: {}", plain(reason));
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
            let _ = write!(text, "{clear}{}{end}", plain(line));
            self.line = Some(line.to_owned());
        }
        text
    }
}

/// Prints a text to the standard error. Returns whether somebody may still read it.
fn print(text: &str) -> bool {
    let mut out = std::io::stderr();
    // A terminal that is gone must not end the command; a reader that has left does.
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    !written.is_err_and(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movement_goes_on_once_it_could_be_read_that_nothing_is_in_the_way() {
        let mut shown = Shown::new(false);
        let paused = ["all movement is paused".to_owned()];
        let own = ["movement out of m1 is paused".to_owned()];
        let both = [paused.clone(), own.clone()].concat();
        for (nothing_moves, is_read, expected) in [
            (
                &paused[..],
                true,
                "Nothing moves: all movement is paused\n1 of 2 moved\n",
            ),
            (&[], false, ""),
            (&paused, true, ""),
            (&[], true, "Movement goes on\n1 of 2 moved\n"),
            (&[], false, ""),
            (
                &own,
                false,
                "Nothing moves: movement out of m1 is paused\n1 of 2 moved\n",
            ),
            (
                &both,
                true,
                "Nothing moves: all movement is paused\nNothing moves: movement out of m1 is paused\n1 of 2 moved\n",
            ),
            (&own, false, ""),
            (&both, true, ""),
        ] {
            let text = shown.text("1 of 2 moved", nothing_moves, is_read, false);
            assert_eq!(text, expected, "{nothing_moves:?} {is_read}");
        }
    }
}
