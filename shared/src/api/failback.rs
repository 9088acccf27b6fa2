//! Return of a resource to a cluster that it had to leave: the `failback` of a policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, macros::open_enum, nullable};

/// Return of a resource to a cluster that it left because of a taint. Muster's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["mode"]))]
pub struct Failback {
    /// Whether the resource returns.
    ///
    /// - `Never`: it stays where it is. `kubectl muster rebalance` brings it back.
    /// - `WhenHealthy`: when the cluster has been healthy for `afterSeconds`.
    pub mode: FailbackMode,

    /// Seconds for which the cluster has to be healthy before: ready, without a taint that evicts,
    /// and neither cordoned, drained nor being removed. A cluster that fails again starts the count
    /// anew. If absent, the flag `--failback-after` decides.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("minimum" = 1))]
    pub after_seconds: Option<i32>,

    /// Times at which a return may begin. If absent, the flag `--failback-window` decides.
    #[serde(skip_serializing_if = "absent")]
    pub window: Option<FailbackWindow>,
}

/// Times of the week at which workloads may return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["start", "end"]))]
pub struct FailbackWindow {
    /// Days on which the window begins. If absent, every day.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    #[schemars(length(max = 7))]
    pub days: Vec<Weekday>,

    /// Beginning of the window, as `HH:MM` between `00:00` and `23:59`.
    #[schemars(extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,

    /// End of the window, as `HH:MM`. If it is not later than `start`, the window ends on the next
    /// day.
    #[schemars(extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub end: String,

    /// Time zone of days and times by its name in the IANA database, such as `Europe/Berlin`. If
    /// absent, UTC.
    #[serde(skip_serializing_if = "absent")]
    pub time_zone: Option<String>,
}

open_enum! {
    /// Whether a resource returns to a cluster that it had to leave.
    FailbackMode {
        /// It stays where it is.
        Never = "Never",
        /// It returns when the cluster has been healthy for a time.
        WhenHealthy = "WhenHealthy",
    }
}

open_enum! {
    /// Day of the week.
    Weekday {
        /// Monday.
        Monday = "Monday",
        /// Tuesday.
        Tuesday = "Tuesday",
        /// Wednesday.
        Wednesday = "Wednesday",
        /// Thursday.
        Thursday = "Thursday",
        /// Friday.
        Friday = "Friday",
        /// Saturday.
        Saturday = "Saturday",
        /// Sunday.
        Sunday = "Sunday",
    }
}
