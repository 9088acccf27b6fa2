//! Kubeconfigs: of users, and of agents.

use muster_fuzz::{Fuzz, sentence};
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::client;

use crate::MEMORY;

const WORDS: &[&str] = &[
    "apiVersion: v1\nkind: Config\n",
    "clusters:\n",
    "- name: fleet\n",
    "  cluster:\n",
    "users:\n",
    "  user:\n",
    "    token: S3CR3T\n",
    "contexts:\n",
    "  context: {cluster: fleet, user: a}\n",
    "current-context: a\n",
    "    server: https://fleet:6443\n",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "\n",
    "    certificate-authority-data: UzNDUjNU\n",
    "    client-key-data: UzNDUjNU\n",
    "&x ",
    "*x",
    "<<: ",
    "!!str ",
    "!!binary ",
    "|\n",
    ">\n",
    "'",
    "\"",
    "#",
    "---\n",
    "...\n",
    "null",
    "~",
    "    insecure-skip-tls-verify: true\n",
    "    proxy-url: http://proxy\n",
    "? ",
    "\t",
];

/// What stands in the kubeconfigs of the corpus for a secret, as it is and in base64.
const SECRETS: [&str; 2] = ["S3CR3T", "UzNDUjNU"];

#[test]
fn a_kubeconfig_is_read_or_refused_and_its_secrets_are_not_reported() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    Fuzz::new("kubeconfig")
        .words(WORDS)
        .generator(|random| sentence(WORDS, random))
        .executions(4_000)
        .memory(MEMORY)
        .run_text(|text| {
            // A file of this machine is not read.
            if text.contains("certificate-authority:") || text.contains("/dev/") {
                return "names a file".to_owned();
            }
            match runtime.block_on(client::from_text(text, "the kubeconfig")) {
                Ok(_) => "reads".to_owned(),
                Err(error) => {
                    let message = format!("{error} {error:?}");
                    for secret in SECRETS {
                        assert!(!message.contains(secret), "{message}");
                    }
                    message
                }
            }
        });
}

#[test]
fn a_kubeconfig_of_an_agent_is_read_as_it_is_written() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    Fuzz::new("kubeconfig-way")
        .words(&[
            "a", ".", "-", "\n", "'", "\"", ":", "#", "yes", "0644", "\u{85}", "é", "{", "\\",
        ])
        .executions(2_000)
        .longest(200)
        .memory(MEMORY)
        .run_text(|text| {
            let (user, token) =
                text.split_at(text.char_indices().nth(3).map_or(text.len(), |it| it.0));
            let way = Way {
                server: "https://fleet:6443/".to_owned(),
                ..Way::default()
            };
            // As the agent and `kubectl muster register` write it.
            let written = serde_saphyr::to_string(&way.with_token(user, token)).unwrap();
            let config = runtime.block_on(client::from_text(&written, "it"));
            let config = match config {
                Ok(config) => config,
                Err(error) => panic!("{written}: {error}"),
            };
            assert_eq!(config.cluster_url.to_string(), way.server);
            let info = format!("{:?}", config.auth_info.token.is_some());
            let read: serde_json::Value = serde_saphyr::from_str(&written).unwrap();
            assert_eq!(read["users"][0]["user"]["token"], token, "{written}");
            assert_eq!(read["current-context"], user, "{written}");
            info
        });
}
