//! `kubectl muster taint`: as `kubectl taint`, for clusters.

use std::fmt::Write as _;
use std::str::FromStr;

use anyhow::{bail, ensure};
use clap::Args;
use jiff::Timestamp;
use muster_control_plane::fleet::attribution;
use muster_shared::k8s::{Client, Taint, Time};
use muster_shared::names::taint::{DUPLICATE, NOT_READY, UNREACHABLE};
use muster_shared::selectors::{is_label_key, is_label_value};
use muster_shared::taints::{
    NO_EXECUTE, NO_SCHEDULE, PREFER_NO_EXECUTE, PREFER_NO_SCHEDULE, describe, find, is_of_command,
};
use serde_json::json;

use super::order::change;
use super::server_time::ServerTime;
use crate::author::Why;

/// Effects that a taint of a cluster may have.
const EFFECTS: [&str; 4] = [
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    PREFER_NO_EXECUTE,
    NO_EXECUTE,
];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of the Cluster.
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Taints: `key=value:effect` or `key:effect` is put on, `key:effect-` or `key-` is taken off.
    /// Effects: NoSchedule keeps new workloads out, PreferNoSchedule sends them elsewhere if they
    /// can go elsewhere, PreferNoExecute moves those whose policy has
    /// failover.cluster as well, NoExecute all that do not tolerate it. Both move nothing while the
    /// feature gate Failover is off.
    #[arg(required = true, value_name = "TAINT")]
    taints: Vec<Edit>,
    /// Change the value of a taint that is there.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    why: Why,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// One argument.
#[derive(Clone, Debug, PartialEq)]
enum Edit {
    Add(Taint),
    /// Taints with the key, of one effect or of all.
    Remove {
        key: String,
        effect: Option<String>,
    },
}

impl FromStr for Edit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, removes) = match text.strip_suffix('-') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (name, effect) = match text.rsplit_once(':') {
            Some((name, effect)) => (name, Some(effect)),
            None => (text, None),
        };
        let (key, value) = match name.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (name, None),
        };
        if !is_label_key(key) {
            return Err(format!(
                "{key:?} is not a taint key, such as example.com/maintenance"
            ));
        }
        if let Some(value) = value.filter(|value| !is_label_value(value)) {
            return Err(format!("{value:?} cannot be the value of a taint"));
        }
        if let Some(effect) = effect.filter(|effect| !EFFECTS.contains(effect)) {
            return Err(format!(
                "{effect:?} is not an effect: use {}",
                EFFECTS.join(", ")
            ));
        }
        let taint = Taint {
            key: key.to_owned(),
            value: value.filter(|it| !it.is_empty()).map(str::to_owned),
            effect: effect.unwrap_or_default().to_owned(),
            time_added: None,
        };
        if is_of_command(&taint) {
            return Err(format!(
                "{key} belongs to commands: use kubectl muster drain, undrain, cordon or uncordon"
            ));
        }
        let is_of_state = [NOT_READY, UNREACHABLE, DUPLICATE].contains(&key);
        if is_of_state && effect.is_none_or(|it| it == NO_SCHEDULE) {
            let as_well = match effect {
                None => format!("; write {text}:{NO_EXECUTE}- to take off one that evicts"),
                Some(_) => String::new(),
            };
            return Err(format!(
                "{key}:{NO_SCHEDULE} belongs to the control plane, which puts it on and takes it off by the state of the cluster: \
                 use a key of your own, or kubectl muster cordon{as_well}"
            ));
        }
        if removes {
            let (key, effect) = (taint.key, effect.map(str::to_owned));
            return Ok(Self::Remove { key, effect });
        }
        if effect.is_none() {
            return Err(format!(
                "an effect is missing: write {text}:{NO_SCHEDULE}, or {text}- to take it off"
            ));
        }
        Ok(Self::Add(taint))
    }
}

/// Returns the taints after the edits, and what was done, one line each.
fn apply(
    present: &[Taint],
    edits: &[Edit],
    overwrite: bool,
    now: Timestamp,
) -> anyhow::Result<(Vec<Taint>, Vec<String>)> {
    let (mut taints, mut told) = (present.to_vec(), Vec::new());
    for edit in edits {
        match edit {
            Edit::Add(taint) => match find(&taints, &taint.key, &taint.effect).cloned() {
                Some(known)
                    if known.value.as_deref().unwrap_or_default()
                        == taint.value.as_deref().unwrap_or_default() =>
                {
                    told.push(format!("has {} already", describe(taint)));
                }
                Some(known) => {
                    ensure!(
                        overwrite,
                        "it has {}: use --overwrite to change the value",
                        describe(&known)
                    );
                    let same = |it: &&mut Taint| it.key == taint.key && it.effect == taint.effect;
                    // It is the same taint since the same time: no toleration starts anew.
                    for it in taints.iter_mut().filter(same) {
                        it.value.clone_from(&taint.value);
                    }
                    told.push(format!("tainted {}", describe(taint)));
                }
                None => {
                    taints.push(Taint {
                        time_added: Some(Time(now)),
                        ..taint.clone()
                    });
                    told.push(format!("tainted {}", describe(taint)));
                }
            },
            Edit::Remove { key, effect } => {
                let goes = |it: &Taint| {
                    it.key == *key && effect.as_ref().is_none_or(|effect| it.effect == *effect)
                };
                let gone: Vec<String> = taints.iter().filter(|it| goes(it)).map(describe).collect();
                if gone.is_empty() {
                    let effect = effect.as_ref().map_or(String::new(), |it| format!(":{it}"));
                    bail!("it has no taint {key}{effect}");
                }
                taints.retain(|it| !goes(it));
                told.push(format!("untainted {}", gone.join(" and ")));
            }
        }
    }
    Ok((taints, told))
}

pub(super) async fn carry_out(client: &Client, options: &Options) -> anyhow::Result<String> {
    let name = &options.cluster;
    let time = ServerTime::ask(client).await;
    let author = options.why.author(client).await;
    let order = author.order(attribution::order::TAINT, time.now());
    let lines = std::cell::RefCell::new(Vec::new());
    change(client, name, Some(&order), |cluster| {
        let present = &cluster.spec.taints;
        let (taints, told) = apply(present, &options.taints, options.overwrite, time.now())
            .map_err(|error| error.context(format!("Cluster {name}")))?;
        *lines.borrow_mut() = told;
        let changes = taints != *present && !options.dry_run;
        Ok(changes.then(|| json!({ "spec": { "taints": taints } })))
    })
    .await?;
    let mut told = String::new();
    let dry = if options.dry_run { " (dry run)" } else { "" };
    for line in lines.into_inner() {
        let _ = writeln!(told, "Cluster {name} {line}{dry}");
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let is = |list: &str, told: &str| Ok((list.to_owned(), told.to_owned()));
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
}
