//! The chart in a Kubernetes cluster. The API server admits all objects, and a node runs the pods. `make kubernetes` builds
//! Kubernetes and runs these tests.

mod cluster;
mod release;
mod services;

use std::path::PathBuf;

use self::release::{FULLNAME, Release, SERVER};
use crate::helm::{chart, examples};

fn example(name: &str) -> PathBuf {
    chart().join("examples").join(name)
}

#[test]
#[ignore = "needs Kubernetes, which `make kubernetes` builds"]
fn every_example_is_installed_tested_upgraded_rolled_back_and_removed() {
    for example in examples() {
        let name = example.file_stem().unwrap().to_str().unwrap();
        let release = Release::prepare(name, &example);
        release.helm("install", &["--wait"]);
        release.passes_its_test();
        release.helm(
            "upgrade",
            &["--wait", "--set", "podAnnotations.changed=yes"],
        );
        release.helm("rollback", &["1", "--wait"]);
        release.passes_its_test();
        release.helm("uninstall", &["--wait"]);
        release.is_removed();
    }
}

#[test]
#[ignore = "needs Kubernetes, which `make kubernetes` builds"]
fn sessions_are_backed_up_and_survive_a_deleted_pod_a_drained_node_and_a_new_release() {
    let release = Release::prepare("survival", &example("production.yaml"));
    release.helm("install", &["--wait"]);
    release.import("before");
    let backup = release.run_job("backup");
    assert!(backup.contains("1 session"), "{backup}");
    let check = release.run_job("backup-check");
    assert!(check.contains("1 session"), "{check}");
    let first = release.ready_pod(None);

    release.kubectl(&["delete", "pod", SERVER]);
    let second = release.ready_pod(Some(&first));
    assert_eq!(release.sessions(), ["before"]);

    // The budget allows the only pod to be unavailable, so a drain does not wait for an operator.
    assert!(release.drain("5m"), "{}", release.state());
    release.kubectl(&["uncordon", "node"]);
    release.ready_pod(Some(&second));
    assert_eq!(release.sessions(), ["before"]);

    // The claim of a removed release keeps the sessions for the next one.
    release.helm("uninstall", &["--wait"]);
    release.is_removed();
    release.helm("install", &["--wait"]);
    assert_eq!(release.sessions(), ["before"]);
    release.helm("uninstall", &["--wait"]);
}

#[test]
#[ignore = "needs Kubernetes, which `make kubernetes` builds"]
fn the_network_policy_admits_the_clients_of_the_values_only() {
    let release = Release::prepare("policy", &example("production.yaml"));
    release.helm("install", &["--wait"]);
    release.passes_its_test();
    // The label of the namespace admits clients.
    assert!(release.is_reached_from("friend", "palimpsest.example.com/client=true"));
    assert!(!release.is_reached_from("stranger", "palimpsest.example.com/other=true"));
    release.helm("uninstall", &["--wait"]);
}

#[test]
#[ignore = "needs Kubernetes, which `make kubernetes` builds"]
fn servers_of_a_database_share_sessions_and_drain_one_by_one() {
    let release = Release::prepare("shared", &example("scale-out.yaml"));
    release.helm("install", &["--wait"]);
    // Without a source of metrics, the autoscaler creates the minimum.
    let minimum = "--for=jsonpath={.status.readyReplicas}=3";
    let servers = format!("deployment/{FULLNAME}-server");
    release.kubectl(&["wait", &servers, minimum, "--timeout=5m"]);
    release.import("shared");
    // Calls reach all servers.
    for _ in 0..6 {
        assert_eq!(release.sessions(), ["shared"]);
    }

    // The only node has no place for replacements, so the budget stops the drain after one pod of each deployment.
    let (servers, workers) = (release.ready("server"), release.ready("worker"));
    assert!(!release.drain("30s"), "{}", release.state());
    assert_eq!(release.ready("server"), servers - 1, "{}", release.state());
    assert_eq!(release.ready("worker"), workers - 1, "{}", release.state());
    assert_eq!(release.sessions(), ["shared"]);
    release.kubectl(&["uncordon", "node"]);
    for component in ["server", "worker"] {
        release.kubectl(&[
            "rollout",
            "status",
            &format!("deployment/{FULLNAME}-{component}"),
        ]);
    }
    release.helm("uninstall", &["--wait"]);
    release.is_removed();
}
