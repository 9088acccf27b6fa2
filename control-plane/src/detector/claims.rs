//! Writes on each template which policy is in charge of it.
//!
//! The binding says the same and is made first: where a workload runs must not wait for a mark. A crash between the two loses nothing,
//! since the claim is read from the binding until the template carries it.

use std::sync::Arc;

use muster_shared::client::Rank;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;

use super::claim::Claim;
use super::controller::{Detector, Error, SOON};
use super::template::TemplateKey;
use super::templates::Lookup;

/// Starts the workers.
pub fn start(detector: &Arc<Detector>, tasks: &mut Tasks) {
    let fleet = &detector.fleet;
    let workers = fleet.settings.concurrent_resource_template_syncs;
    let work = Arc::clone(detector);
    fleet.work(
        tasks,
        "claims",
        detector.claims.clone(),
        workers,
        move |_, key| {
            let detector = Arc::clone(&work);
            async move { detector.settle(key).await }
        },
    );
}

/// What came of a claim.
enum Outcome {
    /// It is on the template, whose content is now this.
    Written(u64),
    /// It is there already, or not to be made any more.
    Needless,
    /// The template is not as we know it.
    Missed,
}

impl Detector {
    /// Has a claim written on a template. Of several claims on the same template the last one counts.
    pub(super) fn claim_later(&self, key: &TemplateKey, claim: Claim) {
        self.memory().claims.insert(key.clone(), claim);
        self.claims.add(key.clone());
    }

    async fn settle(&self, key: TemplateKey) -> Result<Next, Error> {
        self.fleet.traffic.lull(Rank::Order).await;
        let Some(claim) = self.memory().claims.get(&key).cloned() else {
            return Ok(Next::Done);
        };
        let written = match self.claim(&key, &claim).await? {
            Outcome::Missed => return Ok(Next::After(SOON)),
            Outcome::Written(content) => Some(content),
            Outcome::Needless => None,
        };
        let mut memory = self.memory();
        if memory.claims.get(&key) == Some(&claim) {
            memory.claims.remove(&key);
        }
        if let Some(content) = written {
            // The claim is no change that the binding is to follow; one that came with it is found now.
            memory.built.insert(key.clone(), content);
            self.templates.add(key);
        }
        Ok(Next::Done)
    }

    async fn claim(&self, key: &TemplateKey, claim: &Claim) -> Result<Outcome, Error> {
        let template = match self.fleet.templates.get(key) {
            Lookup::Found(template) => template,
            Lookup::Absent => return Ok(Outcome::Needless),
            Lookup::Unknown => return Ok(Outcome::Missed),
        };
        // A policy that went meanwhile has released what it had.
        let stands = self
            .policy(&claim.policy)
            .is_some_and(|policy| !policy.is_deleting());
        if !stands || template.is_deleting() {
            return Ok(Outcome::Needless);
        }
        let Some(metadata) = claim.patch(template.metadata()) else {
            return Ok(Outcome::Needless);
        };
        let marked = self.mark(key, template.metadata(), metadata).await?;
        Ok(marked.map_or(Outcome::Missed, |marked| Outcome::Written(marked.content())))
    }
}
