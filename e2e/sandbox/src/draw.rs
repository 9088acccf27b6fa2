//! The fleet on a terminal: a table of clusters and workloads under a headline. Pure:
//! values in, lines out.

use std::collections::BTreeSet;
use std::time::Duration;

use super::picture::{ClusterView, Copy, Picture, Workload};
use super::scenario::{SETTINGS, SHOP, WEB};

/// Colours of a terminal, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    /// Whether colours are used.
    pub colours: bool,
}

/// What a piece of text means, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// On its way.
    Busy,
    /// Wrong.
    Bad,
    /// In the background.
    Quiet,
    /// Important.
    Strong,
}

impl Palette {
    /// Returns the text in the colour of its meaning.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Busy => "33",
            Tone::Bad => "31",
            Tone::Quiet => "2",
            Tone::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Everything that is on the screen.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Time since the start.
    pub elapsed: Duration,
    /// What is happening.
    pub headline: &'a str,
    /// Why.
    pub because: &'a str,
    /// The fleet.
    pub picture: &'a Picture,
    /// The clusters that are cut off now.
    pub cut: &'a BTreeSet<String>,
    /// What happened last, oldest first.
    pub events: &'a [String],
}

/// Columns of the table with their widths.
const COLUMNS: [(&str, usize); 6] = [
    ("CLUSTER", 10),
    ("READY", 9),
    ("TAINTS", 24),
    ("WEB 1:2", 15),
    ("SHOP 2 OF 4", 15),
    ("SETTINGS", 10),
];
/// Lines of events on the screen.
pub const EVENT_LINES: usize = 8;

/// Returns the lines of the screen: at most one less than the terminal has rows, because a table
/// that is taller cannot be drawn over itself. Events go first.
pub fn draw(scene: &Scene<'_>, palette: Palette, rows: usize) -> Vec<String> {
    let height = rows.saturating_sub(1);
    let event_lines = EVENT_LINES.min(height.saturating_sub(6 + scene.picture.clusters.len()));
    let mut lines = Vec::new();
    let seconds = scene.elapsed.as_secs();
    let clock = format!("{:02}:{:02}", seconds / 60, seconds % 60);
    lines.push(format!(
        "  {}  {}",
        palette.paint(Tone::Quiet, &clock),
        palette.paint(Tone::Strong, scene.headline)
    ));
    lines.push(format!(
        "         {}",
        palette.paint(Tone::Quiet, scene.because)
    ));
    lines.push(String::new());
    let heads: Vec<String> = COLUMNS
        .iter()
        .map(|(head, width)| format!("{head:<width$}"))
        .collect();
    lines.push(format!(
        "  {}",
        palette.paint(Tone::Quiet, &heads.join(" "))
    ));
    for (name, cluster) in &scene.picture.clusters {
        lines.push(row(name, cluster, scene, palette));
    }
    lines.push(String::new());
    let first = scene.events.len().saturating_sub(event_lines);
    for line in &scene.events[first..] {
        lines.push(format!("  {}", palette.paint(Tone::Quiet, line)));
    }
    // A screen of constant height does not jump.
    lines.resize(
        6 + scene.picture.clusters.len() + event_lines,
        String::new(),
    );
    lines.truncate(height);
    lines
}

fn row(name: &str, cluster: &ClusterView, scene: &Scene<'_>, palette: Palette) -> String {
    let cut = scene.cut.contains(name);
    let label = if cut {
        format!("{name} ⚡")
    } else {
        name.to_owned()
    };
    let tone = if cut { Tone::Bad } else { Tone::Strong };
    let (ready, ready_tone) = match cluster.ready.as_str() {
        "" => ("…", Tone::Quiet),
        "True" => ("True", Tone::Good),
        other => (other, Tone::Bad),
    };
    let mut cells = vec![
        palette.paint(tone, &fit(&label, COLUMNS[0].1)),
        palette.paint(ready_tone, &fit(ready, COLUMNS[1].1)),
        palette.paint(Tone::Bad, &fit(&taints(cluster), COLUMNS[2].1)),
    ];
    for (workload, (_, width)) in [WEB, SHOP, SETTINGS].into_iter().zip(&COLUMNS[3..]) {
        let (text, tone) = cell(&scene.picture.workload(workload), name);
        cells.push(palette.paint(tone, &fit(&text, *width)));
    }
    format!("  {}", cells.join(" ").trim_end())
}

/// Taints by what follows the slash: `failed:NoExecute`.
fn taints(cluster: &ClusterView) -> String {
    let short = |taint: &String| taint.rsplit('/').next().unwrap_or_default().to_owned();
    let names: Vec<String> = cluster.taints.iter().map(short).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        // The one that drives workloads out says more than the one that keeps new ones away.
        several => {
            let strongest = several
                .iter()
                .find(|name| name.ends_with("NoExecute"))
                .unwrap_or(&several[0]);
            format!("{strongest} +{}", several.len() - 1)
        }
    }
}

/// Returns the cell of a workload in a cluster: `●●○ 2/3`, and what is unusual about it.
fn cell(workload: &Workload, cluster: &str) -> (String, Tone) {
    let placed = workload
        .placed
        .as_ref()
        .is_some_and(|placed| placed.contains_key(cluster));
    match workload.copies.get(cluster).copied() {
        None if placed => ("○ coming".to_owned(), Tone::Busy),
        None => (String::new(), Tone::Quiet),
        Some(copy) if !placed => (format!("{} old", dots(copy)), Tone::Quiet),
        Some(copy) => {
            let tone = if copy.complete() {
                Tone::Good
            } else {
                Tone::Busy
            };
            (
                format!("{} {}/{}", dots(copy), copy.ready, copy.wanted),
                tone,
            )
        }
    }
}

fn dots(copy: Copy) -> String {
    let count = |number: i64| usize::try_from(number.clamp(0, 9)).unwrap_or(0);
    let (ready, wanted) = (count(copy.ready), count(copy.wanted));
    format!(
        "{}{}",
        "●".repeat(ready),
        "○".repeat(wanted.saturating_sub(ready))
    )
}

/// Cuts or fills a text to exactly so many characters.
fn fit(text: &str, width: usize) -> String {
    let short: String = text.chars().take(width).collect();
    format!("{short:<width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_what_runs_where_and_what_is_wrong() {
        let mut picture = Picture::default();
        let lost = ClusterView {
            ready: "Unknown".to_owned(),
            taints: BTreeSet::from([
                "cluster.karmada.io/unreachable:NoSchedule".to_owned(),
                "example.com/failed:NoExecute".to_owned(),
            ]),
            ..ClusterView::default()
        };
        let fine = ClusterView {
            ready: "True".to_owned(),
            ..ClusterView::default()
        };
        picture.clusters.insert("member1".to_owned(), lost);
        picture.clusters.insert("member2".to_owned(), fine);
        let web = Workload {
            placed: Some([("member2".to_owned(), 3)].into()),
            copies: [
                (
                    "member1".to_owned(),
                    Copy {
                        wanted: 1,
                        ready: 1,
                    },
                ),
                (
                    "member2".to_owned(),
                    Copy {
                        wanted: 3,
                        ready: 2,
                    },
                ),
            ]
            .into(),
            ..Workload::default()
        };
        picture.workloads.insert(WEB, web);
        let events = ["web: placed on member2 (3)".to_owned()];
        let scene = Scene {
            elapsed: Duration::from_secs(65),
            headline: "member1 is cut off",
            because: "its agent cannot reach the fleet API",
            picture: &picture,
            cut: &BTreeSet::from(["member1".to_owned()]),
            events: &events,
        };
        let plain = draw(&scene, Palette { colours: false }, 40);
        assert_eq!(plain[0], "  01:05  member1 is cut off");
        assert_eq!(
            plain[4],
            "  member1 ⚡  Unknown   failed:NoExecute +1      ● old"
        );
        assert_eq!(
            plain[5],
            "  member2    True                               ●●○ 2/3"
        );
        assert!(
            plain
                .iter()
                .any(|line| line.contains("web: placed on member2 (3)"))
        );
        for rows in [0, 1, 5, 8, 9, 16, 24] {
            let lines = draw(&scene, Palette { colours: false }, rows);
            assert!(lines.len() <= rows.saturating_sub(1), "{rows}");
            assert_eq!(lines.first(), plain.first().filter(|_| rows > 1), "{rows}");
        }
    }
}
