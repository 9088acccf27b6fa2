//! Decides when all objects of a kind have to be interpreted again.

use std::time::Duration;

use muster_interpreter::webhook::VALID;
use muster_interpreter::{Interpreters, Layers};
use muster_shared::k8s::GroupVersionKind;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};

/// Time in which reasons for a list are gathered before it shows the objects.
const GATHER: Duration = Duration::from_secs(1);
/// Time between two lists of a kind for Works that can be read again: one that changes all the time
/// must not have its kind listed all the time.
const BETWEEN: Duration = Duration::from_secs(15);

/// The interpreters of one kind, and the time at which one that failed is asked again. Objects are
/// not kept in memory, so that a list has to show them again. Where a webhook answers about the
/// kind, it is asked again when its answers have lost their validity.
pub(super) struct Relist {
    changes: watch::Receiver<Layers>,
    layers: Layers,
    api_version: String,
    kind: String,
    /// Kinds of Works that can be read again.
    readable: broadcast::Receiver<GroupVersionKind>,
    at: Option<Instant>,
    begun: Instant,
}

impl Relist {
    /// Begins with the interpreters that count now.
    pub(super) fn new(
        interpreters: &Interpreters,
        kind: &GroupVersionKind,
        readable: broadcast::Receiver<GroupVersionKind>,
    ) -> Self {
        let mut changes = interpreters.subscribe();
        let layers = changes.borrow_and_update().clone();
        Self {
            changes,
            layers,
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            readable,
            at: None,
            begun: Instant::now(),
        }
    }

    /// Notes that another interpretation of an object may find more after this time.
    pub(super) fn after(&mut self, again: Option<Duration>) {
        let again = again.map(|pause| Instant::now() + pause);
        self.at = self.at.into_iter().chain(again).min();
    }

    /// Notes that another list shows more now. It waits for others to ask the same, and for so long
    /// since the last list began.
    pub(super) fn soon(&mut self, between: Duration) {
        let pause = between.saturating_sub(self.begun.elapsed()).max(GATHER);
        self.after(Some(pause));
    }

    /// Waits until a list is due. May be dropped and called again.
    pub(super) async fn due(&mut self) {
        loop {
            let hooks = self.layers.hooks();
            let is_asked = hooks.concern(&self.api_version, &self.kind);
            let expires = is_asked.then(|| self.begun + VALID);
            let next = self.at.into_iter().chain(expires).min();
            let at = next.unwrap_or_else(Instant::now);
            tokio::select! {
                Ok(()) = self.changes.changed() => {
                    let layers = self.changes.borrow_and_update().clone();
                    let before = std::mem::replace(&mut self.layers, layers);
                    if !before.is_same_for(&self.layers, &self.api_version, &self.kind) {
                        break;
                    }
                }
                kind = self.readable.recv(), if !self.readable.is_closed() => {
                    // After too many to be distinguished it may have been this kind.
                    let is_it = kind.map_or(true, |kind| {
                        (kind.api_version(), &kind.kind) == (self.api_version.clone(), &self.kind)
                    });
                    if is_it {
                        self.soon(BETWEEN);
                    }
                }
                () = sleep_until(at), if next.is_some() => break,
                else => std::future::pending().await,
            }
        }
        (self.at, self.begun) = (None, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use muster_interpreter::Operation;
    use muster_interpreter::lua::{Customization, Rules};

    use super::*;
    use crate::testing;

    fn rules(kind: &str, script: &str) -> Rules {
        let scripts = [(Operation::InterpretHealth, script)];
        Rules::new([&Customization::new(
            "it",
            ("example.com/v1", kind),
            &scripts,
        )])
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_about_which_a_webhook_is_asked_is_listed_again_when_answers_are_old() {
        let interpreters = Interpreters::of(&[]);
        testing::ask_webhook(&interpreters, "Widget");
        for (kind, is_listed) in [("Widget", true), ("Gadget", false)] {
            let kind = GroupVersionKind::gvk("example.com", "v1", kind);
            let (_readable, receiver) = broadcast::channel(1);
            let mut relist = Relist::new(&interpreters, &kind, receiver);
            for _ in 0..2 {
                let due = tokio::time::timeout(VALID + Duration::from_secs(1), relist.due());
                assert_eq!(due.await.is_ok(), is_listed, "{kind:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_listed_again_when_its_scripts_change_or_one_is_to_be_run_again() {
        let interpreters = Interpreters::of(&[]);
        let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
        let (readable, receiver) = broadcast::channel(1);
        let mut relist = Relist::new(&interpreters, &kind, receiver);
        assert!(relist.due().now_or_never().is_none());
        interpreters.set(rules("Gadget", "a"));
        assert!(relist.due().now_or_never().is_none(), "another kind");
        interpreters.set(rules("Widget", "a"));
        assert!(relist.due().now_or_never().is_some());
        assert!(relist.due().now_or_never().is_none(), "once");

        relist.after(None);
        assert!(relist.due().now_or_never().is_none());
        for pause in [20, 10, 30] {
            relist.after(Some(Duration::from_secs(pause)));
        }
        let begun = Instant::now();
        relist.due().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        assert!(relist.due().now_or_never().is_none(), "once for all");

        let other = GroupVersionKind::gvk("example.com", "v1", "Gadget");
        for (kinds, is_listed) in [
            (vec![&other], false),
            (vec![&kind], true),
            // More than are distinguished.
            (vec![&kind, &other, &other], true),
        ] {
            for kind in kinds {
                readable.send(kind.clone()).unwrap();
            }
            let due = tokio::time::timeout(BETWEEN + GATHER, relist.due());
            assert_eq!(due.await.is_ok(), is_listed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn works_that_can_be_read_again_all_the_time_have_their_kind_listed_seldom() {
        let interpreters = Interpreters::of(&[]);
        let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
        let (readable, receiver) = broadcast::channel(1);
        let mut relist = Relist::new(&interpreters, &kind, receiver);
        let begun = Instant::now();
        let mut lists = 0;
        while begun.elapsed() < 10 * BETWEEN {
            readable.send(kind.clone()).unwrap();
            let due = tokio::time::timeout(Duration::from_secs(1), relist.due());
            lists += u32::from(due.await.is_ok());
        }
        assert!((8..=10).contains(&lists), "{lists}");
    }
}
