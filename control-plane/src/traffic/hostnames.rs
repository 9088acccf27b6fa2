//! What the controller remembers of the templates that ask for a host name. All of it may be lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::decide::State;
use super::request::Request;
use crate::fleet::binding::BindingKey;
use crate::fleet::sets::take;

/// The host names that are asked for, by the binding of the template.
#[derive(Debug, Default)]
pub struct Hostnames(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    asked: HashMap<BindingKey, Asked>,
    /// Bindings by the host name that they ask for.
    asking: HashMap<String, BTreeSet<BindingKey>>,
    /// Bindings by that of the workload that they follow.
    followers: HashMap<BindingKey, BTreeSet<BindingKey>>,
}

#[derive(Debug)]
struct Asked {
    hostname: String,
    follows: Option<BindingKey>,
    /// Whether the name was free, or held by this one.
    is_claimed: bool,
    /// Since when the copy in each cluster is healthy.
    healthy_since: HashMap<String, Instant>,
}

impl Hostnames {
    /// Notes what a template asks for. Returns the others that ask for a host name which it gives
    /// up.
    pub fn note(&self, key: &BindingKey, request: &Request) -> Vec<BindingKey> {
        let follows = request.follows.as_ref().map(BindingKey::for_template);
        let all = &mut *self.0.lock();
        let same = |it: &Asked| it.hostname == request.hostname && it.follows == follows;
        if all.asked.get(key).is_some_and(same) {
            return Vec::new();
        }
        let before = all.remove(key);
        let given_up = before.as_ref().map(|it| it.hostname.clone());
        let asking = all.asking.entry(request.hostname.clone()).or_default();
        asking.insert(key.clone());
        if let Some(workload) = &follows {
            let followers = all.followers.entry(workload.clone()).or_default();
            followers.insert(key.clone());
        }
        let asked = Asked {
            hostname: request.hostname.clone(),
            is_claimed: false,
            healthy_since: before
                .filter(|it| it.follows == follows)
                .map(|it| it.healthy_since)
                .unwrap_or_default(),
            follows,
        };
        all.asked.insert(key.clone(), asked);
        let given_up = given_up.filter(|it| *it != request.hostname);
        given_up.map(|it| all.asking(&it)).unwrap_or_default()
    }

    /// Forgets a template that asks for nothing any more. Returns the others that ask for its host
    /// name.
    pub fn forget(&self, key: &BindingKey) -> Vec<BindingKey> {
        let all = &mut *self.0.lock();
        let given_up = all.remove(key);
        given_up
            .map(|it| all.asking(&it.hostname))
            .unwrap_or_default()
    }

    /// Claims the host name of a template, unless another template has. An object that exists for
    /// the template is claim enough.
    pub fn claim(&self, key: &BindingKey, is_held: bool) -> Result<(), BindingKey> {
        let all = &mut *self.0.lock();
        let Some(asked) = all.asked.get(key) else {
            return Ok(());
        };
        let has = |other: &&BindingKey| {
            *other != key && all.asked.get(*other).is_some_and(|it| it.is_claimed)
        };
        let asking = all.asking.get(&asked.hostname).into_iter().flatten();
        let other = asking.into_iter().find(has).cloned();
        if let Some(other) = other.filter(|_| !is_held) {
            return Err(other);
        }
        if let Some(asked) = all.asked.get_mut(key) {
            asked.is_claimed = true;
        }
        Ok(())
    }

    /// Notes the states of the copies of a template, and returns for how long each has been
    /// healthy.
    pub fn healthy_for(
        &self,
        key: &BindingKey,
        states: &BTreeMap<String, State>,
    ) -> HashMap<String, Duration> {
        let now = Instant::now();
        let all = &mut *self.0.lock();
        let Some(asked) = all.asked.get_mut(key) else {
            return HashMap::new();
        };
        let is_healthy = |it: &String| !matches!(states.get(it), None | Some(State::Lost(_)));
        asked.healthy_since.retain(|cluster, _| is_healthy(cluster));
        for cluster in states.keys().filter(|it| is_healthy(it)) {
            asked.healthy_since.entry(cluster.clone()).or_insert(now);
        }
        let ages = asked.healthy_since.iter();
        ages.map(|(cluster, since)| (cluster.clone(), now.duration_since(*since)))
            .collect()
    }

    /// Returns all templates that ask for a host name.
    pub fn all(&self) -> Vec<BindingKey> {
        self.0.lock().asked.keys().cloned().collect()
    }

    /// Returns the templates that follow a workload.
    pub fn followers(&self, workload: &BindingKey) -> Vec<BindingKey> {
        let all = self.0.lock();
        all.followers
            .get(workload)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Returns the templates that ask for one of these host names.
    pub fn asking(&self, hostnames: &BTreeSet<String>) -> Vec<BindingKey> {
        let all = self.0.lock();
        hostnames.iter().flat_map(|it| all.asking(it)).collect()
    }
}

impl All {
    fn asking(&self, hostname: &str) -> Vec<BindingKey> {
        let asking = self.asking.get(hostname).into_iter().flatten();
        asking.cloned().collect()
    }

    fn remove(&mut self, key: &BindingKey) -> Option<Asked> {
        let asked = self.asked.remove(key)?;
        take(&mut self.asking, &asked.hostname, key);
        if let Some(workload) = &asked.follows {
            take(&mut self.followers, workload, key);
        }
        Some(asked)
    }
}
