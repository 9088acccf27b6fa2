//! `kubectl muster taint`: as `kubectl taint`, for clusters.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use muster_control_plane::fleet::attribution;
use muster_control_plane::settings::FAILOVER;
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Client, Taint, Time};
use muster_shared::names::taint::{DUPLICATE, NOT_READY, UNREACHABLE};
use muster_shared::selectors::{is_label_key, is_label_value};
use muster_shared::taints::{
    NO_EXECUTE, NO_SCHEDULE, PREFER_NO_EXECUTE, PREFER_NO_SCHEDULE, describe, evicts, find,
    is_of_command,
};
use serde_json::json;

use super::order::{change, half, held, hold, let_go};
use super::server_time;
use crate::author::Why;
use crate::chosen::{Clusters, selector, word};
use crate::request::find_cluster;
use crate::running::{Running, Source};
use crate::standstill::{MovementState, Standstill};

/// Effects that a taint of a cluster may have.
const EFFECTS: [&str; 4] = [
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    PREFER_NO_EXECUTE,
    NO_EXECUTE,
];

#[derive(Debug, Args)]
#[command(override_usage = "kubectl muster taint [OPTIONS] <CLUSTER>... <TAINT>...")]
pub(crate) struct Options {
    /// Names of Clusters, as `a b`, `a,b`, `cluster/a` or `clusters a b`, and then taints:
    /// `key=value:effect` or `key:effect` is put on, `key:effect-` or `key-` is taken off.
    /// Effects: NoSchedule keeps new workloads out, PreferNoSchedule sends them elsewhere if they
    /// can go elsewhere, PreferNoExecute moves those whose policy has
    /// failover.cluster as well, NoExecute all that do not tolerate it. Both move nothing while the
    /// feature gate Failover is off.
    #[arg(required = true, value_name = "WORD", value_delimiter = ',')]
    words: Vec<Word>,
    /// Clusters with these labels, such as `region=eu,tier!=test`, in place of names.
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = selector)]
    selector: Option<String>,
    /// Change the value of a taint that is there.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    why: Why,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// One argument: what has `:` or `=` in it or ends with `-` is a taint, as for kubectl.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    Cluster(String),
    Taint(Edit),
}

impl FromStr for Word {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains([':', '=']) || text.ends_with('-') {
            return text.parse().map(Self::Taint);
        }
        word(text).map(Self::Cluster)
    }
}

impl Options {
    /// Returns the clusters and the taints.
    ///
    /// # Errors
    /// When one of both is missing.
    fn read(&self) -> anyhow::Result<(Clusters, Vec<Edit>)> {
        let (mut clusters, mut edits) = (Vec::new(), Vec::new());
        for word in &self.words {
            match word {
                Word::Cluster(word) => clusters.push(word.clone()),
                Word::Taint(edit) => edits.push(edit.clone()),
            }
        }
        if edits.is_empty() {
            let last = clusters.last().map_or("key", String::as_str);
            bail!(
                "no taint is given: write for example {last}:{NO_SCHEDULE}, or {last}- to take it off"
            );
        }
        Ok((Clusters::of(clusters, self.selector.clone()), edits))
    }
}

/// A change of taints.
#[derive(Clone, Debug, PartialEq)]
enum Edit {
    Add(Taint),
    /// Taints with the key, of one effect or of all.
    Remove {
        key: String,
        effect: Option<String>,
    },
}

impl Edit {
    /// Returns whether workloads may leave a cluster because of the edit, or another one that
    /// counts as failed until then.
    fn moves(&self) -> bool {
        match self {
            Self::Add(taint) => evicts(&taint.effect),
            Self::Remove { effect, .. } => effect.as_deref().is_none_or(evicts),
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(taint) => write!(f, "tainted {}", describe(taint)),
            Self::Remove { key, effect } => {
                let effect = effect.as_ref().map(|it| format!(":{it}"));
                write!(f, "untainted {key}{}", effect.unwrap_or_default())
            }
        }
    }
}

impl FromStr for Edit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, removes) = match text.strip_suffix('-') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (name, effect) = match text.rsplit_once(':') {
            Some((name, effect)) => (name, Some(effect)),
            None => (text, None),
        };
        let (key, value) = match name.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (name, None),
        };
        if !is_label_key(key) {
            return Err(format!(
                "{key:?} is not a taint key, such as example.com/maintenance"
            ));
        }
        if let Some(value) = value.filter(|value| !is_label_value(value)) {
            return Err(format!("{value:?} cannot be the value of a taint"));
        }
        if let Some(effect) = effect.filter(|effect| !EFFECTS.contains(effect)) {
            return Err(format!(
                "{effect:?} is not an effect: use {}",
                EFFECTS.join(", ")
            ));
        }
        let taint = Taint {
            key: key.to_owned(),
            value: value.filter(|it| !it.is_empty()).map(str::to_owned),
            effect: effect.unwrap_or_default().to_owned(),
            time_added: None,
        };
        if is_of_command(&taint) {
            return Err(format!(
                "{key} belongs to commands: use kubectl muster drain, undrain, cordon or uncordon"
            ));
        }
        let is_of_state = [NOT_READY, UNREACHABLE, DUPLICATE].contains(&key);
        if is_of_state && effect.is_none_or(|it| it == NO_SCHEDULE) {
            let as_well = match effect {
                None => format!("; write {text}:{NO_EXECUTE}- to take off one that evicts"),
                Some(_) => String::new(),
            };
            return Err(format!(
                "{key}:{NO_SCHEDULE} belongs to the control plane, which puts it on and takes it off by the state of the cluster: \
                 use a key of your own, or kubectl muster cordon{as_well}"
            ));
        }
        if removes {
            let (key, effect) = (taint.key, effect.map(str::to_owned));
            return Ok(Self::Remove { key, effect });
        }
        if effect.is_none() {
            return Err(format!(
                "an effect is missing: write {text}:{NO_SCHEDULE}, or {text}- to take it off"
            ));
        }
        Ok(Self::Add(taint))
    }
}

/// Returns the taints after the edits, and what was done, one line each.
fn apply(
    present: &[Taint],
    edits: &[Edit],
    overwrite: bool,
    now: Timestamp,
) -> anyhow::Result<(Vec<Taint>, Vec<String>)> {
    let (mut taints, mut reported) = (present.to_vec(), Vec::new());
    for edit in edits {
        match edit {
            Edit::Add(taint) => match find(&taints, &taint.key, &taint.effect).cloned() {
                Some(known)
                    if known.value.as_deref().unwrap_or_default()
                        == taint.value.as_deref().unwrap_or_default() =>
                {
                    reported.push(format!("has {} already", describe(taint)));
                }
                Some(known) => {
                    ensure!(
                        overwrite,
                        "it has {}: use --overwrite to change the value",
                        describe(&known)
                    );
                    let same = |it: &&mut Taint| it.key == taint.key && it.effect == taint.effect;
                    // It is the same taint since the same time: no toleration starts anew.
                    for it in taints.iter_mut().filter(same) {
                        it.value.clone_from(&taint.value);
                    }
                    reported.push(edit.to_string());
                }
                None => {
                    taints.push(Taint {
                        time_added: Some(Time(now)),
                        ..taint.clone()
                    });
                    reported.push(edit.to_string());
                }
            },
            Edit::Remove { key, effect } => {
                let goes = |it: &Taint| {
                    it.key == *key && effect.as_ref().is_none_or(|effect| it.effect == *effect)
                };
                let gone: Vec<String> = taints.iter().filter(|it| goes(it)).map(describe).collect();
                if gone.is_empty() {
                    let effect = effect.as_ref().map_or(String::new(), |it| format!(":{it}"));
                    bail!("it has no taint {key}{effect}");
                }
                taints.retain(|it| !goes(it));
                reported.push(format!("untainted {}", gone.join(" and ")));
            }
        }
    }
    Ok((taints, reported))
}

/// Returns the edits that change something, in words. A taint that is there already was put on by
/// an earlier order, or by somebody else.
fn changed_by(
    present: &[Taint],
    edits: &[Edit],
    overwrite: bool,
    now: Timestamp,
) -> anyhow::Result<Vec<String>> {
    let (mut taints, mut changes) = (present.to_vec(), Vec::new());
    for edit in edits {
        let (after, _) = apply(&taints, std::slice::from_ref(edit), overwrite, now)?;
        if after != taints {
            changes.push(edit.to_string());
        }
        taints = after;
    }
    Ok(changes)
}

pub(super) async fn carry_out(client: &Client, options: &Options) -> anyhow::Result<String> {
    let (clusters, edits) = options.read()?;
    let names = clusters.ordered(client).await?;
    let names = names.context("no cluster is named: write its name before the taint")?;
    // All or none, as far as that can be known before.
    let (mut changes, mut known) = (Vec::new(), Vec::new());
    for name in &names {
        let cluster = find_cluster(client, name).await?;
        let found = changed_by(&cluster.spec.taints, &edits, options.overwrite, calendar())
            .with_context(|| format!("Cluster {name}"))?;
        changes.push(found.join(", "));
        known.push(cluster);
    }
    // One time for all: a taint that is written again after a conflict has the time of the order.
    let now = server_time::now(client).await;
    let author = options.why.author(client).await;
    let order = author.order(attribution::order::TAINT, now);
    // Nothing leaves one of several clusters before all are written: it could go to one whose taint
    // comes next, or leave the last because the first counts as failed no more. The pause ends by
    // itself if the command ends in between.
    let held = held(&names, now);
    let is_held = names.len() > 1 && !options.dry_run && edits.iter().any(Edit::moves);
    if is_held {
        for name in &names {
            change(client, name, None, |cluster| {
                let present = &cluster.spec.taints;
                let (taints, _) = apply(present, &edits, options.overwrite, now)
                    .with_context(|| format!("Cluster {name}"))?;
                let is_changed = taints != *present;
                Ok(is_changed.then(|| hold(cluster, &held, now)).flatten())
            })
            .await?;
        }
    }
    let mut reported = String::new();
    let dry = if options.dry_run { " (dry run)" } else { "" };
    for (name, changes) in names.iter().zip(changes) {
        let order = attribution::Attribution {
            change: changes,
            ..order.clone()
        };
        let lines = std::cell::RefCell::new(Vec::new());
        change(client, name, Some(&order), |cluster| {
            let present = &cluster.spec.taints;
            let (taints, reported) = apply(present, &edits, options.overwrite, now)
                .with_context(|| format!("Cluster {name}"))?;
            *lines.borrow_mut() = reported;
            let is_changed = taints != *present && !options.dry_run;
            Ok(is_changed.then(|| json!({ "spec": { "taints": taints } })))
        })
        .await
        .with_context(|| half(&reported))?;
        for line in lines.into_inner() {
            let _ = writeln!(reported, "Cluster {name} {line}{dry}");
        }
    }
    if is_held {
        for name in &names {
            let ended = change(client, name, None, |cluster| Ok(let_go(cluster, &held))).await;
            ended.context(
                "the order is complete; what is to leave waits for a minute, until its pause ends",
            )?;
        }
    }
    let running = Running::read(client, &[]).await?;
    let movement = MovementState::read(client).await;
    for why in hindered(&edits, &running, &movement, &known, calendar()) {
        let _ = writeln!(reported, "Warning: {why}");
    }
    Ok(reported)
}

/// Returns why taints that are put on to move workloads move none now, and of all others only that
/// nobody leads.
fn hindered(
    edits: &[Edit],
    running: &Running,
    movement: &MovementState,
    clusters: &[Cluster],
    now: Timestamp,
) -> Vec<String> {
    let evicting = edits.iter().filter_map(|it| match it {
        Edit::Add(taint) if evicts(&taint.effect) => Some(taint.effect.as_str()),
        Edit::Add(_) | Edit::Remove { .. } => None,
    });
    let evicting: Vec<&str> = evicting.collect();
    if evicting.is_empty() {
        return movement.nobody_leads(now).into_iter().collect();
    }
    let settings = &running.settings;
    let is_off = running.source != Source::Defaults && !settings.gate(&FAILOVER);
    let are_all = evicting.iter().all(|effect| *effect == NO_EXECUTE);
    let switched_off = match running.ignores_taints() {
        Some(why) => Some(why),
        None if is_off => Some(
            "the feature gate Failover is off, so that no taint moves anything but that of a drain (kubectl muster drain)",
        ),
        None => Running::ignores_no_execute(settings).filter(|_| are_all),
    };
    let Standstill {
        reasons, unread, ..
    } = movement.of(clusters, now);
    let reasons = switched_off.map(str::to_owned).into_iter().chain(reasons);
    let reasons = reasons.map(|why| format!("nothing moves now: {why}"));
    reasons.chain(unread).collect()
}

#[cfg(test)]
mod tests;
