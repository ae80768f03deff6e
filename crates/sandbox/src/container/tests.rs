use interlock_config::types::SandboxDocker;
use interlock_plan::{SandboxLimits, SandboxUser};

use super::*;

fn order() -> ContainerOrder {
    ContainerOrder {
        plan: ContainerPlan {
            socket: "/run/engine.sock".to_owned(),
            name: "interlock-sbx-1".to_owned(),
            image: "tiny:1".to_owned(),
            image_id: format!("sha256:{}", "a".repeat(64)),
            setup_command: None,
            home: "/home/a b".to_owned(),
            home_source: "/state/sandboxes/1/home:rw,z".to_owned(),
            env: BTreeMap::from([("A".to_owned(), "x=y\n--privileged".to_owned())]),
        },
        backend: SandboxBackend::Docker,
        scope_id: "1".to_owned(),
        scope_directory: "/state/sandboxes/1".to_owned(),
        user: SandboxUser {
            uid: 1000,
            gid: 1000,
            host_uid: 2_000_000_001,
            host_gid: 2_000_000_001,
        },
        limits: SandboxLimits {
            memory_bytes: Some(1 << 20),
            pids: Some(7),
            milli_cpus: Some(500),
            output_bytes: None,
            tmp_bytes: 1,
            disk_free_bytes: None,
        },
    }
}

/// Values of the owner stand in fields of their own: none becomes a part of another one.
#[test]
fn a_container_is_asked_for_without_rights() {
    let body = creation(&order());
    let host = &body["HostConfig"];
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["CapDrop"], json!(["ALL"]));
    assert_eq!(host["SecurityOpt"], json!(["no-new-privileges"]));
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["Init"], true);
    assert_eq!(host["Memory"], 1 << 20);
    assert_eq!(host["PidsLimit"], 7);
    assert_eq!(host["NanoCpus"], 500_000_000);
    assert_eq!(host["Mounts"][0]["Source"], "/state/sandboxes/1/home:rw,z");
    assert_eq!(host["Mounts"][0]["Target"], "/home/a b");
    assert!(host.get("Binds").is_none());
    assert_eq!(body["User"], "2000000001:2000000001");
    assert_eq!(body["Env"][0], "A=x=y\n--privileged");
    assert_eq!(body["Labels"][DIRECTORY_LABEL], "/state/sandboxes/1");
}

#[test]
fn only_names_of_images_are_asked_for() {
    for image in [
        "debian",
        "debian:bookworm-slim",
        "ghcr.io/a/b_c@sha256:0a",
        "localhost:5000/x",
    ] {
        assert_eq!(image_name(Some(image)).unwrap(), image);
    }
    let long = "a".repeat(256);
    for image in [
        "-x",
        "--privileged",
        "",
        " a",
        "a b",
        "a\nb",
        "a'b",
        "a\"b",
        "a/../b",
        "a//b",
        "/a",
        "a?x=1",
        "a#b",
        "a%2e",
        "ä",
        &long,
    ] {
        assert!(image_name(Some(image)).is_err(), "{image}");
    }
    assert!(
        image_name(None)
            .unwrap_err()
            .to_string()
            .contains("docker.image")
    );
    for prefix in ["-x", "", "a/b", "a b", "a\n", "a?b", &long] {
        assert!(name_prefix(Some(prefix)).is_err(), "{prefix}");
    }
    assert_eq!(name_prefix(None).unwrap(), PREFIX);
}

fn made() -> Value {
    json!({ "HostConfig": {
        "Privileged": false, "ReadonlyRootfs": true, "NetworkMode": "none", "PidMode": "",
        "IpcMode": "private", "UTSMode": "", "UsernsMode": "", "CapAdd": null, "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"], "Devices": null } })
}

/// A container that another program loosened, or made by the same name, is not used.
#[test]
fn a_container_with_more_rights_is_not_used() {
    assert_eq!(looseness(&made()), None);
    for (key, value) in [
        ("Privileged", json!(true)),
        ("Privileged", Value::Null),
        ("ReadonlyRootfs", json!(false)),
        ("NetworkMode", json!("host")),
        ("NetworkMode", json!("container:x")),
        ("PidMode", json!("host")),
        ("IpcMode", json!("container:x")),
        ("UTSMode", json!("host")),
        ("UsernsMode", json!("host")),
        ("CapAdd", json!(["SYS_ADMIN"])),
        ("CapDrop", json!([])),
        ("SecurityOpt", json!(["seccomp=unconfined"])),
        ("SecurityOpt", json!(["label=disable"])),
        ("Devices", json!([{ "PathOnHost": "/dev/sda" }])),
    ] {
        let mut found = made();
        found["HostConfig"][key] = value.clone();
        assert!(looseness(&found).is_some(), "{key} {value}");
    }
}

#[test]
fn only_containers_with_the_labels_of_the_scope_are_its_own() {
    let of = |scope: &str, directory: &str| {
        let labels = json!({ SCOPE_LABEL: scope, DIRECTORY_LABEL: directory });
        json!({ "Config": { "Labels": labels } })
    };
    let directory = Path::new("/state/sandboxes/1");
    assert!(is_of_scope(&of("1", "/state/sandboxes/1"), directory));
    assert!(!is_of_scope(&of("1", "/other/sandboxes/1"), directory));
    assert!(!is_of_scope(
        &json!({ "Config": { "Labels": null } }),
        directory
    ));
    assert!(!is_of_scope(&json!({}), directory));
}

#[test]
fn an_engine_that_is_not_there_is_an_error_with_a_remedy() {
    let settings = Sandbox {
        docker: SandboxDocker {
            image: Some("tiny:1".to_owned()),
            ..SandboxDocker::default()
        },
        ..Sandbox::default()
    };
    // The usual socket may be there on a machine with Docker: then it has no such image.
    let state = tempfile::tempdir().unwrap();
    let planned = plan_container(
        &settings,
        SandboxBackend::Docker,
        "/state/sandboxes/1",
        ("/home/a", "/state/sandboxes/1/home"),
        state.path(),
    );
    let error = planned.unwrap_err();
    assert_eq!(error.code(), "SANDBOX_UNAVAILABLE");
    assert!(error.remedy().contains("docker"), "{}", error.remedy());
}
