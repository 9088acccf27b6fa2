//! The proxy through which an API is reached, by the rules of kubectl and of Go's programs.
//!
//! kube compares the names in `NO_PROXY` with the proxy, and not with the API server, so that none
//! of them has an effect on any server.

mod kubeconfig;

use std::net::IpAddr;
use std::path::Path;

use http::Uri;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use self::kubeconfig::{assembled, used};

/// Loads the configuration of an API from a kubeconfig. The proxy is that of the kubeconfig, or
/// without one that of the environment.
///
/// # Errors
/// When the kubeconfig is incomplete, or names files that cannot be read.
pub async fn configured(
    file: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Config, KubeconfigError> {
    let own = own(&file, options);
    let mut config = match Config::from_custom_kubeconfig(file.clone(), options).await {
        Err(KubeconfigError::ParseNoProxy(_)) => assembled(&file, options)?,
        made => made?,
    };
    config.proxy_url = match own {
        Some(own) => url_of(&own),
        None => of_environment(&config.cluster_url),
    };
    Ok(config)
}

/// Returns the proxy that the environment names for a server: `HTTPS_PROXY`, or `HTTP_PROXY` for
/// one without TLS, unless `NO_PROXY` excepts the server.
pub fn of_environment(server: &Uri) -> Option<Uri> {
    let [proxy, excepted] = [variable(server), "NO_PROXY"].map(|name| {
        let names = [name.to_owned(), name.to_ascii_lowercase()];
        let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
        values.find(|value| !value.is_empty()).unwrap_or_default()
    });
    chosen(&proxy, &excepted, server)
}

/// Returns the proxy for another server in place of that of a configuration, whose proxy is `own`:
/// that of a kubeconfig is one for all servers, and that of the environment differs by server.
pub fn of_another(own: Option<&Uri>, server: &Uri, other: &Uri) -> Option<Uri> {
    let [of_own, of_other] = [server, other].map(of_environment);
    beside(own, of_own.as_ref(), of_other)
}

/// Returns the proxy for another server. `of_own` and `of_other` are those of the environment.
fn beside(own: Option<&Uri>, of_own: Option<&Uri>, of_other: Option<Uri>) -> Option<Uri> {
    if own == of_own {
        of_other
    } else {
        own.cloned()
    }
}

/// Returns the proxy that a kubeconfig names, for use by other machines; `None` if it names none,
/// or one on this machine.
pub fn of_kubeconfig(path: &Path, context: Option<&str>) -> Option<String> {
    let file = Kubeconfig::read_from(path).ok()?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let is_elsewhere = |proxy: &String| proxy.parse::<Uri>().is_ok_and(|it| !is_here(&it));
    own(&file, &options).filter(is_elsewhere)
}

/// Returns the proxy that the text of a kubeconfig names.
pub fn of_text(text: &str) -> Option<Uri> {
    let file = Kubeconfig::from_yaml(text).ok()?;
    url_of(&own(&file, &KubeConfigOptions::default())?)
}

/// Returns the name of the variable for the proxy of a server.
fn variable(server: &Uri) -> &'static str {
    if is_plain(server) {
        "HTTP_PROXY"
    } else {
        "HTTPS_PROXY"
    }
}

/// Returns the proxy for a server; `None` if there is none, or if the server is excepted.
fn chosen(proxy: &str, excepted: &str, server: &Uri) -> Option<Uri> {
    if proxy.is_empty() || is_excepted(excepted, server) {
        return None;
    }
    url_of(proxy)
}

/// Returns the URL of a proxy. As in Go's programs, one without a scheme is of HTTP, and the port
/// of SOCKS is 1080, for which hyper would take that of HTTP.
fn url_of(proxy: &str) -> Option<Uri> {
    let (scheme, rest) = proxy.split_once("://").unwrap_or(("http", proxy));
    let scheme = scheme.to_ascii_lowercase();
    // Names are resolved by the proxy in either case.
    let scheme = if scheme == "socks5h" {
        "socks5"
    } else {
        &scheme
    };
    let url: Uri = format!("{scheme}://{rest}").parse().ok()?;
    if scheme != "socks5" || url.port().is_some() {
        return Some(url);
    }
    format!("{scheme}://{}:1080", url.authority()?).parse().ok()
}

/// Returns the proxy that a kubeconfig names for the cluster which is used.
fn own(file: &Kubeconfig, options: &KubeConfigOptions) -> Option<String> {
    let (_, cluster) = used(file, options)?;
    let proxy = cluster.proxy_url.clone();
    proxy.filter(|it| !it.is_empty())
}

/// Returns whether a server is reached without the proxy of the environment: it is on this machine,
/// or among the names, addresses and networks of a list.
fn is_excepted(list: &str, server: &Uri) -> bool {
    if is_here(server) {
        return true;
    }
    let host = host(server);
    let address = address(&host);
    let of_scheme = if is_plain(server) { 80 } else { 443 };
    let port = server.port_u16().unwrap_or(of_scheme).to_string();
    let list = list.to_ascii_lowercase();
    let mut entries = list.split(',').map(str::trim);
    entries.any(|entry| excepts(entry, &host, address, &port))
}

/// Returns whether a server is reached without TLS.
fn is_plain(server: &Uri) -> bool {
    server.scheme_str() == Some("http")
}

/// Returns whether a URL leads to this machine.
fn is_here(url: &Uri) -> bool {
    let host = host(url);
    host == "localhost" || address(&host).is_some_and(|it| it.is_loopback())
}

/// Returns the address that a host is; an IPv4 address that is written as one of IPv6 is the same.
fn address(host: &str) -> Option<IpAddr> {
    let address: IpAddr = host.parse().ok()?;
    Some(address.to_canonical())
}

/// Returns the host of a URL, without the brackets of an IPv6 address.
fn host(url: &Uri) -> String {
    without_brackets(url.host().unwrap_or_default()).to_ascii_lowercase()
}

/// Returns whether an entry of the list is about a server. A name is about what is below it, too,
/// and one that begins with a dot about nothing else.
fn excepts(entry: &str, host: &str, server: Option<IpAddr>, port: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((base, length)) = entry.split_once('/') {
        return server.is_some_and(|it| is_within(base, length, it));
    }
    let (name, only) = match entry.rsplit_once(':') {
        // Not the end of an IPv6 address.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port),
        _ => (entry, ""),
    };
    if !only.is_empty() && only != port {
        return false;
    }
    let name = without_brackets(name);
    if server.is_some() {
        return address(name) == server;
    }
    let below = name
        .strip_prefix('*')
        .filter(|below| below.starts_with('.'));
    let name = below.unwrap_or(name);
    let domain = name.strip_prefix('.').unwrap_or(name);
    let is_below = || {
        let above = host.strip_suffix(domain);
        !domain.is_empty() && above.is_some_and(|it| it.ends_with('.'))
    };
    host == name || is_below()
}

/// Returns whether an address is in a network, given by an address of it and the length of its
/// prefix.
fn is_within(base: &str, length: &str, address: IpAddr) -> bool {
    let (Ok(base), Ok(length)) = (base.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    let (base, address, width): (u128, u128, u32) = match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => {
            (base.to_bits().into(), address.to_bits().into(), u32::BITS)
        }
        (IpAddr::V6(base), IpAddr::V6(address)) => (base.to_bits(), address.to_bits(), u128::BITS),
        _ => return false,
    };
    let Some(rest) = width.checked_sub(length) else {
        return false;
    };
    let prefix = |bits: u128| bits.checked_shr(rest).unwrap_or_default();
    prefix(base) == prefix(address)
}

fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_the_list_names_is_reached_without_the_proxy() {
        let svc = "https://muster-fleet-api.muster-system.svc:6443";
        let proxy = "http://10.0.0.9:3128";
        for (excepted, server, is_proxied) in [
            ("", svc, true),
            ("localhost,127.0.0.1,.svc", svc, false),
            ("*.svc", svc, false),
            ("svc", svc, false),
            (".Muster-System.SVC , .local", svc, false),
            (".vc", svc, true),
            (".svc:443", svc, true),
            (".svc:6443", svc, false),
            // A port is a number.
            (".svc:https", svc, true),
            (".svc:", svc, false),
            (":6443", svc, true),
            ("*svc", svc, true),
            ("*", svc, false),
            // The proxy's own address says nothing about the server.
            ("10.0.0.0/8", svc, true),
            ("10.0.0.9", "https://fleet.example.com", true),
            (".example.com", "https://example.com", true),
            ("example.com", "https://example.com", false),
            ("example.com", "https://an-example.com", true),
            ("example.com:443", "https://fleet.example.com", false),
            ("10.0.0.0/8", "https://10.255.1.1:6443", false),
            ("10.0.0.0/8", "https://11.0.0.1:6443", true),
            ("10.0.0.7/32", "https://10.0.0.6", true),
            ("0.0.0.0/0", "https://192.0.2.1", false),
            ("10.0.0.7", "https://10.0.0.7:6443", false),
            ("10.0.0.7:443", "https://10.0.0.7:6443", true),
            ("10.0.0.0/33,/8,a/b,,", "https://10.0.0.7", true),
            ("fd00::/8", "https://[fd12::1]:6443", false),
            ("::/0", "https://[fd12::1]", false),
            ("::/0", "https://10.0.0.7", true),
            ("10.0.0.7", "https://[::ffff:10.0.0.7]:6443", false),
            ("fd12::1", "https://[fd12::1]:6443", false),
            ("[fd12::1]:443", "https://[fd12::1]:6443", true),
            ("", "https://127.0.0.1:6443", false),
            ("", "http://localhost:8001", false),
            ("", "https://[::1]:6443", false),
            ("", "https://[::ffff:127.0.0.1]:6443", false),
        ] {
            let found = chosen(proxy, excepted, &server.parse().unwrap());
            let expected: Option<Uri> = is_proxied.then(|| proxy.parse().unwrap());
            assert_eq!(found, expected, "{excepted:?} {server}");
            assert_eq!(chosen("", excepted, &server.parse().unwrap()), None);
        }
    }

    #[test]
    fn a_proxy_is_understood_as_by_programs_in_go() {
        let server: Uri = "https://fleet.example.com".parse().unwrap();
        for (proxy, expected) in [
            ("http://proxy:3128", Some("http://proxy:3128/")),
            ("proxy:3128", Some("http://proxy:3128/")),
            ("a:b@proxy", Some("http://a:b@proxy/")),
            ("https://proxy", Some("https://proxy/")),
            ("socks5://a:b@proxy", Some("socks5://a:b@proxy:1080/")),
            ("socks5://[fd12::1]", Some("socks5://[fd12::1]:1080/")),
            ("socks5h://proxy:9050", Some("socks5://proxy:9050/")),
            ("SOCKS5://proxy", Some("socks5://proxy:1080/")),
            ("Socks5h://proxy", Some("socks5://proxy:1080/")),
            ("HTTP://proxy", Some("http://proxy/")),
            ("http://", None),
        ] {
            let found = chosen(proxy, "", &server).map(|it| it.to_string());
            assert_eq!(found.as_deref(), expected, "{proxy}");
        }
        for (server, expected) in [
            ("https://fleet.example.com", "HTTPS_PROXY"),
            ("http://fleet.example.com:8080", "HTTP_PROXY"),
        ] {
            assert_eq!(variable(&server.parse().unwrap()), expected, "{server}");
        }
    }

    #[test]
    fn the_proxy_of_a_kubeconfig_is_for_all_servers_and_that_of_the_environment_for_each_by_itself()
    {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let (own, environment) = (Some("http://own"), Some("http://environment"));
        for (proxy, of_own, of_other, expected) in [
            (own, None, None, own),
            (own, environment, environment, own),
            (environment, environment, environment, environment),
            (environment, environment, None, None),
            (None, None, environment, environment),
            (None, environment, environment, None),
            (None, None, None, None),
        ] {
            let case = format!("{proxy:?} {of_own:?} {of_other:?}");
            let [proxy, of_own, of_other, expected] =
                [proxy, of_own, of_other, expected].map(|it: Option<&str>| it.map(uri));
            let found = beside(proxy.as_ref(), of_own.as_ref(), of_other);
            assert_eq!(found, expected, "{case}");
        }
    }

    #[tokio::test]
    async fn the_proxy_of_a_kubeconfig_is_that_of_the_cluster_which_is_used() {
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
            clusters:\n\
            - {name: one, cluster: {server: 'https://127.0.0.1', proxy-url: 'http://proxy:1'}}\n\
            - {name: two, cluster: {server: 'https://127.0.0.1', proxy-url: ''}}\n\
            contexts:\n- {name: a, context: {cluster: one}}\n- {name: b, context: {cluster: two}}\n";
        let options = |context: Option<&str>, cluster: Option<&str>| KubeConfigOptions {
            context: context.map(str::to_owned),
            cluster: cluster.map(str::to_owned),
            user: None,
        };
        let proxy = Some("http://proxy:1");
        for (context, cluster, expected) in [
            (None, None, proxy),
            (Some("b"), None, None),
            (None, Some("two"), None),
            (Some("b"), Some("one"), proxy),
        ] {
            let file = Kubeconfig::from_yaml(text).unwrap();
            let config = configured(file, &options(context, cluster)).await.unwrap();
            let expected: Option<Uri> = expected.map(|it| it.parse().unwrap());
            assert_eq!(config.proxy_url, expected, "{context:?} {cluster:?}");
        }
    }

    #[test]
    fn a_proxy_on_this_machine_is_of_no_use_to_others() {
        let name = format!("muster-proxy-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        for (proxy, is_shared) in [
            ("http://proxy.example.com:3128", true),
            ("socks5://10.0.0.9:1080", true),
            ("socks5://localhost:1080", false),
            ("http://127.0.0.1:3128", false),
            ("http://[::1]:3128", false),
            ("", false),
        ] {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
                 clusters: [{{name: one, cluster: {{server: 'https://m1', proxy-url: '{proxy}'}}}}]\n\
                 contexts: [{{name: a, context: {{cluster: one}}}}]\n"
            );
            std::fs::write(&path, text).unwrap();
            let expected = is_shared.then(|| proxy.to_owned());
            assert_eq!(of_kubeconfig(&path, None), expected, "{proxy}");
            assert_eq!(of_kubeconfig(&path, Some("b")), None, "{proxy}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
