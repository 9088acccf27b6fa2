//! Tables of text: columns as wide as their widest cell, three blanks between them.

use std::fmt;

use jiff::Timestamp;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::check::{first_of, one_line};
use muster_shared::names::namespaced_key;
use muster_shared::quantity::Quantity;
use serde::Serialize;

/// Begins the note about what a table marks with `?`.
pub(super) const NOT_READY: &str = "\n?: as the cluster reported last, which is not ready now.";
/// Lines of a list that a terminal gets.
pub(super) const LISTED: usize = 20;

/// A table with a head.
#[derive(Clone, Debug)]
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Returns a table with this head and no rows.
    pub fn new(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned)],
        }
    }

    /// Adds a row. A cell has no end of a line, and nothing that a terminal obeys.
    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|it| one_line(&it)));
    }

    /// Returns the text of the table without some of its columns.
    pub fn without(&self, heads: &[&str]) -> String {
        let is_shown = |column: &usize| !heads.contains(&self.rows[0][*column].as_str());
        let width = |column: usize| {
            let lengths = self.rows.iter().map(|row| row[column].chars().count());
            (column, lengths.max().unwrap_or(0))
        };
        let columns: Vec<(usize, usize)> = (0..N).filter(is_shown).map(width).collect();
        let line = |row: &[String; N]| {
            let cells = columns.iter();
            let cells = cells.map(|(column, width)| format!("{:width$}", row[*column]));
            let line = cells.collect::<Vec<_>>().join("   ");
            format!("{}\n", line.trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without(&[]))
    }
}

/// Names an object, with its namespace if it has one.
pub(super) fn title(kind: &str, namespace: Option<&str>, name: &str) -> String {
    let namespace = namespace.unwrap_or_default();
    format!("{kind} {}", namespaced_key(namespace, name))
}

/// Returns how commands name a workload that is named as `Deployment default/web`.
pub(super) fn argument(workload: &str) -> String {
    let (kind, name) = workload.split_once(' ').unwrap_or(("", workload));
    let kind = kind.to_lowercase();
    match name.split_once('/') {
        Some((namespace, name)) => format!("{kind}/{name} -n {namespace}"),
        None => format!("{kind}/{name}"),
    }
}

/// Returns a number of things, such as `1 workload`, `2 workloads` or `2 copies`.
pub(super) fn count<N: fmt::Display + From<u8> + PartialEq + Copy>(
    number: N,
    thing: &str,
) -> String {
    match thing.strip_suffix('y') {
        _ if number == N::from(1_u8) => format!("1 {thing}"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {thing}s"),
    }
}

/// Returns a number of things a second, such as `1 workload a second` or `0.5 workloads a second`.
pub(super) fn per_second(number: f64, thing: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {thing}{plural} a second")
}

/// A workload as people and programs name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Workload {
    pub namespace: Option<String>,
    pub kind: String,
    pub name: String,
}

impl Workload {
    /// Names the workload of a binding.
    pub fn of(spec: &ResourceBindingSpec) -> Self {
        let resource = &spec.resource;
        Self {
            namespace: resource.namespace.clone().filter(|it| !it.is_empty()),
            kind: resource.kind.clone(),
            name: resource.name.clone(),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&title(&self.kind, self.namespace.as_deref(), &self.name))
    }
}

/// Names the first of so many workloads, each of the same kind and namespace as the one before by
/// its name alone, and says how many more there are.
pub(super) fn first_titles(titles: &[String], all: usize) -> String {
    let mut before = "";
    let titles = titles.iter().map(String::as_str);
    let names = titles.map(|title| {
        let (place, name) = title.split_at(title.rfind([' ', '/']).map_or(0, |it| it + 1));
        if std::mem::replace(&mut before, place) == place {
            name
        } else {
            title
        }
    });
    first_of(&names.collect::<Vec<_>>(), all)
}

/// Returns so many lines of a list at most, indented, and the number of the others.
pub(super) fn indented(lines: &[impl fmt::Display], most: usize) -> String {
    let shown = lines.iter().take(most).map(|it| format!("  {it}\n"));
    let more = match lines.len().saturating_sub(most) {
        0 => String::new(),
        more => format!("  and {more} more: -o wide has all\n"),
    };
    shown.chain([more]).collect()
}

/// Returns a text of at most so many characters; one that was cut ends with an ellipsis.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let kept = text.chars().take(longest.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Returns the time that has passed, to the second.
pub(super) fn ago(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "-".to_owned(),
        |since| passed(u64::try_from(now.duration_since(since).as_secs()).unwrap_or_default()),
    )
}

/// Returns a duration as kubectl writes it, of two units at most.
pub(super) fn passed(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m{}s", seconds / 60, seconds % 60),
        7_200..172_800 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns an amount with one decimal at the most: cores, bytes with a binary suffix, or units.
pub(super) fn amount(name: &str, amount: Quantity) -> String {
    let tenths = |amount: i128, unit: i128| {
        let tenths = amount.saturating_mul(10) / unit;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => whole.to_string(),
            (whole, tenth) => format!("{whole}.{}", tenth.abs()),
        }
    };
    let bytes = i128::from(amount.value());
    let units = [("Ti", 1_i128 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20)];
    match units.iter().find(|(_, unit)| bytes.abs() >= *unit) {
        _ if name == "cpu" => tenths(amount.milli_value().into(), 1000),
        Some((suffix, unit)) if name != "pods" => format!("{}{suffix}", tenths(bytes, *unit)),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_cut_says_so() {
        for (text, expected) in [("", ""), ("fünf!", "fünf!"), ("sechs!", "sech…")] {
            assert_eq!(shortened(text, 5), expected);
        }
    }

    #[test]
    fn a_list_that_was_cut_says_how_to_get_the_rest() {
        for (most, expected) in [
            (2, "  a\n  b\n  and 1 more: -o wide has all\n"),
            (usize::MAX, "  a\n  b\n  c\n"),
        ] {
            assert_eq!(indented(&["a", "b", "c"], most), expected);
        }
    }

    #[test]
    fn one_thing_is_no_several() {
        for (number, thing, expected) in [
            (0_usize, "job", "0 jobs"),
            (1, "copy", "1 copy"),
            (2, "copy", "2 copies"),
        ] {
            assert_eq!(count(number, thing), expected);
        }
        for (number, expected) in [
            (0.0, "0 jobs a second"),
            (0.5, "0.5 jobs a second"),
            (1.0, "1 job a second"),
        ] {
            assert_eq!(per_second(number, "job"), expected);
        }
    }

    #[test]
    fn a_kind_and_a_namespace_are_named_once() {
        for (titles, expected) in [
            (
                &["Deployment a/web", "Deployment a/db"][..],
                "Deployment a/web, db",
            ),
            (
                &["Deployment a/web", "Deployment b/web", "Job b/web"],
                "Deployment a/web, Deployment b/web, Job b/web",
            ),
            (&["Tenant x", "Tenant y"], "Tenant x, y"),
            (&["web", "db"], "web, db"),
        ] {
            let titles: Vec<String> = titles.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(first_titles(&titles, titles.len()), expected);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "WHY"]);
        table.row(["web".to_owned(), "no room".to_owned()]);
        table.row(["settings".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "NAME       WHY\nweb        no room\nsettings\n"
        );
    }

    #[test]
    fn what_others_wrote_controls_no_terminal_and_makes_no_rows() {
        let mut table = Table::new(["WHY"]);
        table.row(["\u{1b}[2Jall is well\nm1 ready".to_owned()]);
        assert_eq!(table.to_string(), "WHY\n [2Jall is well m1 ready\n");
    }
}
