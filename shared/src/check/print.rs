//! Text and JSON of the results.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use serde_json::{Value, json};

use super::{Report, Status, one_line};

/// Style in which text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// ASCII without colours, for files, pipes and logs.
    Plain,
    /// Marks and colours of a terminal.
    Terminal,
}

impl Style {
    /// Returns the style for the standard output: plain if it is no terminal, and if `NO_COLOR` is
    /// set to anything (no-color.org) or `TERM` is `dumb`.
    pub fn of_stdout() -> Self {
        let says = |name| std::env::var_os(name).is_some_and(|it| !it.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|it| it == "dumb");
        if std::io::stdout().is_terminal() && !says("NO_COLOR") && !dumb {
            Self::Terminal
        } else {
            Self::Plain
        }
    }

    const fn mark(self, status: Status) -> &'static str {
        match (self, status) {
            (Self::Plain, Status::Ok) => "[ok]",
            (Self::Plain, Status::Warning) => "[warning]",
            (Self::Plain, Status::Error) => "[error]",
            (Self::Plain, Status::Skipped) => "[skipped]",
            (Self::Terminal, Status::Ok) => "\u{1b}[32m√\u{1b}[0m",
            (Self::Terminal, Status::Warning) => "\u{1b}[33m‼\u{1b}[0m",
            (Self::Terminal, Status::Error) => "\u{1b}[31m×\u{1b}[0m",
            (Self::Terminal, Status::Skipped) => "\u{1b}[2m-\u{1b}[0m",
        }
    }
}

impl Report {
    /// Returns the text: a heading for each category, a line for each verdict, the hints below.
    pub fn text(&self, style: Style) -> String {
        let mut text = String::new();
        let mut category = "";
        for verdict in &self.checks {
            if verdict.category != category {
                let blank = if category.is_empty() { "" } else { "\n" };
                category = verdict.category;
                let line = "-".repeat(category.chars().count());
                // Writing to a string does not fail.
                let _ = writeln!(text, "{blank}{category}\n{line}");
            }
            let mark = style.mark(verdict.status);
            let message = one_line(&verdict.message);
            let _ = writeln!(text, "{mark} {}: {message}", verdict.name);
            let bad = verdict.status >= Status::Warning;
            for line in verdict
                .hint
                .iter()
                .filter(|_| bad)
                .flat_map(|it| it.lines())
            {
                let _ = writeln!(text, "    {}", one_line(line));
            }
        }
        let _ = writeln!(text, "\nStatus: {}", self.summary());
        text
    }

    /// Returns the numbers in words, the worst first.
    fn summary(&self) -> String {
        let counted = |status: Status, one: &str, many: &str| {
            let number = self.count(status);
            let word = if number == 1 { one } else { many };
            (number > 0).then(|| format!("{number} {word}"))
        };
        let words = [
            counted(Status::Error, "error", "errors"),
            counted(Status::Warning, "warning", "warnings"),
            counted(Status::Ok, "ok", "ok"),
            counted(Status::Skipped, "skipped", "skipped"),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Returns the JSON document. Fields and names of checks stay between versions; more may come.
    pub fn json(&self, version: &str, server: &str) -> Value {
        let counts = json!({
            "ok": self.count(Status::Ok),
            "warning": self.count(Status::Warning),
            "error": self.count(Status::Error),
            "skipped": self.count(Status::Skipped),
        });
        json!({
            "version": version,
            "server": server,
            "status": self.status(),
            "counts": counts,
            "checks": self.checks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn hints_stand_below_their_lines_and_no_terminal_means_ascii() {
        let report = report(&[Status::Ok, Status::Error, Status::Skipped]);
        let expected = "Fleet API\n---------\n[ok] answers: it answers\n[error] version: it is too old\n    use another\n    or wait\n\
                        [skipped] gates: no leader\n\nStatus: 1 error, 1 ok, 1 skipped\n";
        assert_eq!(report.text(Style::Plain), expected);
        assert!(report.text(Style::Plain).is_ascii());
        let coloured = report.text(Style::Terminal);
        assert!(
            coloured.contains('√') && coloured.contains('×'),
            "{coloured}"
        );
    }

    #[test]
    fn what_others_wrote_makes_no_lines_and_controls_no_terminal() {
        let mut report = report(&[Status::Warning]);
        report.checks[0].message = "m1: \u{1b}[2J\n[ok] ready: m1".to_owned();
        report.checks[0].hint = Some("a\u{7}\nb".to_owned());
        for (style, mark) in [
            (Style::Plain, "[warning]"),
            (Style::Terminal, "\u{1b}[33m‼\u{1b}[0m"),
        ] {
            let text = report.text(style);
            let line = format!("{mark} leader: m1:  [2J [ok] ready: m1\n    a \n    b\n");
            assert!(text.contains(&line), "{text:?}");
        }
    }

    #[test]
    fn programs_get_names_and_counts() {
        let report = report(&[Status::Ok, Status::Warning]);
        let read = report.json("0.1.0", "https://a");
        assert_eq!(read["status"], "warning");
        assert_eq!(
            read["counts"],
            json!({"ok": 1, "warning": 1, "error": 0, "skipped": 0})
        );
        assert_eq!(
            read["checks"],
            json!([
                {"category": "Fleet API", "name": "answers", "status": "ok", "message": "it answers"},
                {"category": "Fleet API", "name": "leader", "status": "warning", "message": "it is old", "hint": "upgrade it"},
            ])
        );
    }
}
