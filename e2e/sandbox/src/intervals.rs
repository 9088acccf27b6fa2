//! The intervals that a demonstration shortens, beside what they are in production.

use super::scenario::{AGENT, CONTROL_PLANE};

/// One shortened interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Whose it is.
    pub whose: &'static str,
    /// Flag or field.
    pub name: String,
    /// Here.
    pub here: String,
    /// In production, by default.
    pub usual: String,
}

/// Fields of the manifests, with what holds where they are not given: the taint policy's own
/// defaults, and no toleration at all.
const FIELDS: [(&str, &str, &str); 3] = [
    ("addOnMatchSeconds", "2s", "5m0s"),
    ("removeOnMismatchSeconds", "2s", "3m0s"),
    ("tolerationSeconds", "2s", "none"),
];

/// Returns all intervals that are shortened. Flags that say no time, or the default, are left out.
pub fn shortened() -> Vec<Interval> {
    let control_plane = defaults::<muster_control_plane::settings::Settings>();
    let agent = defaults::<muster_agent::settings::Settings>();
    let flags = |whose, flags: &[&str], defaults: &[(String, String)]| -> Vec<Interval> {
        flags
            .iter()
            .filter_map(|flag| flag.trim_start_matches("--").split_once('='))
            .filter_map(|(name, here)| {
                let (_, usual) = defaults.iter().find(|(known, _)| known == name)?;
                let timed = usual
                    .ends_with(|last: char| last.is_ascii_alphabetic() || last.is_ascii_digit())
                    && usual.starts_with(|first: char| first.is_ascii_digit());
                (timed && usual != here).then(|| Interval {
                    whose,
                    name: name.to_owned(),
                    here: here.to_owned(),
                    usual: usual.clone(),
                })
            })
            .collect()
    };
    let mut all = flags("control plane", &CONTROL_PLANE, &control_plane);
    all.extend(flags("agents", &AGENT, &agent));
    all.extend(FIELDS.map(|(name, here, usual)| Interval {
        whose: "policies",
        name: name.to_owned(),
        here: here.to_owned(),
        usual: usual.to_owned(),
    }));
    all
}

/// Flags with their default values, as the program itself declares them.
fn defaults<T: clap::Args>() -> Vec<(String, String)> {
    let command = T::augment_args(clap::Command::new("defaults"));
    let arguments = command.get_arguments().filter_map(|argument| {
        let values: Vec<String> = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        Some((argument.get_long()?.to_owned(), values.join(",")))
    });
    arguments.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shortened_interval_is_named_with_its_default() {
        let all = shortened();
        let grace = all
            .iter()
            .find(|interval| interval.name == "cluster-monitor-grace-period")
            .unwrap();
        assert_eq!((grace.here.as_str(), grace.usual.as_str()), ("8s", "40s"));
        assert!(
            all.iter().all(|interval| interval.name != "feature-gates"
                && interval.name != "metrics-bind-address")
        );
    }
}
