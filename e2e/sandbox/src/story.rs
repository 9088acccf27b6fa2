//! The story: a fleet comes up, a member is cut off, its workloads come up elsewhere, the member
//! returns.

use std::sync::Arc;
use std::time::Duration;

use super::continuity::{Continuity, floors};
use super::expect;
use super::picture::Picture;
use super::scenario::{MANIFESTS, VICTIM};
use super::screen::Screen;
use muster_test_fleet::harness::fleet::Fleet;
use muster_test_fleet::harness::observer::{Missing, View};

/// How long the fleet may take to come up. It starts a dozen processes and servers, on whatever
/// machine this is. This and the step below are for the embedded API; slower ones have more
/// patience.
const JOINING: Duration = Duration::from_mins(1);
/// How long they must stay ready before anything is applied.
const SETTLING: Duration = Duration::from_secs(1);
/// How long any later step may take: several times what it takes.
const STEP: Duration = Duration::from_secs(45);
/// How long the end state must last before it is believed.
const QUIET: Duration = Duration::from_secs(4);

/// Why the story did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something that was expected did not come.
    #[error("{0}")]
    Missing(#[from] Missing),
    /// The environment failed.
    #[error("{0:#}")]
    Broken(#[from] anyhow::Error),
    /// A workload was without a copy.
    #[error("a workload was without a copy that it would otherwise have had: {0}")]
    Gap(String),
}

/// A story in progress: each chapter may be played once, in order.
pub struct Story {
    fleet: Arc<Fleet>,
    screen: Screen,
    /// The fleet before anything failed.
    before: Picture,
    continuity: Continuity,
}

impl Story {
    /// Begins the story: the fleet joins, and the workloads of the manifests run.
    pub async fn begin(fleet: Arc<Fleet>, screen: Screen) -> Result<Self, Failure> {
        Self::begin_with(fleet, screen, MANIFESTS.map(|(_, manifest)| manifest)).await
    }

    /// Begins the story with manifests of one's own; they bring the same workloads.
    pub async fn begin_with(
        fleet: Arc<Fleet>,
        screen: Screen,
        manifests: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Failure> {
        let members = fleet.members.len();
        screen.headline(
            &format!("{members} members join the fleet"),
            "each agent registers its cluster, renews its lease and reports health and capacity",
        );
        let joined = |view: &View| expect::joined(&Picture::of(view));
        fleet
            .observer
            .await_that("all members are ready", JOINING * fleet.patience, joined)
            .await?;
        // What the API shows us now the control plane may see a moment later: a workload that is
        // placed while a member still seems unready is not placed there, and stays where it is.
        fleet
            .observer
            .holds_for("all members stay ready", SETTLING, joined)
            .await?;
        screen.reach("all members are ready");

        screen.headline(
            "workloads are applied to the fleet API",
            "web is divided 1:2 between member1 and member2; shop goes to two of four clusters, and its settings go along",
        );
        for manifest in manifests {
            fleet.apply(manifest.as_ref()).await?;
        }
        screen.reach("manifests applied");
        let running = |view: &View| expect::running(&Picture::of(view));
        fleet
            .observer
            .await_that(
                "the workloads run where they were placed",
                STEP * fleet.patience,
                running,
            )
            .await?;
        screen.reach("everything runs as placed: web 1 + 2, shop and its settings in two clusters");
        let before = Picture::of(&fleet.observer.view);
        let continuity = Continuity::watch(&fleet.observer);
        Ok(Self {
            fleet,
            screen,
            before,
            continuity,
        })
    }

    /// Cuts the victim off from the fleet API.
    pub fn cut(&self) -> Result<(), Failure> {
        self.screen.headline(
            &format!("{VICTIM} is cut off"),
            "its network to the fleet API is silent: no lease, no status; what runs there goes on unseen",
        );
        self.fleet.cut(VICTIM)?;
        self.screen.mark_cut(VICTIM, true);
        self.screen.reach(&format!("{VICTIM} is cut off"));
        Ok(())
    }

    /// Waits until the control plane notices that the victim is silent.
    pub async fn until_unknown(&self) -> Result<(), Failure> {
        self.until("the control plane notices the silence", expect::unknown)
            .await?;
        self.screen
            .reach(&format!("silence noticed: {VICTIM} has Ready=Unknown"));
        Ok(())
    }

    /// Waits until the cluster is declared failed.
    pub async fn until_tainted(&self) -> Result<(), Failure> {
        self.screen.headline(
            &format!("{VICTIM} is silent"),
            "a ClusterTaintPolicy declares failed what has not been ready for a while",
        );
        self.until(
            "the taint policy taints the failed cluster",
            expect::tainted,
        )
        .await?;
        self.screen.reach("declared failed: tainted NoExecute");
        Ok(())
    }

    /// Waits until the workloads are evicted and placed anew.
    pub async fn until_moved(&self) -> Result<(), Failure> {
        self.screen.headline(
            &format!("{VICTIM} is declared failed, and its workloads have to leave"),
            "they are evicted when their toleration runs out, and placed anew in the same write",
        );
        self.until("the workloads are placed anew", |picture| {
            expect::moved(picture, &self.before)
        })
        .await?;
        self.screen.reach("evicted, and placed anew");
        Ok(())
    }

    /// Waits until the new copies work.
    pub async fn until_healthy_elsewhere(&self) -> Result<(), Failure> {
        self.until("the new copies are healthy", |picture| {
            expect::healthy_elsewhere(picture, &self.before)
        })
        .await?;
        self.screen.reach(
            "healthy elsewhere: member2 runs all of web, shop is in two healthy clusters again",
        );
        Ok(())
    }

    /// Restores the network of the victim.
    pub fn heal(&self) -> Result<(), Failure> {
        self.screen.headline(
            &format!("the network of {VICTIM} is back"),
            "its agent learns from freshly listed Works what it is no longer to run",
        );
        self.fleet.heal(VICTIM)?;
        self.screen.mark_cut(VICTIM, false);
        self.screen.reach("healed");
        Ok(())
    }

    /// Waits until what the returned victim still ran is removed.
    pub async fn until_old_copies_removed(&self) -> Result<(), Failure> {
        self.until(
            "the old copies are removed from the returned member",
            expect::old_copies_removed,
        )
        .await?;
        self.screen.reach("old copies removed");
        Ok(())
    }

    /// Waits until the victim is trusted again.
    pub async fn until_back(&self) -> Result<(), Failure> {
        self.until(
            "the returned member is ready and no longer tainted",
            expect::back,
        )
        .await?;
        self.screen
            .reach(&format!("{VICTIM} is ready and trusted again"));
        Ok(())
    }

    /// Checks that nothing more happens: the end state lasts, and there never was a gap.
    pub async fn rest(&self) -> Result<(), Failure> {
        self.screen.headline(
            "nothing moves back by itself",
            "the end state must last for a few seconds",
        );
        self.fleet
            .observer
            .holds_for("the end state lasts", QUIET, |view| {
                expect::ended(&Picture::of(view), &self.before)
            })
            .await?;
        self.screen.reach("the end state lasts");
        self.no_gaps()
    }

    /// Checks that for a while nothing moves: everything is placed and runs as before anything
    /// failed.
    pub async fn nothing_moves_for(&self, time: Duration) -> Result<(), Failure> {
        let as_before = |view: &View| expect::unmoved(&Picture::of(view), &self.before);
        self.fleet
            .observer
            .holds_for("nothing moves", time, as_before)
            .await?;
        self.no_gaps()
    }

    /// Checks that every workload always had its copies.
    pub fn no_gaps(&self) -> Result<(), Failure> {
        match self.continuity.gaps().first() {
            Some(gap) => Err(Failure::Gap(format!("{} at {}", gap.what, gap.at))),
            None => Ok(()),
        }
    }

    /// Returns the end states that were expected, each with whether it was observed.
    pub fn report(&self) -> Vec<(String, Result<(), String>)> {
        let picture = Picture::of(&self.fleet.observer.view);
        let mut report = vec![
            ("the workloads began as the weights and the spread constraint say".to_owned(), expect::running(&self.before)),
            ("web: member2 has all 3 replicas; shop kept its healthy cluster and gained an allowed one, and its settings went along".to_owned(), expect::moved(&picture, &self.before)),
            ("every copy is healthy".to_owned(), expect::healthy_elsewhere(&picture, &self.before)),
            (format!("{VICTIM} is back and runs no old copies"), expect::old_copies_removed(&picture).and_then(|()| expect::back(&picture))),
        ];
        let gaps = self.continuity.gaps();
        let least: Vec<String> = floors(&picture)
            .iter()
            .map(|floor| format!("{} {} of {}", floor.least, floor.of, floor.name))
            .collect();
        report.push((
            format!("at no moment fewer than {}", least.join(", ")),
            gaps.first()
                .map_or(Ok(()), |gap| Err(format!("{} at {}", gap.what, gap.at))),
        ));
        report
    }

    /// Waits for a state of the fleet, for as long as any step may take.
    pub async fn until(
        &self,
        what: &str,
        mut condition: impl FnMut(&Picture) -> expect::Verdict,
    ) -> Result<(), Failure> {
        Ok(self
            .fleet
            .observer
            .await_that(what, STEP * self.fleet.patience, |view| {
                condition(&Picture::of(view))
            })
            .await?)
    }

    /// Returns the fleet.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Returns the picture of the fleet before anything failed.
    pub fn before(&self) -> &Picture {
        &self.before
    }
}
