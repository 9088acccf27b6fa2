//! The configuration of a kubeconfig, where kube does not make it.
//!
//! kube refuses every kubeconfig while `NO_PROXY` has an entry that it does not know, such as an
//! empty one after a last comma. Go's programs pass over such an entry.

use kube::Config;
use kube::config::{
    Cluster, Context, ExecAuthCluster, KubeConfigOptions, Kubeconfig, KubeconfigError,
};

use crate::tls;

/// Returns the context and the cluster of a kubeconfig that are used.
pub(super) fn used<'a>(
    file: &'a Kubeconfig,
    options: &KubeConfigOptions,
) -> Option<(&'a Context, &'a Cluster)> {
    let name = options.context.as_ref().or(file.current_context.as_ref())?;
    let context = file.contexts.iter().find(|it| it.name == *name)?;
    let context = context.context.as_ref()?;
    let name = options.cluster.as_ref().unwrap_or(&context.cluster);
    let cluster = file.clusters.iter().find(|it| it.name == *name)?;
    Some((context, cluster.cluster.as_ref()?))
}

/// Returns the configuration of a kubeconfig without a proxy. kube has read the server and the
/// authorities before, and would have said what is wrong with them.
pub(super) fn assembled(
    file: &Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Config, KubeconfigError> {
    let (context, cluster) = used(file, options).ok_or(KubeconfigError::CurrentContextNotSet)?;
    let server = cluster.server.as_ref();
    let server = server
        .ok_or(KubeconfigError::MissingClusterUrl)?
        .parse::<http::Uri>();
    let mut config = Config::new(server.map_err(KubeconfigError::ParseClusterUrl)?);
    let shown = ExecAuthCluster::try_from(cluster)?;
    let authorities = shown.certificate_authority_data.as_deref();
    config.root_cert = authorities.map(tls::authorities);
    if let Some(namespace) = &context.namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    let name = options.user.as_ref().or(context.user.as_ref());
    let user = file.auth_infos.iter().find(|it| Some(&it.name) == name);
    config.auth_info = user.and_then(|it| it.auth_info.clone()).unwrap_or_default();
    if let Some(plugin) = &mut config.auth_info.exec
        && plugin.provide_cluster_info
    {
        plugin.cluster = Some(shown);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// Returns a kubeconfig with two clusters, users and contexts, of which all fields are set
    /// once.
    fn kubeconfig() -> Kubeconfig {
        let pem = rcgen::generate_simple_self_signed(["fleet".to_owned()]);
        let pem = pem.unwrap().cert.pem();
        let authority = STANDARD.encode(format!("Issuer: of the fleet\n{pem}{pem}"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             clusters:\n\
             - {{name: one, cluster: {{server: 'https://one:6443', tls-server-name: fleet, certificate-authority-data: {authority}}}}}\n\
             - {{name: two, cluster: {{server: 'https://two', insecure-skip-tls-verify: true, disable-compression: true}}}}\n\
             users:\n\
             - {{name: jane, user: {{token: secret, as: joe}}}}\n\
             - name: plugin\n  user: {{exec: {{apiVersion: v1, command: login, provideClusterInfo: true}}}}\n\
             contexts:\n\
             - {{name: a, context: {{cluster: one, user: jane, namespace: apps}}}}\n\
             - {{name: b, context: {{cluster: two, user: plugin}}}}\n\
             - {{name: c, context: {{cluster: two, user: nobody}}}}\n"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    #[tokio::test]
    async fn the_configuration_is_that_of_kube() {
        let file = kubeconfig();
        for (context, cluster, user) in [
            (None, None, None),
            (Some("b"), None, None),
            (Some("c"), None, None),
            (Some("b"), Some("one"), None),
            (None, Some("two"), Some("plugin")),
        ] {
            let options = KubeConfigOptions {
                context: context.map(str::to_owned),
                cluster: cluster.map(str::to_owned),
                user: user.map(str::to_owned),
            };
            let of_kube = Config::from_custom_kubeconfig(file.clone(), &options).await;
            let mut of_kube = of_kube.unwrap();
            of_kube.proxy_url = None;
            let found = assembled(&file, &options).unwrap();
            let case = format!("{context:?} {cluster:?} {user:?}");
            assert_eq!(format!("{found:?}"), format!("{of_kube:?}"), "{case}");
        }
        let absent = KubeConfigOptions {
            context: Some("d".to_owned()),
            ..KubeConfigOptions::default()
        };
        assert!(assembled(&file, &absent).is_err());
    }
}
