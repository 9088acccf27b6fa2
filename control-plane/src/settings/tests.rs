use super::*;

fn load(arguments: &[&str]) -> Result<Settings, Error> {
    let arguments = std::iter::once("muster-control-plane").chain(arguments.iter().copied());
    let command = clap::Command::new("muster-control-plane");
    let settings: Settings = load_from(command, arguments.map(OsString::from), [])?;
    settings.check()?;
    Ok(settings)
}

#[test]
fn the_defaults_are_accepted_and_move_nothing() {
    let settings = Settings::default();
    settings.check().unwrap();
    assert!(!settings.gate(&FAILOVER));
    assert!(settings.runs("scheduler"));
}

#[test]
fn host_names_are_published_only_if_that_is_asked_for() {
    for (flags, expected) in [
        (&[][..], false),
        (&["--controllers=*,traffic"], false),
        (&["--traffic-dns-endpoints"], true),
        (
            &["--traffic-dns-endpoints", "--controllers=*,-traffic"],
            false,
        ),
    ] {
        assert_eq!(load(flags).unwrap().runs("traffic"), expected, "{flags:?}");
    }
}

#[test]
fn the_defaults_of_evictions_are_those_of_the_proposal() {
    let settings = Settings::default();
    for (name, value, expected) in [
        ("rate", settings.resource_eviction_rate, "0.5"),
        (
            "secondary",
            settings.secondary_resource_eviction_rate,
            "0.1",
        ),
        ("threshold", settings.unhealthy_cluster_threshold, "0.55"),
    ] {
        assert_eq!(value.to_string(), expected, "{name}");
    }
    assert_eq!(settings.large_cluster_num_threshold, 10);
    assert_eq!(settings.evict_plugins, Words(vec!["*".to_owned()]));
    assert!(settings.enable_no_execute_taint_eviction);
    assert_eq!(settings.no_execute_taint_eviction_purge_mode, "Gracefully");
    assert!(settings.failover_eviction_timeout.is_none());
    assert!(settings.default_not_ready_toleration_seconds.is_none());
    assert!(settings.default_unreachable_toleration_seconds.is_none());
    for (gate, on) in [
        (&FAILOVER, false),
        (&STATEFUL_FAILOVER_INJECTION, false),
        (&GRACEFUL_EVICTION, true),
    ] {
        assert_eq!(settings.gate(gate), on, "{}", gate.name);
    }
}

#[test]
fn the_defaults_of_detection_are_those_of_karmada() {
    let settings = Settings::default();
    for (name, duration, seconds) in [
        ("monitor period", settings.cluster_monitor_period, 5),
        ("grace", settings.cluster_monitor_grace_period, 40),
        ("start-up grace", settings.cluster_startup_grace_period, 60),
        ("lease", settings.leader_elect_lease_duration, 15),
        ("renewal", settings.leader_elect_renew_deadline, 10),
        ("retry", settings.leader_elect_retry_period, 2),
        ("status", settings.cluster_status_update_frequency, 10),
        ("success", settings.cluster_success_threshold, 30),
        ("failure", settings.cluster_failure_threshold, 30),
        ("cluster lease", settings.cluster_lease_duration, 40),
    ] {
        let expected: Duration = format!("{seconds}s").parse().unwrap();
        assert_eq!(duration, expected, "{name}");
    }
    let fraction = settings.cluster_lease_renew_interval_fraction;
    assert!((fraction - 0.25).abs() < f64::EPSILON, "{fraction}");
}

#[test]
fn senseless_values_are_refused_by_name() {
    type Spoil = fn(&mut Settings);
    let cases: [(&str, Spoil); 22] = [
        ("peers-per-cluster", |s| s.peers_per_cluster = 1),
        ("peers-per-cluster", |s| s.peers_per_cluster = 6),
        ("cluster-unhealthy-workloads-threshold", |s| {
            s.cluster_unhealthy_workloads_threshold = 50.0;
        }),
        ("failover-history-entries", |s| {
            s.failover_history_entries = 501;
        }),
        ("evict-plugins", |s| s.evict_plugins = Words(Vec::new())),
        ("cluster-lease-renew-interval-fraction", |s| {
            s.cluster_lease_renew_interval_fraction = 1.0;
        }),
        ("cluster-status-update-frequency", |s| {
            s.cluster_status_update_frequency = Duration::default();
        }),
        ("enable-scheduler-estimator", |s| {
            s.enable_scheduler_estimator = true;
        }),
        ("plugins", |s| s.plugins = Words(vec!["Luck".to_owned()])),
        ("resource-eviction-rate", |s| {
            s.resource_eviction_rate = -1.0;
        }),
        ("unhealthy-cluster-threshold", |s| {
            s.unhealthy_cluster_threshold = 55.0;
        }),
        ("cluster-monitor-grace-period", |s| {
            s.cluster_monitor_grace_period = Duration::default();
        }),
        ("leader-elect-renew-deadline", |s| {
            s.leader_elect_renew_deadline = s.leader_elect_lease_duration;
        }),
        ("no-execute-taint-eviction-purge-mode", |s| {
            s.no_execute_taint_eviction_purge_mode = "Never".to_owned();
        }),
        ("evict-plugins", |s| {
            s.evict_plugins = Words(vec!["Hope".to_owned()]);
        }),
        ("fleet-servers", |s| {
            let file = r#"[{"server": "https://a", "caFile": "/ca.crt"}]"#;
            s.fleet_servers = file.parse().unwrap();
        }),
        ("notice-receivers", |s| {
            s.notice_receivers = r#"[{"name": "a"}]"#.parse().unwrap();
        }),
        ("failover-history-limit", |s| {
            let one = r#"[{"name": "a", "url": "https://example.com"}]"#;
            s.notice_receivers = one.parse().unwrap();
            s.failover_history_limit = 0;
        }),
        ("notice-source", |s| {
            s.notice_source = "two words".to_owned();
        }),
        ("notice-page-url", |s| s.notice_page_url = "page".to_owned()),
        ("taintmanager and scheduler without", |s| {
            s.controllers = "*,-gracefulEviction".parse().unwrap();
        }),
        ("applicationFailover and scheduler without", |s| {
            s.controllers = "*,-taintmanager,-gracefulEviction".parse().unwrap();
        }),
    ];
    for (name, spoil) in cases {
        let mut settings = Settings::default();
        spoil(&mut settings);
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn the_command_lines_of_karmadas_documentation_are_understood() {
    // "Customizing cluster resource models", for karmada-controller-manager.
    let settings = load(&[
        "--kubeconfig=/etc/kubeconfig",
        "--bind-address=0.0.0.0",
        "--cluster-status-update-frequency=10s",
        "--secure-port=10357",
        "--feature-gates=CustomizedClusterResourceModeling=true",
        "--v=4",
    ])
    .unwrap();
    assert!(settings.gate(&CUSTOMIZED_CLUSTER_RESOURCE_MODELING));
    assert!(settings.enable_cluster_resource_modeling && settings.runs("taintmanager"));
    // "Failover overview" of release 1.3, the flags of the control plane.
    let settings = load(&[
        "--feature-gates=Failover=true,GracefulEviction=true",
        "--cluster-failure-threshold=1m",
        "--cluster-success-threshold=20s",
        "--cluster-lease-duration=60s",
        "--cluster-lease-renew-interval-fraction=0.5",
        "--cluster-monitor-period=5s",
        "--cluster-monitor-grace-period=40s",
        "--failover-eviction-timeout=5m",
        "--default-not-ready-toleration-seconds=300",
        "--default-unreachable-toleration-seconds=300",
        "--graceful-eviction-timeout=10m",
        "--enable-taint-manager=false",
        "--enable-cluster-resource-modeling=false",
    ])
    .unwrap();
    assert!(settings.gate(&FAILOVER) && !settings.runs("taintmanager"));
    assert!(!settings.enable_cluster_resource_modeling);
    assert_eq!(
        settings.cluster_failure_threshold,
        Duration::from_secs(60),
        "as it was given"
    );
}

#[test]
fn admission_on_the_port_of_another_server_is_refused_with_both_names() {
    let seed = "--secure-port=10357";
    for (arguments, other) in [
        (vec!["--cert-dir=/tls", seed], "--health-probe-bind-address"),
        (
            vec!["--webhook-certificate-names=muster.svc", seed],
            "--health-probe-bind-address",
        ),
        (
            vec!["--cert-dir=/tls", "--secure-port=8080"],
            "--metrics-bind-address",
        ),
    ] {
        let error = load(&arguments).unwrap_err().to_string();
        assert!(
            error.contains("secure-port") && error.contains(other),
            "{error}"
        );
    }
    let elsewhere = [
        "--cert-dir=/tls",
        "--bind-address=10.0.0.1",
        "--health-probe-bind-address=127.0.0.1:10357",
    ];
    load(&[&elsewhere[..], &[seed]].concat()).unwrap();
    load(&["--cert-dir=/tls", "--health-probe-bind-address=0", seed]).unwrap();
}

#[test]
fn receivers_of_notices_are_a_list_in_a_file_and_json_elsewhere() {
    let path = std::env::temp_dir().join(format!("muster-notices-{}.yaml", std::process::id()));
    let text = "notice-receivers:\n- {name: a, url: \"https://example.com\", phases: [ended]}\n";
    std::fs::write(&path, text).unwrap();
    let of_file = load(&[&format!("--config={}", path.display())]).unwrap();
    let json = r#"[{"name":"a","url":"https://example.com","phases":["ended"]}]"#;
    let of_flag = load(&[&format!("--notice-receivers={json}")]).unwrap();
    assert_eq!(of_file.notice_receivers, of_flag.notice_receivers);
    assert_eq!(of_flag.notice_receivers.0.len(), 1);
    std::fs::write(&path, "notice-receivers: [{name: a, adress: x}]").unwrap();
    let error = load(&[&format!("--config={}", path.display())]).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let error = error.to_string();
    assert!(
        error.contains("adress") && error.contains("urlFile"),
        "{error}"
    );
}

#[test]
fn a_binding_that_names_no_scheduler_is_for_the_default_one() {
    for (ours, named, is_ours) in [
        ("default-scheduler", None, true),
        ("default-scheduler", Some(""), true),
        ("default-scheduler", Some("other"), false),
        ("ours", None, false),
        ("ours", Some(""), false),
        ("ours", Some("default-scheduler"), false),
        ("ours", Some("ours"), true),
    ] {
        let settings = load(&[&format!("--scheduler-name={ours}")]).unwrap();
        assert_eq!(settings.schedules(named), is_ours, "{ours} {named:?}");
    }
    let settings = load(&["--controllers=*,-scheduler"]).unwrap();
    assert!(!settings.schedules(None));
}
