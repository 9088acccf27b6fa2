//! Rows about objects, in the forms in which kubectl prints objects.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// Table.
    #[default]
    Table,
    /// Table with more columns.
    Wide,
    /// Names, one a line, as `kubectl get -o name` prints them.
    Name,
    /// JSON list.
    Json,
    /// YAML list.
    Yaml,
}

impl Format {
    /// Returns whether it is for people.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// A row that has a name for kubectl.
pub(super) trait Named {
    fn name(&self) -> String;
}

/// Rows in a format; `table` prints them as a table, a wide one if asked for that. For a command
/// that refreshes these are the rows that have changed.
pub(super) fn print<R: Serialize + Named>(
    rows: &[R],
    format: Format,
    seen: Option<&mut Seen>,
    table: impl Fn(bool) -> String,
) -> anyhow::Result<String> {
    if let Some(seen) = seen {
        return seen.changes(rows, format, table);
    }
    Ok(match format {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(rows)?),
        Format::Yaml => serde_saphyr::to_string(&rows)?,
        Format::Name => rows
            .iter()
            .flat_map(|it| [it.name(), "\n".to_owned()])
            .collect(),
        _ if rows.is_empty() => "There are none.\n".to_owned(),
        Format::Table => table(false),
        Format::Wide => table(true),
    })
}

/// Returns what is said where there is nothing, with what was asked for.
pub(super) fn none(
    cluster: Option<&str>,
    namespace: Option<&str>,
    selector: Option<&str>,
) -> String {
    let cluster = cluster.map_or_else(String::new, |it| format!(" on {it}"));
    let labels = selector.map_or_else(String::new, |it| {
        format!(" with labels that {it:?} matches")
    });
    let namespace = namespace.map_or_else(String::new, |it| {
        format!(" in namespace {it} (-A looks in all)")
    });
    format!("There are none{cluster}{labels}{namespace}.\n")
}

/// The rows that a command which looks again has printed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By namespace and name, as a document.
    rows: BTreeMap<String, Value>,
    has_printed: bool,
    has_head: bool,
}

/// Fields that change with every heartbeat.
const RESTLESS: [&str; 1] = ["lastHeard"];

impl Seen {
    /// Returns whether nothing was printed yet.
    pub fn is_new(&self) -> bool {
        !self.has_printed
    }

    /// Returns what is new of these rows, all of them at first. A document is one of a row.
    fn changes<R: Serialize + Named>(
        &mut self,
        rows: &[R],
        format: Format,
        table: impl Fn(bool) -> String,
    ) -> anyhow::Result<String> {
        let mut before = std::mem::take(&mut self.rows);
        let mut changed = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let mut document = serde_json::to_value(row)?;
            for field in RESTLESS {
                document[field] = Value::Null;
            }
            let namespace = document["namespace"].as_str().unwrap_or_default();
            let key = format!("{namespace} {}", row.name());
            if before.remove(&key).as_ref() != Some(&document) {
                changed.push(at);
            }
            self.rows.insert(key, document);
        }
        let gone: Vec<String> = before.into_keys().map(|it| it.trim().to_owned()).collect();
        let is_first = !std::mem::replace(&mut self.has_printed, true);
        let changed_rows = changed.iter().map(|at| &rows[*at]);
        Ok(match format {
            Format::Json => {
                let rows = changed_rows.map(serde_json::to_string);
                let gone = gone.iter().map(|it| Ok(json!({"deleted": it}).to_string()));
                let lines: Result<Vec<String>, _> = rows.chain(gone).collect();
                lines?
                    .into_iter()
                    .flat_map(|it| [it, "\n".to_owned()])
                    .collect()
            }
            Format::Yaml => {
                let rows = changed_rows.map(serde_saphyr::to_string);
                let gone = gone
                    .iter()
                    .map(|it| serde_saphyr::to_string(&json!({"deleted": it})));
                let documents: Result<Vec<String>, _> = rows.chain(gone).collect();
                let documents = documents?.into_iter();
                documents.flat_map(|it| ["---\n".to_owned(), it]).collect()
            }
            Format::Name => changed_rows.map(|it| it.name() + "\n").collect(),
            _ if is_first && rows.is_empty() => "There are none.\n".to_owned(),
            Format::Table | Format::Wide => {
                let whole = table(format == Format::Wide);
                let had_head = self.has_head;
                self.has_head |= !rows.is_empty();
                if !had_head && self.has_head {
                    return Ok(whole);
                }
                let lines: Vec<&str> = whole.lines().collect();
                let changed = changed.iter().filter_map(|at| lines.get(at + 1));
                let changed = changed.map(|it| (*it).to_owned());
                let gone = gone.into_iter().map(|it| format!("{it} is gone"));
                changed
                    .chain(gone)
                    .flat_map(|it| [it, "\n".to_owned()])
                    .collect()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    #[derive(Serialize)]
    struct Row {
        name: &'static str,
        state: &'static str,
        #[serde(rename = "lastHeard")]
        last_heard: u8,
    }

    impl Named for Row {
        fn name(&self) -> String {
            self.name.to_owned()
        }
    }

    #[test]
    fn a_command_that_refreshes_prints_rows_that_changed_and_no_heartbeats() {
        let row = |name, state, last_heard| Row {
            name,
            state,
            last_heard,
        };
        let mut seen = [Seen::default(), Seen::default()];
        let mut refresh = |rows: &[Row]| {
            let table = |_| {
                let mut table = Table::new(["NAME", "STATE"]);
                for it in rows {
                    table.row([it.name.to_owned(), it.state.to_owned()]);
                }
                table.to_string()
            };
            let [table_seen, json_seen] = &mut seen;
            let text = print(rows, Format::Table, Some(table_seen), table).unwrap();
            let json = print(rows, Format::Json, Some(json_seen), table).unwrap();
            (text, json.lines().count())
        };
        let (first, documents) = refresh(&[row("a", "Ready", 1), row("b", "Ready", 1)]);
        assert_eq!(first, "NAME   STATE\na      Ready\nb      Ready\n");
        assert_eq!(documents, 2);
        let renewed = refresh(&[row("a", "Ready", 2), row("b", "Ready", 2)]);
        assert_eq!(renewed, (String::new(), 0));
        let changed = refresh(&[
            row("a", "Ready", 3),
            row("b", "Lost", 2),
            row("c", "Ready", 1),
        ]);
        assert_eq!(changed, ("b      Lost\nc      Ready\n".to_owned(), 2));
        let gone = refresh(&[row("b", "Lost", 2), row("c", "Ready", 1)]);
        assert_eq!(gone, ("a is gone\n".to_owned(), 1));
    }
}
