//! The list of metrics: the tables of the manual, whose meanings `/metrics` shows.

/// The page of the manual that lists the metrics of all programs. `.ci/charts/test_monitoring.py`
/// compares it with the code.
const PAGE: &str = include_str!("../../../.github/manual/metrics.md");

/// Registers the meanings of metrics: they stand beside them in `/metrics`.
pub(super) fn describe() {
    for (name, kind, meaning) in listed(PAGE) {
        match kind {
            "counter" => metrics::describe_counter!(name, meaning),
            "gauge" => metrics::describe_gauge!(name, meaning),
            "histogram" => metrics::describe_histogram!(name, meaning),
            _ => {}
        }
    }
}

/// Returns the metrics in the tables of a page, each with its name, its kind and its meaning.
fn listed(page: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    page.lines().filter_map(|line| {
        let row = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let mut cells = row.split(" | ");
        let name = cells.next()?.strip_suffix('`')?;
        let (kind, _labels, meaning) = (cells.next()?, cells.next()?, cells.next()?);
        Some((name, kind, meaning))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_of_the_manual_is_a_metric_of_a_known_kind_and_its_only_one() {
        let mut names = BTreeSet::new();
        for (name, kind, meaning) in listed(PAGE) {
            assert!(names.insert(name), "{name} is listed twice");
            let is_known = ["counter", "gauge", "histogram"].contains(&kind);
            assert!(is_known && !meaning.is_empty(), "{name}: {kind}, {meaning}");
        }
        let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(names.len(), rows.count());
        assert!(!names.is_empty());
    }

    #[test]
    fn a_row_may_have_labels_with_their_values_or_none() {
        let page = "| name | kind | labels | meaning |\n|---|---|---|---|\n\
                    | `a_total` | counter | `kind`; `result`: moved, held | Moves |\n\
                    | `b` | gauge |  | 1 while `a` is true, else 0 |\n";
        let found: Vec<_> = listed(page).collect();
        let expected = [
            ("a_total", "counter", "Moves"),
            ("b", "gauge", "1 while `a` is true, else 0"),
        ];
        assert_eq!(found, expected);
    }
}
