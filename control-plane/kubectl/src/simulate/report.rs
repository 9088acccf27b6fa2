//! The forecast, for people and for programs.

use std::collections::BTreeSet;
use std::fmt;

use jiff::SignedDuration;
use muster_shared::api::binding::TargetCluster;
use muster_shared::taints;
use serde_json::{Value, json};

use crate::forecast::{self, Disaster, Forecast, Left, Move, Room};
use crate::table::{Table, Workload, amount, count, passed, per_second};

/// Lines of a list that a terminal gets.
pub const LISTED: usize = 200;
/// Column of the priorities of workloads.
const PRIORITY: &str = "PRIORITY";

/// A forecast of a disaster.
pub struct Report<'a> {
    /// Clusters that are lost or drained.
    pub disaster: &'a Disaster,
    /// Result of the forecast.
    pub forecast: &'a Forecast,
    /// Whether failover is off in the running control plane, which the forecast takes for on.
    pub is_off: bool,
    /// Reason why no taint moves anything in the running control plane, if none does.
    pub halted: Option<&'static str>,
    /// Sentence that nobody leads, if that is known: nothing of it happens before somebody does.
    pub nobody_leads: Option<&'a str>,
    /// Pauses that hold and concern it, in words: nothing of it happens before they end.
    pub paused: &'a [String],
    /// A sentence if it is not known whether movement is paused.
    pub pause_unread: Option<&'a str>,
    /// Lines of a list before the rest is only counted.
    pub most: usize,
}

impl Report<'_> {
    /// Returns whether something would have to leave and could not.
    pub fn strands(&self) -> bool {
        !self.forecast.stranded.is_empty() || !self.forecast.held.is_empty()
    }

    /// Returns the forecast as JSON.
    pub fn json(&self) -> Value {
        let Forecast {
            coming,
            pace,
            moves,
            stranded,
            held,
            stays,
            partings,
            room,
        } = self.forecast;
        json!({
            "lost": self.disaster.lost,
            "drained": self.disaster.drained,
            "failoverIsOff": self.is_off,
            "halted": self.halted,
            "nobodyLeads": self.nobody_leads,
            "paused": self.paused,
            "pauseUnread": self.pause_unread,
            "premises": self.premises(),
            "facts": self.facts(),
            "taints": coming.iter().map(|(cluster, coming)| {
                let coming = coming.iter().map(|it| json!({
                    "taint": taints::describe(&it.taint),
                    "afterSeconds": it.after.as_secs(),
                }));
                (cluster.clone(), coming.collect())
            }).collect::<serde_json::Map<String, Value>>(),
            "pace": {
                "clusters": pace.counted,
                "failed": pace.failed,
                "evictionsPerSecond": pace.per_second,
            },
            "moves": moves,
            "stranded": stranded,
            "held": held,
            "stays": stays,
            "parted": partings.parted,
            "partedUnknown": partings.parted_unknown,
            "room": room.iter().map(|room| {
                let free = room.free.iter().map(|(resource, (before, after))| {
                    let amounts = json!({"before": before.to_string(), "after": after.to_string()});
                    ((*resource).to_owned(), amounts)
                });
                (room.cluster.clone(), free.collect())
            }).collect::<serde_json::Map<String, Value>>(),
        })
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disaster { lost, drained } = self.disaster;
        for (what, names) in [("lost", lost), ("drained", drained)] {
            if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                writeln!(f, "If {}: {}", what, names.join(", "))?;
            }
        }
        for it in self.premises() {
            writeln!(f, "{it}")?;
        }
        for it in self.coming() {
            writeln!(f, "  {it}")?;
        }
        writeln!(f, "{}", self.pace())?;
        self.moves(f)?;
        let (forecast, hidden) = (self.forecast, self.hidden());
        for (title, left) in [
            ("Stranded: has to leave and cannot", &forecast.stranded),
            ("Held: has to leave, and nothing leaves", &forecast.held),
            ("Stays: nothing moves it", &forecast.stays),
        ] {
            list(f, title, left, hidden, self.most)?;
        }
        let warning = forecast.partings.warning(self.most);
        if !warning.is_empty() {
            write!(f, "\n{warning}")?;
        }
        self.room(f)
    }
}

impl Report<'_> {
    /// Returns what the forecast takes for granted and is not so now.
    fn premises(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.is_off {
            let rest = match self.halted {
                Some(_) => "",
                None => ", and only drains move anything",
            };
            all.push(format!(
                "Failover is OFF in the running control plane{rest}. With it on:"
            ));
        }
        all.extend(self.halted.map(|it| format!("For now {it}. With it:")));
        let nobody = self.nobody_leads;
        all.extend(nobody.map(|it| format!("For now {it}. With a leader:")));
        let unread = self.pause_unread;
        all.extend(unread.map(|it| format!("Without a pause ({it}):")));
        let paused = self.paused.iter();
        all.extend(paused.map(|it| format!("For now {it}. Without that pause:")));
        all
    }

    /// Returns when which taints come.
    fn coming(&self) -> Vec<String> {
        let all = self.forecast.coming.iter();
        let each = all.flat_map(|(cluster, all)| all.iter().map(move |it| (cluster, it)));
        let each = each.map(|(cluster, it)| {
            let taint = taints::describe(&it.taint);
            format!("after {}: {cluster} gets taint {taint}", time(it.after))
        });
        each.collect()
    }

    /// Returns what a page says below the numbers: the pace, warnings, and the taints.
    fn facts(&self) -> Vec<String> {
        let warning = self.forecast.partings.warning(self.most);
        let warning = warning.lines().map(|it| it.trim().to_owned());
        let facts = [self.pace()].into_iter().chain(warning);
        facts.chain(self.coming()).collect()
    }

    /// Returns the columns that say nothing: that of priorities where no workload has one.
    fn hidden(&self) -> &'static [&'static str] {
        let forecast = self.forecast;
        let lists = [&forecast.stranded, &forecast.held, &forecast.stays];
        let left = lists.into_iter().flatten().map(|it| it.priority);
        let mut priorities = forecast.moves.iter().map(|it| it.priority).chain(left);
        if priorities.any(|it| it != 0) {
            &[]
        } else {
            &[PRIORITY]
        }
    }

    fn pace(&self) -> String {
        let pace = self.forecast.pace;
        let (failed, total) = (pace.failed, pace.counted);
        let moves = &self.forecast.moves;
        let last = match moves.iter().map(|it| it.after).max() {
            Some(last) => {
                let evictions = count(moves.len(), "eviction");
                format!(" {evictions}, the last after {}.", time(last))
            }
            None => String::new(),
        };
        match pace.halted() {
            Some(why) => format!("Pace: {why}."),
            None => format!(
                "Pace: {}, with {failed} of {total} clusters failed.{last}",
                per_second(pace.per_second, "eviction")
            ),
        }
    }

    fn moves(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moves = &self.forecast.moves;
        if moves.is_empty() {
            return writeln!(f, "\nMoves: none");
        }
        writeln!(f, "\nMoves: {}", moves.len())?;
        let mut table = Table::new(["WORKLOAD", PRIORITY, "FROM", "TO", "AFTER", "OLD COPY"]);
        for it in moves.iter().take(self.most) {
            let Move {
                workload,
                priority,
                from,
                to,
                after,
                purge_mode,
                ..
            } = it;
            table.row([
                workload.to_string(),
                priority.to_string(),
                from.clone(),
                if to.is_empty() {
                    "(others have it already)".to_owned()
                } else {
                    places(to)
                },
                time(*after),
                purge_mode.to_string(),
            ]);
        }
        f.write_str(&table.without(self.hidden()))?;
        more(f, moves.len(), self.most)?;
        for it in moves
            .iter()
            .filter(|it| !it.data.is_empty())
            .take(self.most)
        {
            writeln!(
                f,
                "{} waits for its data, once its old copy is gone:",
                it.workload
            )?;
            for step in &it.data {
                writeln!(f, "  {step}")?;
            }
        }
        writeln!(
            f,
            "The targets are those that the scheduler would choose by what clusters report now. Where several have about the same room, a later report may tip the choice."
        )
    }

    fn room(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = |room: &&Room| room.free.values().any(|(before, after)| before != after);
        let used: Vec<&Room> = self.forecast.room.iter().filter(used).collect();
        if used.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nRoom that is left")?;
        let mut table = Table::new(["CLUSTER", "CPU", "MEMORY", "PODS"]);
        for room in used.iter().take(self.most) {
            let free = |resource: &str| {
                let amounts = room.free.get(resource);
                amounts.map_or_else(String::new, |(before, after)| {
                    let [after, before] = [after, before].map(|it| amount(resource, *it));
                    format!("{after} of {before}")
                })
            };
            let cells = forecast::SHOWN.map(free);
            let [cpu, memory, pods] = cells;
            table.row([room.cluster.clone(), cpu, memory, pods]);
        }
        write!(f, "{table}")?;
        more(f, used.len(), self.most)
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    left: &[Left],
    hidden: &[&str],
    most: usize,
) -> fmt::Result {
    if left.is_empty() {
        return Ok(());
    }
    let workloads: BTreeSet<&Workload> = left.iter().map(|it| &it.workload).collect();
    match workloads.len() {
        all if all == left.len() => writeln!(f, "\n{title}: {all}")?,
        fewer => writeln!(f, "\n{title}: {fewer}, with {} copies", left.len())?,
    }
    let mut table = Table::new(["WORKLOAD", PRIORITY, "CLUSTER", "WHY"]);
    for it in left.iter().take(most) {
        table.row([
            it.workload.to_string(),
            it.priority.to_string(),
            it.cluster.clone(),
            it.reason.clone(),
        ]);
    }
    f.write_str(&table.without(hidden))?;
    more(f, left.len(), most)
}

fn more(f: &mut fmt::Formatter<'_>, all: usize, most: usize) -> fmt::Result {
    match all.saturating_sub(most) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more: -o wide has all"),
    }
}

fn places(targets: &[TargetCluster]) -> String {
    let place = |target: &TargetCluster| match target.replicas {
        0 => target.name.clone(),
        replicas => format!("{} (+{replicas})", target.name),
    };
    targets.iter().map(place).collect::<Vec<_>>().join(", ")
}

fn time(time: SignedDuration) -> String {
    passed(u64::try_from(time.as_secs()).unwrap_or_default())
}
