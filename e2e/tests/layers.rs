//! Layers point one way: a module uses only modules of floors below its own.
//!
//! Each crate declares its modules from the lowest floor to the highest. A module may use those
//! that are named before it; a module that is not named fails the test, so that nobody adds one
//! without saying where it belongs. Modules in one set of brackets may use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Modules of one crate, the lowest first.
type Floors = &'static [&'static [&'static str]];

const SHARED: Floors = &[
    &["testing"],
    &["text"],
    &["clock"],
    &["tasks"],
    &["jsonpath"],
    &["names"],
    &["k8s"],
    &["finalizers"],
    &["finished"],
    &["resource"],
    &["fleet_epoch"],
    &["interner"],
    &["merge"],
    &["protobuf"],
    &["remind"],
    &["spare"],
    &["tls"],
    &["fleet_servers"],
    &["api"],
    &["conditions"],
    &["fencing"],
    &["peers"],
    &["taints"],
    &["selectors"],
    &["work_status"],
    // `watch` reads pods as `capacity` counts them, and `capacity` takes in events of `watch`.
    &["queue"],
    &["capacity", "watch"],
    &["controller"],
    &["certificate"],
    // A client reports by events that it has no credentials any more; events are written by
    // clients.
    &["client", "events"],
    &["fleet_id"],
    &["check", "self_report"],
    &["write"],
    &["lease"],
    &["http_server"],
    &["telemetry"],
    &["serve"],
    &["https"],
    &["settings"],
];

/// The rules for pods are those of the library of scripts; errors quote values as scripts do.
const INTERPRETER: Floors = &[
    &["operation"],
    &["question"],
    &["lua", "pod", "read"],
    &["webhook"],
    &["error"],
    &["native"],
    &["interpreter"],
    &["layers"],
    &["failures"],
    &["interpreters"],
    &["sources"],
];

const AGENT: Floors = &[
    &["testing"],
    &["measures"],
    &["digest"],
    &["write"],
    &["records"],
    &["fleet_id"],
    &["fleet_server"],
    &["accounts"],
    &["settings"],
    &["discovery"],
    &["census"],
    &["health"],
    &["heartbeat"],
    &["certificate"],
    &["work"],
    &["join"],
    &["credentials"],
    &["report"],
    &["check"],
    &["wiring"],
];

/// What all controllers share lies at the bottom, what people talk to at the top.
const CONTROL_PLANE: Floors = &[
    &["deviations"],
    &["settings"],
    &["definitions"],
    &["fleet"],
    &["scheduler"],
    &["clusters"],
    &["notices"],
    &["movement"],
    &["propagation"],
    &["traffic"],
    &["fleet_api"],
    &["admission"],
    &["wiring"],
];

/// Floors within the folders of the control plane that hold several controllers.
const FOLDERS: &[(&str, Floors)] = &[
    (
        "clusters",
        &[
            &["taint"],
            &["policy_status"],
            &["cluster"],
            &["peers"],
            &["workloads"],
            &["push"],
            &["registration"],
        ],
    ),
    (
        "movement",
        &[
            &["eviction"],
            &["graceful_eviction"],
            &["application_failover"],
            &["failovers"],
            &["rebalance"],
        ],
    ),
    (
        "propagation",
        &[
            &["overrides"],
            &["data"],
            &["binding"],
            &["detector"],
            &["status"],
            &["interpreters"],
        ],
    ),
];

/// What commands share.
const KUBECTL: Floors = &[
    &["fixtures"],
    &["table"],
    &["suspension"],
    &["output"],
    &["rows"],
    &["held_back"],
    &["install"],
    &["evicting"],
    &["pace"],
    &["list"],
    &["author"],
    &["request"],
    &["chosen"],
    // The command line is that of the flags of the connection, whose tests read command lines.
    &["connection", "line"],
    &["subject"],
    &["running"],
    &["leader"],
    &["view"],
    &["old_copies"],
    &["cluster_row"],
    &["dependencies"],
    &["standstill"],
    &["follow"],
    &["jobs"],
    &["forecast"],
    &["removal"],
];

/// Commands, none of which uses another.
const COMMANDS: Floors = &[
    &["check"],
    &["completion"],
    &["explain"],
    &["get"],
    &["orders"],
    &["history"],
    &["interpret"],
    &["join"],
    &["rebalance"],
    &["register"],
    &["report"],
    &["simulate"],
    &["status"],
    &["token"],
    &["top"],
    &["ui"],
    &["unregister"],
    &["version"],
];

/// The embedded API server, from what is on the wire to what a test starts.
const APISERVER: Floors = &[
    &["catalog"],
    &["wire"],
    &["audit"],
    &["faults"],
    &["schema"],
    &["store"],
    &["table"],
    &["registry"],
    &["apply"],
    &["patch"],
    &["auth"],
    &["admission_config"],
    &["context"],
    &["kinds"],
    &["admission"],
    &["verbs"],
    &["subresources"],
    &["reviews"],
    &["openapi"],
    &["discovery"],
    &["paths"],
    &["controllers"],
    &["server"],
    &["serve"],
    &["snapshot"],
    &["running"],
    &["seed"],
    &["testing"],
];

/// Oracles know the history alone, and what features are in it; faults and the network need each
/// other's words.
const SIMULATION: Floors = &[
    &["history"],
    &["clock"],
    &["fault_kind"],
    &["oracle", "feature", "replication"],
    &["pairs"],
    &["people"],
    &["random"],
    &["design"],
    &["faults", "network", "recorder"],
    &["plan"],
    &["generate"],
    &["scenarios"],
    &["found"],
    &["shrink"],
    &["story"],
    &["world"],
    &["run"],
    &["child"],
    &["sieve"],
    &["search"],
];

#[test]
fn layers_of_shared_point_one_way() {
    assert_eq!(arrows_upwards("shared", SHARED), Vec::<String>::new());
}

#[test]
fn layers_of_the_interpreters_point_one_way() {
    assert_eq!(
        arrows_upwards("shared/interpreter", INTERPRETER),
        Vec::<String>::new()
    );
}

#[test]
fn layers_of_the_agent_point_one_way() {
    assert_eq!(arrows_upwards("agent", AGENT), Vec::<String>::new());
}

#[test]
fn layers_of_the_control_plane_point_one_way() {
    assert_eq!(
        arrows_upwards("control-plane", CONTROL_PLANE),
        Vec::<String>::new()
    );
}

#[test]
fn layers_within_the_folders_of_the_control_plane_point_one_way() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../control-plane/src");
    for (folder, floors) in FOLDERS {
        let wrong = arrows_within(&source.join(folder), &format!("crate::{folder}::"), floors);
        assert_eq!(wrong, Vec::<String>::new(), "{folder}");
    }
}

#[test]
fn layers_of_kubectl_point_one_way() {
    let turned: Vec<&[&str]> = COMMANDS.iter().rev().copied().collect();
    // What points downwards in both orders does not point from a command to another.
    for commands in [COMMANDS, &turned] {
        let floors = [KUBECTL, commands].concat();
        assert_eq!(
            arrows_upwards("control-plane/kubectl", &floors),
            Vec::<String>::new()
        );
    }
}

/// Checks that the driver of the fuzz targets uses nothing of the product: it is a dev-dependency
/// of what it updates.
#[test]
fn the_fuzz_driver_uses_nothing_of_the_product() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    for file in sources(&folder.join("src")) {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let names = text.match_indices("muster_").map(|(at, _)| &text[at..]);
        let others: Vec<&str> = names
            .filter(|name| !name.starts_with("muster_fuzz"))
            .collect();
        assert!(others.is_empty(), "{} uses {others:?}", file.display());
    }
}

#[test]
fn layers_of_the_embedded_api_point_one_way() {
    assert_eq!(
        arrows_upwards("e2e/apiserver", APISERVER),
        Vec::<String>::new()
    );
}

#[test]
fn layers_of_the_simulation_point_one_way() {
    assert_eq!(
        arrows_upwards("e2e/simulation", SIMULATION),
        Vec::<String>::new()
    );
}

#[test]
fn arrows_are_found_in_all_their_spellings() {
    let modules = BTreeSet::from(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    for (module, text, used) in [
        ("a", "use crate::b::X;", "b"),
        ("a", "use crate::{b, c::Y};", "b c"),
        ("a", "let x = crate::c::f();", "c"),
        ("a::x", "use super::super::b::X;", "b"),
        ("a::x", "use super::b::X;", ""),
        ("a", "use super::{c, b};", "b c"),
        ("a", "mod tests {\n    use super::super::b;\n}", "b"),
        ("a", "// crate::b\n/// [`crate::c`]", ""),
        ("a", "use crate::COMPONENT;", ""),
    ] {
        let path: Vec<&str> = module.split("::").collect();
        let found: Vec<String> = uses(&path, text, &modules).into_iter().collect();
        assert_eq!(found.join(" "), used, "{text}");
    }
}

/// Returns the arrows of a crate that point upwards, and the modules that no floor names.
fn arrows_upwards(crate_name: &str, floors: &[&[&str]]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(crate_name)
        .join("src");
    arrows_within(&root, "crate::", floors)
}

/// Returns the arrows among the modules of a folder that point upwards, and the modules that no
/// floor names. `start` is how the path of a module of the folder begins.
fn arrows_within(root: &Path, start: &str, floors: &[&[&str]]) -> Vec<String> {
    let floor_of: BTreeMap<&str, usize> = floors
        .iter()
        .enumerate()
        .flat_map(|(floor, modules)| modules.iter().map(move |module| (*module, floor)))
        .collect();
    let files = sources(root);
    assert!(files.len() > 20, "{} has few files", root.display());
    let module_of = |file: &Path| -> Vec<String> {
        let relative = file.strip_prefix(root).unwrap_or(file).with_extension("");
        let mut path: Vec<String> = relative
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        if path.last().is_some_and(|last| last == "mod") {
            path.pop();
        }
        path
    };
    let modules: BTreeSet<String> = files
        .iter()
        .filter_map(|file| module_of(file).into_iter().next())
        .filter(|module| !["lib", "main", "bin"].contains(&module.as_str()))
        .collect();
    let mut wrong: Vec<String> = modules
        .iter()
        .filter(|module| !floor_of.contains_key(module.as_str()))
        .map(|module| format!("{module} has no floor"))
        .collect();
    for file in &files {
        let path = module_of(file);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let Some(own) = path.first().and_then(|module| floor_of.get(module)) else {
            continue;
        };
        let text = std::fs::read_to_string(file).expect("a source file");
        // Only paths into the folder count: other modules of the crate may have the same names.
        let text = text
            .replace(start, "folder::")
            .replace("crate::", "elsewhere::");
        let text = text.replace("folder::", "crate::");
        for used in uses(&path, &text, &modules) {
            let upwards = floor_of.get(used.as_str()).is_some_and(|floor| floor > own);
            let aside = used != path[0] && floor_of.get(used.as_str()) == Some(own);
            if upwards || (aside && floors[*own].len() == 1) {
                wrong.push(format!("{} uses {used}", file.display()));
            }
        }
    }
    wrong
}

/// Returns the top-level modules that a file's text uses.
fn uses(path: &[&str], text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"//[^\n]*").expect("a pattern"));
    static WAY: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(crate|super(?:::super)*)::(\{[^;]*\}|\w+)").expect("a pattern")
    });
    let text = COMMENT.replace_all(text, "");
    let inline: Vec<(usize, usize)> = inline_modules(&text);
    let mut found = BTreeSet::new();
    for part in WAY.captures_iter(&text) {
        let (Some(whole), root, rest) = (part.get(0), &part[1], &part[2]) else {
            continue;
        };
        let nested = inline
            .iter()
            .filter(|(start, end)| (*start..*end).contains(&whole.start()))
            .count();
        let depth = path.len() + nested;
        if root != "crate" && root.matches("super").count() != depth {
            continue;
        }
        let names = rest.trim_matches(['{', '}']).split(',');
        for name in names.filter_map(|name| name.trim().split("::").next()) {
            if modules.contains(name) && name != path[0] {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// Returns where the bodies of modules within a file begin and end, as formatted by rustfmt.
fn inline_modules(text: &str) -> Vec<(usize, usize)> {
    static BEGIN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^( *)(?:pub(?:\([^)]*\))? )?mod \w+ \{").expect("a pattern")
    });
    BEGIN
        .captures_iter(text)
        .filter_map(|found| {
            let (whole, indent) = (found.get(0)?, &found[1]);
            let end = text[whole.end()..].find(&format!("\n{indent}}}"))?;
            Some((whole.start(), whole.end() + end))
        })
        .collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Checks that every dependency is used: one that nobody uses costs every build, and a place in
/// every advisory.
#[test]
fn every_dependency_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut unused = Vec::new();
    for member in [
        "shared",
        "shared/interpreter",
        "shared/quantity",
        "shared/vectors",
        "agent",
        "control-plane",
        "control-plane/kubectl",
        "e2e",
        "e2e/apiserver",
        "e2e/fleet",
        "e2e/fuzz",
        "e2e/sandbox",
        "e2e/simulation",
    ] {
        let folder = root.join(member);
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let own = |folder: &Path| {
            let parts = ["src", "tests", "benches", "examples", "build.rs"];
            let parts = parts.map(|part| folder.join(part));
            parts.into_iter().filter(|part| part.exists())
        };
        let files = own(&folder).flat_map(|part| {
            if part.is_dir() {
                sources(&part)
            } else {
                vec![part]
            }
        });
        let text: String = files
            .map(|file| std::fs::read_to_string(file).expect("a source file"))
            .collect();
        for name in dependencies(&manifest) {
            let word = Regex::new(&format!(r"\b{}\b", name.replace('-', "_")));
            if !word.expect("a pattern").is_match(&text) {
                unused.push(format!("{member}: {name}"));
            }
        }
    }
    assert_eq!(unused, Vec::<String>::new());
}

/// Returns the names of all dependencies in a manifest, which names one a line.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]")
            && let Some((name, _)) = line.split_once(['=', '.'])
            && !name.starts_with('#')
        {
            found.push(name.trim());
        }
    }
    assert!(!found.is_empty(), "no dependency in {manifest}");
    found
}
