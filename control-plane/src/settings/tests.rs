use super::*;

#[test]
fn the_defaults_are_accepted_and_move_nothing() {
    let settings = Settings::default();
    settings.check().unwrap();
    assert!(!settings.gate(&FAILOVER));
    assert!(settings.runs("scheduler"));
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
    ] {
        let expected: Duration = format!("{seconds}s").parse().unwrap();
        assert_eq!(duration, expected, "{name}");
    }
}

#[test]
fn senseless_values_are_refused_by_name() {
    type Spoil = fn(&mut Settings);
    let cases: [(&str, Spoil); 9] = [
        ("evict-plugins", |s| s.evict_plugins = Words(Vec::new())),
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
    ];
    for (name, spoil) in cases {
        let mut settings = Settings::default();
        spoil(&mut settings);
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}
