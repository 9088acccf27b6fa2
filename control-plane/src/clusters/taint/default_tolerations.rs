//! Tolerations that every policy has unless it says otherwise about the same taint.
//!
//! Karmada up to 1.14 added them at admission, so that workloads outlived a short failure of their
//! cluster: `--default-not-ready-toleration-seconds`, `--default-unreachable-toleration-seconds`.
//! The proposal removes them, so they are unset by default. They count when an eviction is judged,
//! and are stored nowhere: a flag that changes must not seem a policy that changed.

use std::borrow::Cow;

use muster_shared::k8s::{Taint, Toleration};
use muster_shared::names::taint::{NOT_READY, UNREACHABLE};
use muster_shared::taints::{NO_EXECUTE, tolerates};

use crate::settings::Settings;

/// For how many seconds the NoExecute taints of the classic mode are tolerated by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefaultTolerations {
    /// The taint `not-ready`; `None`: as the policy says.
    pub not_ready: Option<u32>,
    /// The taint `unreachable`; `None`: as the policy says.
    pub unreachable: Option<u32>,
}

impl DefaultTolerations {
    /// Returns the defaults as the settings have them.
    pub fn of(settings: &Settings) -> Self {
        Self {
            not_ready: settings.default_not_ready_toleration_seconds,
            unreachable: settings.default_unreachable_toleration_seconds,
        }
    }

    /// Returns the tolerations of a policy with the defaults. What the policy itself says of a
    /// taint, for a time or for ever, stands: the rule of Kubernetes' admission for pods.
    pub fn beside(self, own: &[Toleration]) -> Cow<'_, [Toleration]> {
        let mut all = Cow::Borrowed(own);
        for (key, seconds) in [(NOT_READY, self.not_ready), (UNREACHABLE, self.unreachable)] {
            let taint = Taint {
                key: key.to_owned(),
                effect: NO_EXECUTE.to_owned(),
                ..Taint::default()
            };
            let said = own.iter().any(|toleration| tolerates(toleration, &taint));
            if let Some(seconds) = seconds.filter(|_| !said) {
                all.to_mut().push(Toleration {
                    key: Some(taint.key),
                    operator: Some("Exists".to_owned()),
                    effect: Some(taint.effect),
                    toleration_seconds: Some(seconds.into()),
                    ..Toleration::default()
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn not_ready(seconds: i64) -> Value {
        json!({"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    }

    fn unreachable(seconds: i64) -> Value {
        json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    }

    #[test]
    fn a_policy_gets_the_defaults_for_taints_that_it_says_nothing_of() {
        let both = DefaultTolerations {
            not_ready: Some(300),
            unreachable: Some(200),
        };
        let one = DefaultTolerations {
            not_ready: Some(0),
            unreachable: None,
        };
        let all = json!({"operator": "Exists", "tolerationSeconds": 7});
        let other_effect = json!({"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"});
        for (defaults, said, expected) in [
            (DefaultTolerations::default(), json!([]), json!([])),
            (both, json!([]), json!([not_ready(300), unreachable(200)])),
            (one, json!([]), json!([not_ready(0)])),
            (
                both,
                json!([not_ready(5)]),
                json!([not_ready(5), unreachable(200)]),
            ),
            (both, json!([all]), json!([all])),
            (
                both,
                json!([other_effect]),
                json!([other_effect, not_ready(300), unreachable(200)]),
            ),
        ] {
            let own: Vec<Toleration> = serde_json::from_value(said.clone()).unwrap();
            assert_eq!(
                json!(defaults.beside(&own)),
                expected,
                "{defaults:?} where the policy has {said}"
            );
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_settings() {
        let settings = Settings {
            default_not_ready_toleration_seconds: Some(300),
            default_unreachable_toleration_seconds: Some(200),
            ..Settings::default()
        };
        let expected = DefaultTolerations {
            not_ready: Some(300),
            unreachable: Some(200),
        };
        assert_eq!(DefaultTolerations::of(&settings), expected);
        let unset = DefaultTolerations::of(&Settings::default());
        assert_eq!(unset, DefaultTolerations::default());
    }
}
