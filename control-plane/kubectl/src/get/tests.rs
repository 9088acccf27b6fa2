use serde_json::{Value, json};

use super::*;
use crate::fixtures;

fn binding(kind: &str, name: &str) -> Value {
    let version = if kind == "Deployment" {
        "apps/v1"
    } else {
        "v1"
    };
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{name}-{}", kind.to_lowercase()), "namespace": "shop"},
        "spec": {
            "resource": {"apiVersion": version, "kind": kind, "namespace": "shop", "name": name},
            "clusters": [{"name": "m1"}],
        },
    })
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {}, "items": items})
}

/// Returns an API with two clusters and three workloads, of which those with `app=web` are
/// Deployment web and Service web, and nothing has `app=none`.
fn api() -> Client {
    fixtures::api(|request| {
        let query = request.uri().query().unwrap_or_default();
        let path = request.uri().path();
        let bindings = [
            binding("Deployment", "web"),
            binding("Deployment", "shop"),
            binding("Service", "web"),
        ];
        let of = |name: &str| json!({"metadata": {"name": name, "namespace": "shop"}});
        let cluster =
            |name: &str| json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull"}});
        let is_selected = query.contains("labelSelector=");
        let body = match path {
            _ if query.contains("none") => list(&[]),
            "/apis/cluster.karmada.io/v1alpha1/clusters" if is_selected => list(&[cluster("m2")]),
            "/apis/cluster.karmada.io/v1alpha1/clusters" => list(&[cluster("m1"), cluster("m2")]),
            "/apis/cluster.karmada.io/v1alpha1/clusters/m1" => cluster("m1"),
            path if path.ends_with("/resourcebindings") => list(&bindings),
            "/apis/apps/v1" => json!({"groupVersion": "apps/v1", "resources": [
                {"name": "deployments", "singularName": "", "kind": "Deployment", "namespaced": true, "verbs": ["list"]},
            ]}),
            "/api/v1" => json!({"groupVersion": "v1", "resources": [
                {"name": "services", "singularName": "", "kind": "Service", "namespaced": true, "verbs": ["list"]},
            ]}),
            "/apis/apps/v1/namespaces/shop/deployments" | "/api/v1/namespaces/shop/services"
                if is_selected =>
            {
                list(&[of("web")])
            }
            _ => list(&[]),
        };
        (200, body)
    })
}

async fn names(words: &str) -> anyhow::Result<Vec<String>> {
    let text = text(&format!("{words} -o name")).await?;
    Ok(text.lines().map(str::to_owned).collect())
}

async fn text(words: &str) -> anyhow::Result<String> {
    let words = format!("kubectl-muster get {words} -n shop");
    let line = crate::line::parse(words.split(' '))?;
    let crate::Question::Get(options) = line.question else {
        anyhow::bail!("not what was asked");
    };
    carry_out(&api(), "shop", &options).await
}

#[tokio::test]
async fn where_there_is_nothing_the_answer_says_what_was_asked_for() {
    for (words, expected) in [
        (
            "cl -l app=none",
            "There are none with labels that \"app=none\" matches.\n",
        ),
        (
            "wl -l app=none --cluster m1",
            "There are none on m1 with labels that \"app=none\" matches in namespace shop (-A looks in all).\n",
        ),
        (
            "wl -A -l app=none",
            "There are none with labels that \"app=none\" matches.\n",
        ),
        ("wl -l app=none -o json", "[]\n"),
        ("cl -l app=none -o name", ""),
    ] {
        assert_eq!(text(words).await.unwrap(), expected, "{words}");
    }
}

#[tokio::test]
async fn what_is_named_or_selected_is_shown_and_nothing_else() {
    let [m1, m2] = ["m1", "m2"].map(|it| format!("cluster.cluster.karmada.io/{it}"));
    for (words, expected) in [
        ("clusters", vec![m1.as_str(), m2.as_str()]),
        ("clusters cluster/m1", vec![&m1]),
        ("cl -l region=eu", vec![&m2]),
        ("wl web", vec!["deployment/web", "service/web"]),
        ("wl deployment/web", vec!["deployment/web"]),
        (
            "wl deploy web,shop",
            vec!["deployment/web", "deployment/shop"],
        ),
        ("wl rb/web-service", vec!["service/web"]),
        ("wl -l app=web", vec!["deployment/web", "service/web"]),
    ] {
        assert_eq!(names(words).await.unwrap(), expected, "{words}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_answered_with_what_is_and_what_may_be_meant() {
    for (words, part) in [
        ("wl wbe", "is it web?"),
        ("wl deployment/wbe", "is it deployment/web?"),
        ("deployments", "write kubectl muster get deployments/NAME"),
        ("rb", "kubectl get rb shows"),
        ("worklaods", "is it workloads?"),
        ("pods", "clusters (cluster, cl) and workloads"),
    ] {
        let reported = names(words).await.unwrap_err().to_string();
        assert!(reported.contains(part), "{words}: {reported}");
    }
}
