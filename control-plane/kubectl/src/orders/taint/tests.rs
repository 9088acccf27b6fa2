use super::*;
use crate::fixtures::{self, lease};

fn taint(key: &str, value: Option<&str>, effect: &str, added: Option<i64>) -> Taint {
    Taint {
        key: key.into(),
        value: value.map(str::to_owned),
        effect: effect.into(),
        time_added: added.map(|it| Time(Timestamp::from_second(it).unwrap())),
    }
}

#[test]
fn an_argument_is_read_as_by_kubectl_and_refused_with_what_to_write() {
    let add = |key, value, effect| Ok(Edit::Add(taint(key, value, effect, None)));
    let remove = |key: &str, effect: Option<&str>| {
        Ok(Edit::Remove {
            key: key.into(),
            effect: effect.map(str::to_owned),
        })
    };
    for (text, expected) in [
        ("a=b:NoSchedule", add("a", Some("b"), NO_SCHEDULE)),
        (
            "example.com/a:NoExecute",
            add("example.com/a", None, NO_EXECUTE),
        ),
        ("a=:PreferNoExecute", add("a", None, PREFER_NO_EXECUTE)),
        ("a-", remove("a", None)),
        ("a:NoExecute-", remove("a", Some(NO_EXECUTE))),
        ("a=b:NoExecute-", remove("a", Some(NO_EXECUTE))),
        ("a", Err("write a:NoSchedule, or a- to take it off")),
        ("a:NoSched", Err(r#""NoSched" is not an effect"#)),
        ("a:Prefer", Err("is not an effect")),
        ("a b:NoSchedule", Err(r#""a b" is not a taint key"#)),
        ("a=b c:NoSchedule", Err("cannot be the value")),
        ("-", Err("is not a taint key")),
        (
            "failover.muster.io/drain:NoExecute",
            Err("kubectl muster drain"),
        ),
        ("failover.muster.io/drain-", Err("undrain")),
        ("failover.muster.io/cordon-", Err("uncordon")),
        (
            "cluster.karmada.io/unreachable:NoSchedule",
            Err("belongs to the control plane"),
        ),
        ("cluster.karmada.io/not-ready-", Err("one that evicts")),
        (
            "cluster.karmada.io/not-ready:NoExecute",
            add("cluster.karmada.io/not-ready", None, NO_EXECUTE),
        ),
        (
            "cluster.karmada.io/unreachable:NoExecute-",
            remove("cluster.karmada.io/unreachable", Some(NO_EXECUTE)),
        ),
    ] {
        match (text.parse::<Edit>(), expected) {
            (Ok(edit), Ok(expected)) => assert_eq!(edit, expected, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (read, _) => panic!("{text}: {read:?}"),
        }
    }
}

#[test]
fn clusters_are_named_before_taints_as_kubectl_names_nodes() {
    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    use clap::Parser as _;
    let read = |words: &str| {
        let words = std::iter::once("taint").chain(words.split(' '));
        let line = Line::try_parse_from(words)?;
        let (clusters, edits) = line.options.read()?;
        anyhow::Ok((format!("{clusters:?}"), edits.len()))
    };
    for (words, named, taints) in [
        ("member1 k=v:NoSchedule", r#"["member1"]"#, 1),
        ("cluster/member1 k:NoExecute-", r#"["cluster/member1"]"#, 1),
        ("clusters a,b k- j-", r#"["clusters", "a", "b"]"#, 2),
        ("-l region=eu k-", "region=eu", 1),
    ] {
        let (reported, edits) = read(words).unwrap();
        assert!(reported.contains(named), "{words}: {reported}");
        assert_eq!(edits, taints, "{words}");
    }
    for (words, part) in [
        ("member1 k", "write for example k:NoSchedule"),
        ("member1 k=v", "an effect is missing"),
        ("pod/a k-", "write cluster/a"),
    ] {
        let reported = read(words).unwrap_err().to_string();
        assert!(reported.contains(part), "{words}: {reported}");
    }
}

#[test]
fn taints_are_put_on_taken_off_and_overwritten_only_if_that_is_said() {
    let present = [
        taint("a", Some("x"), NO_EXECUTE, Some(1)),
        taint("a", None, NO_SCHEDULE, Some(2)),
        taint("b", None, NO_EXECUTE, Some(3)),
    ];
    let now = Timestamp::from_second(9).unwrap();
    let done = |edit: &str, overwrite| {
        let edits = [edit.parse().unwrap()];
        let after = apply(&present, &edits, overwrite, now).map_err(|it| it.to_string())?;
        let list: Vec<String> = after
            .0
            .iter()
            .map(|it| {
                format!(
                    "{}@{}",
                    describe(it),
                    it.time_added.as_ref().unwrap().0.as_second()
                )
            })
            .collect();
        Ok::<_, String>((list.join(" "), after.1.join(";")))
    };
    let is = |list: &str, reported: &str| Ok((list.to_owned(), reported.to_owned()));
    let before = "a=x:NoExecute@1 a:NoSchedule@2 b:NoExecute@3";
    assert_eq!(
        done("c=y:NoSchedule", false),
        is(
            &format!("{before} c=y:NoSchedule@9"),
            "tainted c=y:NoSchedule"
        )
    );
    assert_eq!(
        done("a=x:NoExecute", false),
        is(before, "has a=x:NoExecute already")
    );
    assert!(
        done("a=y:NoExecute", false)
            .unwrap_err()
            .contains("--overwrite")
    );
    assert_eq!(
        done("a=y:NoExecute", true),
        is(
            "a=y:NoExecute@1 a:NoSchedule@2 b:NoExecute@3",
            "tainted a=y:NoExecute"
        )
    );
    assert_eq!(
        done("a-", false),
        is("b:NoExecute@3", "untainted a=x:NoExecute and a:NoSchedule")
    );
    assert_eq!(
        done("a:NoSchedule-", false),
        is("a=x:NoExecute@1 b:NoExecute@3", "untainted a:NoSchedule")
    );
    assert!(done("c-", false).unwrap_err().contains("no taint c"));
    assert!(
        done("b:NoSchedule-", false)
            .unwrap_err()
            .contains("no taint b:NoSchedule")
    );
}

#[test]
fn an_order_says_which_taints_it_changes() {
    for (text, expected) in [
        ("a=b:NoSchedule", "tainted a=b:NoSchedule"),
        ("a-", "untainted a"),
        ("a:NoExecute-", "untainted a:NoExecute"),
    ] {
        assert_eq!(text.parse::<Edit>().unwrap().to_string(), expected);
    }
}

#[test]
fn an_order_records_only_what_it_changes() {
    let present = [taint("a", Some("x"), NO_EXECUTE, Some(1))];
    let now = Timestamp::from_second(9).unwrap();
    for (edits, expected) in [
        ("a=x:NoExecute", ""),
        ("a=x:NoExecute b:NoSchedule", "tainted b:NoSchedule"),
        ("a=y:NoExecute", "tainted a=y:NoExecute"),
        ("a- a=x:NoExecute", "untainted a, tainted a=x:NoExecute"),
    ] {
        let read: Vec<Edit> = edits.split(' ').map(|it| it.parse().unwrap()).collect();
        let found = changed_by(&present, &read, true, now).unwrap();
        assert_eq!(found.join(", "), expected, "{edits}");
    }
}

#[tokio::test]
async fn a_taint_that_is_to_move_workloads_says_why_it_moves_none() {
    let (on, off) = (
        "--feature-gates=Failover=true",
        "--feature-gates=Failover=false",
    );
    let unjudged = "--enable-taint-manager=false";
    let unheeded = "--enable-no-execute-taint-eviction=false";
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    for (edit, flags, until, expected) in [
        ("a:NoExecute", &[on][..], "00:09", &[][..]),
        ("a:NoExecute", &[], "00:09", &[]),
        ("a:NoExecute", &[off], "00:09", &["gate Failover is off"]),
        (
            "a:PreferNoExecute",
            &[off],
            "00:09",
            &["gate Failover is off"],
        ),
        ("a:NoSchedule", &[off], "00:11", &[]),
        ("a-", &[off], "00:11", &[]),
        ("a:NoExecute", &[unjudged], "00:09", &["taintmanager"]),
        (
            "a:NoExecute",
            &[on, unheeded],
            "00:09",
            &["effect NoExecute"],
        ),
        ("a:PreferNoExecute", &[on, unheeded], "00:09", &[]),
        ("a:NoExecute", &[on], "00:11", &["all movement is paused"]),
        ("a:NoExecute", &[off], "00:11", &["Failover", "paused"]),
    ] {
        let client = fixtures::api(move |request| {
            let is_lease = request.uri().path().contains("/leases/");
            let until = format!("2026-01-01T{until}:00Z");
            let pause = json!({"metadata": {}, "data": {"until": until}});
            let leads = json!(lease("cp-0", "2026-01-01T00:09:58.000000Z"));
            (200, if is_lease { leads } else { pause })
        });
        let movement = MovementState::read(&client).await;
        let given: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
        let running = Running::of(&given, None).unwrap();
        let edits = [edit.parse().unwrap()];
        let found = hindered(&edits, &running, &movement, &[], now);
        assert_eq!(found.len(), expected.len(), "{edit} {flags:?}: {found:?}");
        for (found, part) in found.iter().zip(expected) {
            assert!(found.contains(part), "{edit} {flags:?}: {found}");
        }
    }
}
