//! Rows about objects, in the forms in which kubectl prints objects.

use clap::ValueEnum;
use serde::Serialize;

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

/// A row that has a name for kubectl.
pub(super) trait Named {
    fn name(&self) -> String;
}

/// Rows in a format; `table` prints them as a table, a wide one if asked for that.
pub(super) fn print<R: Serialize + Named>(
    rows: &[R],
    format: Format,
    table: impl Fn(bool) -> String,
) -> anyhow::Result<String> {
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
