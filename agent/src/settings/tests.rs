use std::ffi::OsString;

use muster_shared::names::is_cluster_name;
use muster_shared::settings::load_from;

use super::*;

fn load(arguments: &[&str]) -> Result<Settings, Error> {
    let arguments = std::iter::once("muster-agent").chain(arguments.iter().copied());
    let settings: Settings = load_from(
        clap::Command::new("muster-agent"),
        arguments.map(OsString::from),
        [],
    )?;
    settings.check()?;
    Ok(settings)
}

#[test]
fn the_defaults_of_the_heartbeat_are_those_of_karmada() {
    let settings = Settings::default();
    for (name, duration, seconds) in [
        ("status", settings.cluster_status_update_frequency, 10),
        ("lease", settings.cluster_lease_duration, 40),
        ("success", settings.cluster_success_threshold, 30),
        ("failure", settings.cluster_failure_threshold, 30),
    ] {
        assert_eq!(duration, Duration::from_secs(seconds), "{name}");
    }
    let fraction = settings.cluster_lease_renew_interval_fraction;
    assert!((fraction - 0.25).abs() < f64::EPSILON, "{fraction}");
}

#[test]
fn the_command_line_that_karmadactl_register_writes_is_understood() {
    let settings = load(&[
        "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig",
        "--cluster-name=member1",
        "--cluster-api-endpoint=https://10.0.0.1:6443",
        "--cluster-provider=aws",
        "--cluster-region=eu-1",
        "--cluster-zones=a,b",
        "--controllers=*,certRotation",
        "--proxy-server-address=",
        "--leader-elect-resource-namespace=karmada-system",
        "--cluster-namespace=karmada-cluster",
        "--cluster-status-update-frequency=10s",
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=0.0.0.0:10357",
        "--v=2",
    ])
    .unwrap();
    assert!(settings.runs(CERT_ROTATION) && !Settings::default().runs(CERT_ROTATION));
    let bootstrap = ["--cluster-name=a", "--bootstrap-kubeconfig=b"];
    assert!(load(&bootstrap).unwrap().runs(CERT_ROTATION));
    assert_eq!(settings.cluster_name, "member1");
    assert_eq!(settings.cluster_zones.0, ["a", "b"]);
    assert!(settings.leader_elect && settings.models_enabled());
}

#[test]
fn addresses_of_the_fleet_that_cannot_be_used_are_refused() {
    let servers = r#"--fleet-servers=[{"server": "fleet.example.com"}]"#;
    let error = load(&["--cluster-name=a", servers])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("fleet-servers") && error.contains("https"),
        "{error}"
    );
}

#[test]
fn nonsense_is_refused_with_the_name_of_the_flag() {
    let refused = |arguments: &[&str], name: &str| {
        let error = load(arguments).unwrap_err().to_string();
        assert!(error.contains(name), "{arguments:?}: {error}");
    };
    refused(&[], "cluster-name");
    refused(&["--cluster-name=A.b"], "cluster-name");
    // The error names the first flag.
    for flags in [
        &["--cluster-lease-renew-interval-fraction=1"][..],
        &["--cluster-lease-duration=0s"],
        &["--fleet-server-timeout=0s"],
        &["--controllers=*,nope"],
        &["--feature-gates=Nope=true"],
        &["--cluster-ready-nodes-threshold=60"],
        &[
            "--cluster-ready-nodes-threshold=0.6",
            "--enable-cluster-resource-modeling=false",
        ],
        &["--report-secrets=Everything"],
        &["--cert-rotation-remaining-time-threshold=20"],
        &["--bootstrap-kubeconfig=b", "--controllers=*,-certRotation"],
        &["--bootstrap-kubeconfig=b", "--karmada-context=c"],
        &["--nope"],
        &["--cluster-region=EU West"],
        &["--cluster-provider=-x"],
        &["--cluster-zones=a,b c"],
        &["--cluster-api-endpoint=10.0.0.1:6443"],
        &["--cluster-api-endpoint=https://h/?a=b"],
        &["--proxy-server-address=proxy:3128"],
    ] {
        let (name, _) = flags[0].split_once('=').unwrap_or((flags[0], ""));
        let arguments = [&["--cluster-name=a"][..], flags].concat();
        refused(&arguments, name.trim_start_matches('-'));
    }
}

#[test]
fn limits_and_addresses_of_health_checks_are_refused_by_name() {
    for (name, value, is_valid) in [
        ("cluster-api-errors-threshold", "2", false),
        ("cluster-api-errors-threshold", "0", false),
        ("cluster-api-errors-threshold", "1", true),
        ("cluster-egress-address", "example.com", false),
        ("cluster-egress-address", "https://a:443", false),
        ("cluster-egress-address", "[fd00::1]:0", false),
        ("cluster-egress-address", "[fd00::1]:443", true),
        ("cluster-egress-address", "example.com:443", true),
    ] {
        let flag = format!("--{name}={value}");
        let loaded = load(&["--cluster-name=a", &flag]);
        assert_eq!(loaded.is_ok(), is_valid, "{flag}");
        let reported = loaded
            .err()
            .map_or_else(|| name.to_owned(), |it| it.to_string());
        assert!(reported.contains(name), "{flag}: {reported}");
    }
}

#[test]
fn addresses_that_a_cluster_takes_are_taken() {
    for endpoint in [
        "https://10.0.0.1:6443",
        "https://[fd00::1]:6443",
        "https://rancher/k8s/clusters/c-1",
        "http://localhost:8080/",
    ] {
        let endpoint = format!("--cluster-api-endpoint={endpoint}");
        load(&["--cluster-name=a", &endpoint]).unwrap();
    }
    let flags = [
        "--cluster-name=a",
        "--proxy-server-address=socks5://proxy:1080",
    ];
    load(&flags).unwrap();
}

#[test]
fn the_name_of_a_cluster_is_a_label_of_at_most_48_characters() {
    for (name, valid) in [
        ("member1", true),
        ("a", true),
        ("-a", false),
        ("a-", false),
        ("a.b", false),
        ("", false),
    ] {
        assert_eq!(is_cluster_name(name), valid, "{name}");
    }
    assert!(is_cluster_name(&"a".repeat(48)) && !is_cluster_name(&"a".repeat(49)));
}
