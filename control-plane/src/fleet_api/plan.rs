//! Secrets of a bundled fleet API, and the certificates in them. Pure.

use std::net::IpAddr;

/// Longest number of etcd members. Certificates name as many, whatever number runs.
const ETCD_MEMBERS: usize = 3;
/// Port of the fleet API's Service.
pub(super) const PORT: u16 = 6443;
/// User name of the control plane at the fleet API (charts/control-plane/access).
pub const CONTROL_PLANE: &str = "system:muster:control-plane";
/// User name of the page at the fleet API (charts/control-plane/access).
pub const PAGE: &str = "system:muster:page";
/// Group of administrators at the fleet API, which is bound to cluster-admin. Unlike
/// `system:masters` it can be taken its rights.
pub(crate) const ADMINISTRATORS: &str = "muster:administrators";
/// User name of kube-controller-manager that the API server's own roles know.
const MANAGER: &str = "system:kube-controller-manager";

/// Names that the Secrets and certificates derive from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Start of the names of all objects, such as `muster-fleet`.
    pub prefix: String,
    /// Namespace in the host cluster.
    pub namespace: String,
    /// DNS domain of the host cluster.
    pub cluster_domain: String,
    /// URL of the fleet API for members and people.
    pub address: String,
    /// Further DNS names and IP addresses of the fleet API.
    pub names: Vec<String>,
    /// Whether the page that is served to others has an account.
    pub has_page: bool,
}

/// The authority that signs a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// The authority of the fleet API and of all its clients, agents included.
    Fleet,
    /// The authority of etcd. No client of the fleet API has a certificate of it.
    Etcd,
}

/// Kubeconfig in a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kubeconfig {
    /// None.
    None,
    /// One that names the certificate's files beside it: kube-controller-manager reads renewed
    /// files, and never a renewed kubeconfig.
    Files,
    /// One with everything in it, for the host cluster.
    Inside,
    /// One with everything in it, for everywhere.
    Outside,
}

/// A certificate and the Secret that it is stored in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Name of the Secret.
    pub secret: String,
    /// Purpose, in words for people.
    pub purpose: &'static str,
    /// The authority that signs it.
    pub signer: Signer,
    /// Common name: the user, where it is a client's.
    pub user: String,
    /// Organization: the user's group.
    pub group: Option<String>,
    /// DNS names and IP addresses, sorted.
    pub names: Vec<String>,
    /// Whether a server presents it.
    pub serves: bool,
    /// Whether a client presents it.
    pub asks: bool,
    /// The kubeconfig beside it.
    pub kubeconfig: Kubeconfig,
}

impl Site {
    /// Returns the name of an object.
    pub(super) fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.prefix)
    }

    /// Returns the URL of the fleet API within the host cluster.
    pub(super) fn inside(&self) -> String {
        format!("https://{}.{}.svc:{PORT}", self.name("api"), self.namespace)
    }

    /// Returns the URL of the fleet API for members and people.
    pub(super) fn outside(&self) -> String {
        if self.address.is_empty() {
            self.inside()
        } else {
            self.address.trim_end_matches('/').to_owned()
        }
    }

    /// Returns the certificates of everything that belongs to the fleet API.
    pub(super) fn leaves(&self) -> Vec<Leaf> {
        let client = |what: &str, user: &str| Leaf {
            secret: self.name(what),
            purpose: "",
            signer: Signer::Fleet,
            user: user.to_owned(),
            group: None,
            names: Vec::new(),
            serves: false,
            asks: true,
            kubeconfig: Kubeconfig::None,
        };
        let page = self.has_page.then(|| Leaf {
            purpose: "certificate of the page",
            kubeconfig: Kubeconfig::Inside,
            ..client("page", PAGE)
        });
        let mut all = vec![
            Leaf {
                purpose: "serving certificate of kube-apiserver",
                names: self.api_names(),
                serves: true,
                asks: false,
                ..client("api-tls", "kube-apiserver")
            },
            Leaf {
                purpose: "certificate of kube-apiserver at etcd",
                signer: Signer::Etcd,
                ..client("etcd-client", "kube-apiserver")
            },
            Leaf {
                purpose: "certificate of the members of etcd",
                signer: Signer::Etcd,
                names: self.etcd_names(),
                serves: true,
                ..client("etcd-tls", "etcd")
            },
            Leaf {
                purpose: "certificate of kube-controller-manager",
                kubeconfig: Kubeconfig::Files,
                ..client("manager", MANAGER)
            },
            Leaf {
                purpose: "certificate of the control plane",
                kubeconfig: Kubeconfig::Inside,
                ..client("control-plane", CONTROL_PLANE)
            },
            Leaf {
                purpose: "certificate of administrators",
                group: Some(ADMINISTRATORS.to_owned()),
                kubeconfig: Kubeconfig::Outside,
                ..client("admin", "muster-admin")
            },
        ];
        all.extend(page);
        all
    }

    fn api_names(&self) -> Vec<String> {
        let mut names = self.service_names(&self.name("api"));
        // `kubernetes.default.svc` is the name by which clients inside a cluster know its API.
        names.extend(["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned));
        names.extend(host(&self.address));
        names.extend(self.names.iter().filter(|it| !it.is_empty()).cloned());
        sorted(names)
    }

    fn etcd_names(&self) -> Vec<String> {
        let service = self.name("etcd");
        let mut names = self.service_names(&service);
        names.extend(["localhost", "127.0.0.1"].map(str::to_owned));
        for member in 0..ETCD_MEMBERS {
            names.extend(self.service_names(&format!("{service}-{member}.{service}")));
        }
        sorted(names)
    }

    fn service_names(&self, service: &str) -> Vec<String> {
        let (namespace, domain) = (&self.namespace, &self.cluster_domain);
        vec![
            service.to_owned(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.{domain}"),
        ]
    }
}

/// Returns the host of a URL without its port.
pub(super) fn host(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| host.to_owned())
}

/// Returns names once each, in an order that is always the same; addresses as they are written in
/// certificates.
pub(super) fn sorted(names: Vec<String>) -> Vec<String> {
    let plain = |name: String| match name.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => name.to_lowercase(),
    };
    let mut names: Vec<String> = names.into_iter().map(plain).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a site with an address of its own.
    pub(in super::super) fn site() -> Site {
        Site {
            prefix: "muster-fleet".to_owned(),
            namespace: "muster-system".to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            address: "https://fleet.example.com:6443".to_owned(),
            names: vec!["192.0.2.7".to_owned()],
            has_page: true,
        }
    }

    fn leaf(secret: &str) -> Leaf {
        let mut all = site().leaves().into_iter();
        all.find(|it| it.secret == secret).unwrap()
    }

    #[test]
    fn each_certificate_has_the_usages_of_its_holder_and_no_others() {
        let table = |site: Site| -> Vec<String> {
            let row = |it: Leaf| {
                let usages = [("serves ", it.serves), ("asks ", it.asks)];
                let usages = usages.into_iter().filter(|it| it.1).map(|it| it.0);
                let usages: String = usages.collect();
                let group = it
                    .group
                    .map_or_else(String::new, |group| format!(" in {group}"));
                format!(
                    "{} of {:?}: {usages}as {}{group}",
                    it.secret, it.signer, it.user
                )
            };
            site.leaves().into_iter().map(row).collect()
        };
        let expected = [
            "muster-fleet-api-tls of Fleet: serves as kube-apiserver",
            "muster-fleet-etcd-client of Etcd: asks as kube-apiserver",
            "muster-fleet-etcd-tls of Etcd: serves asks as etcd",
            "muster-fleet-manager of Fleet: asks as system:kube-controller-manager",
            "muster-fleet-control-plane of Fleet: asks as system:muster:control-plane",
            "muster-fleet-admin of Fleet: asks as muster-admin in muster:administrators",
            "muster-fleet-page of Fleet: asks as system:muster:page",
        ];
        assert_eq!(table(site()), expected);
        let without = Site {
            has_page: false,
            ..site()
        };
        assert_eq!(table(without), expected[..expected.len() - 1]);
    }

    #[test]
    fn the_api_is_known_by_its_service_its_address_and_every_further_name() {
        let names = leaf("muster-fleet-api-tls").names;
        for name in [
            "muster-fleet-api",
            "muster-fleet-api.muster-system.svc",
            "muster-fleet-api.muster-system.svc.cluster.local",
            "fleet.example.com",
            "192.0.2.7",
            "localhost",
            "127.0.0.1",
        ] {
            assert!(names.iter().any(|it| it == name), "{name} in {names:?}");
        }
    }

    #[test]
    fn every_member_of_etcd_is_known_whatever_number_runs() {
        let names = leaf("muster-fleet-etcd-tls").names;
        for member in 0..3 {
            let name = format!("muster-fleet-etcd-{member}.muster-fleet-etcd.muster-system.svc");
            assert!(names.contains(&name), "{name} in {names:?}");
        }
    }

    #[test]
    fn the_host_of_an_address_is_a_name_or_an_ip_address() {
        for (url, expected) in [
            ("https://fleet.example.com:6443", Some("fleet.example.com")),
            ("https://10.0.0.1", Some("10.0.0.1")),
            ("https://[2001:db8::1]:443/", Some("2001:db8::1")),
            ("", None),
            ("/path", None),
        ] {
            assert_eq!(host(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn without_an_address_members_get_the_service() {
        let site = Site {
            address: String::new(),
            ..site()
        };
        assert_eq!(
            site.outside(),
            "https://muster-fleet-api.muster-system.svc:6443"
        );
    }
}
