//! How long a workload may stay on a tainted cluster. Whether the evictor is switched on, and whether cluster and
//! placement are there, is for the caller to know: in those cases there is nothing to compute.

use jiff::Timestamp;
use muster_shared::{
    k8s::{Taint, Toleration},
    taints::{Stay, stay},
};
use serde_json::{Value, from_value, json};

use crate::replay;

#[test]
fn taints_run_out_when_the_reference_says() {
    replay("tolerations", |case| {
        let input = &case.input;
        let set = |name: &str| input[name] == json!(true);
        if set("clusterMissing") || set("placementMissing") || !set("noExecuteEvictionEnabled") {
            return Ok(());
        }
        let now: Timestamp = input["now"].as_str().unwrap().parse().unwrap();
        let taints: Vec<Taint> = list(&input["taints"]);
        let tolerations: Vec<Toleration> = list(&input["tolerations"]);
        let stay = stay(&taints, &tolerations, now);
        let actual = match stay {
            _ if stay.is_over(now) => json!({ "decision": "evictNow" }),
            Stay::Until(end, _) => {
                json!({ "decision": "evictAfter", "afterSeconds": (end - now).get_seconds() })
            }
            _ => json!({ "decision": "never" }),
        };
        if case.output == actual {
            Ok(())
        } else {
            Err(format!("expected {}, got {actual}", case.output))
        }
    });
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    from_value::<Option<Vec<T>>>(value.clone())
        .unwrap()
        .unwrap_or_default()
}
