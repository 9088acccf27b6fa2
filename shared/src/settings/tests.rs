use serde::Deserialize;

use super::*;

#[derive(Debug, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Example {
    #[arg(long, default_value = "40s")]
    grace_period: Duration,
    #[arg(long, default_value = "*")]
    controllers: Controllers,
    #[arg(long, default_value = "")]
    feature_gates: FeatureGates,
    #[arg(long, default_value_t = 0.5)]
    rate: f64,
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: bool,
    #[arg(long)]
    name: Option<String>,
}

impl Default for Example {
    fn default() -> Self {
        defaults()
    }
}

const FAILOVER: Gate = Gate {
    name: "Failover",
    default: false,
    stage: Stage::Beta,
};

fn load_example(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Example, Error> {
    let arguments = std::iter::once("example")
        .chain(arguments.iter().copied())
        .map(OsString::from);
    let environment = environment
        .iter()
        .map(|(name, value)| (OsString::from(*name), OsString::from(*value)));
    load_from(clap::Command::new("example"), arguments, environment)
}

/// A settings file that is gone when the test is.
struct File(PathBuf);

impl File {
    fn with(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "muster-settings-{}-{name}.yaml",
            std::process::id()
        ));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

#[test]
fn nothing_said_means_the_declared_defaults() {
    let settings = load_example(&[], &[]).unwrap();
    assert_eq!(settings.grace_period, Duration::from_secs(40));
    assert!((settings.rate - 0.5).abs() < f64::EPSILON);
    assert!(settings.leader_elect);
    assert_eq!(settings.name, None);
}

#[test]
fn flags_beat_variables_beat_the_file_beats_defaults() {
    let file = File::with("layers", "grace-period: 1s\nrate: 1\nname: file\n");
    let settings = load_example(
        &["--config", file.path(), "--name=flag"],
        &[
            ("MUSTER_NAME", "variable"),
            ("MUSTER_RATE", "2.5"),
            ("OTHER_RATE", "9"),
        ],
    )
    .unwrap();
    assert_eq!(settings.grace_period, Duration::from_secs(1));
    assert!((settings.rate - 2.5).abs() < f64::EPSILON);
    assert_eq!(settings.name.as_deref(), Some("flag"));
}

#[test]
fn karmadas_spellings_are_accepted() {
    let settings = load_example(
        &[
            "--leader-elect=false",
            "--controllers=*,-binding",
            "--feature-gates=Failover=true,AllAlpha=false",
        ],
        &[],
    )
    .unwrap();
    assert!(!settings.leader_elect);
    assert!(settings.controllers.enabled("cluster", false));
    assert!(!settings.controllers.enabled("binding", false));
    assert!(!settings.controllers.enabled("rare", true));
    assert!(settings.feature_gates.enabled(&FAILOVER));
}

#[test]
fn the_file_may_use_lists_and_maps() {
    let file = File::with(
        "shapes",
        "controllers: [cluster, -binding]\nfeature-gates: {Failover: true}\n",
    );
    let settings = load_example(&["--config", file.path()], &[]).unwrap();
    assert!(settings.controllers.enabled("cluster", false));
    assert!(!settings.controllers.enabled("scheduler", false));
    assert!(settings.feature_gates.enabled(&FAILOVER));
}

#[test]
fn what_is_unknown_or_malformed_is_refused_by_name() {
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let file = File::with("typo", "grace-periods: 1s\n");
    let cases: [Case<'_>; 4] = [
        (&["--config", file.path()], &[], "grace-periods"),
        (&["--no-such-flag"], &[], "--no-such-flag"),
        (&["--grace-period=soon"], &[], "is not a duration"),
        (&[], &[("MUSTER_GRACE_PERIOD", "soon")], "is not a duration"),
    ];
    for (arguments, environment, expected) in cases {
        let error = load_example(arguments, environment)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(expected),
            "{error:?} does not say {expected:?}"
        );
    }
}

#[test]
fn unknown_gates_and_controllers_are_refused_with_what_is_known() {
    let settings = load_example(
        &["--feature-gates=Failovr=true", "--controllers=*,-bindng"],
        &[],
    )
    .unwrap();
    let error = settings
        .feature_gates
        .check(&[FAILOVER])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("Failovr") && error.contains("Failover"),
        "{error}"
    );
    let error = settings
        .controllers
        .check(&["binding"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("bindng") && error.contains("binding"),
        "{error}"
    );
}

/// Checks that the texts are those of Go's `Duration.String`.
#[test]
fn a_duration_is_exact_and_no_longer_than_gos() {
    for (text, nanoseconds, printed) in [
        ("40s", Some(40_000_000_000), "40s"),
        ("1m30s", Some(90_000_000_000), "1m30s"),
        ("250ms", Some(250_000_000), "250ms"),
        ("1.5h", Some(5_400_000_000_000), "1h30m0s"),
        ("0", Some(0), "0s"),
        ("5", None, ""),
        ("", None, ""),
        ("-1s", None, ""),
        ("1m ", None, ""),
        ("1ns", Some(1), "1ns"),
        ("1.5us", Some(1_500), "1.5µs"),
        ("1500μs", Some(1_500_000), "1.5ms"),
        ("0.1s", Some(100_000_000), "100ms"),
        (
            "1h0.000000001s",
            Some(3_600_000_000_001),
            "1h0m0.000000001s",
        ),
        ("1.h.5m", Some(3_630_000_000_000), "1h0m30s"),
        ("+5s", Some(5_000_000_000), "5s"),
        ("1s0s", Some(1_000_000_000), "1s"),
        // A third of an hour, to the nanosecond below.
        (
            "0.33333333333333333333h",
            Some(1_199_999_999_999),
            "19m59.999999999s",
        ),
        (
            "2562047h47m16.854775807s",
            Some(i64::MAX as u64),
            "2562047h47m16.854775807s",
        ),
        ("2562047h47m16.854775808s", None, ""),
        ("1000000000h", None, ""),
        ("99999999999999999999h", None, ""),
        (".s", None, ""),
        ("1..5s", None, ""),
        ("1s0", None, ""),
        ("+", None, ""),
        ("1e3s", None, ""),
        ("infs", None, ""),
    ] {
        let parsed = text.parse::<Duration>().ok();
        let expected = nanoseconds.map(std::time::Duration::from_nanos);
        assert_eq!(parsed.map(|it| it.0), expected, "{text}");
        if let Some(duration) = parsed {
            assert_eq!(duration.to_string(), printed, "{text}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_stops_nobody_unless_it_is_a_setting() {
    use std::os::unix::ffi::OsStringExt;
    let odd = || OsString::from_vec(vec![b'a', 0xff]);
    let load = |name: &str| {
        let environment = [(odd(), odd()), (name.into(), odd())];
        load_from::<Example>(
            clap::Command::new("example"),
            ["example".into()],
            environment,
        )
    };
    assert_eq!(load("PATH").unwrap().name, None);
    let error = load("MUSTER_NAME").unwrap_err().to_string();
    assert!(error.contains("name") && error.contains("UTF-8"), "{error}");
}

#[test]
fn a_variable_that_is_no_setting_is_named_and_those_of_services_are_not() {
    let names = [
        "MUSTER_NAME",
        "MUSTER_NAMES",
        "MUSTER_GRACE-PERIOD",
        "MUSTER_AGENT_SERVICE_HOST",
        "MUSTER_AGENT_SERVICE_PORT_HTTP",
        "MUSTER_AGENT_PORT",
        "MUSTER_AGENT_PORT_8080_TCP_ADDR",
        "HOME",
    ];
    let found = unknown_variables::<Example>(names.map(|name| (name.into(), "x".into())));
    assert_eq!(found, ["MUSTER_NAMES", "MUSTER_GRACE-PERIOD"]);
}
