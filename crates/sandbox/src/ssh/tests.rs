use super::*;

fn order() -> Option<SshOrder> {
    let Ok(client) = system_program("ssh", "openssh-client") else {
        println!("skipped: openssh-client is not installed");
        return None;
    };
    Some(SshOrder {
        plan: SshPlan {
            client,
            host: "far".to_owned(),
            user: Some("me".to_owned()),
            port: None,
            options: vec![
                "StrictHostKeyChecking=yes".to_owned(),
                "IdentityFile=\"/a b/key\"".to_owned(),
            ],
            control: "/s/1/c".to_owned(),
            root: "/tmp/x".to_owned(),
            client_env: [(AGENT.to_owned(), "/run/agent".to_owned())].into(),
        },
        scope_directory: "/s/1".to_owned(),
        seeded_from: None,
    })
}

/// A process that reaches the supervisor without an authorization cannot have its keeper start a program.
#[test]
fn an_order_names_no_program_but_the_client() {
    let Some(good) = order() else { return };
    assert_eq!(check_order(&good), Ok(()));
    let changes: [fn(&mut SshPlan); 10] = [
        |plan| plan.client.canonical = "/usr/bin/touch".to_owned(),
        |plan| plan.host = "-oProxyCommand=x".to_owned(),
        |plan| plan.host = "a b".to_owned(),
        |plan| plan.user = Some("-x".to_owned()),
        |plan| plan.options.push("ProxyCommand=touch x".to_owned()),
        |plan| plan.options.push("LocalCommand=touch x".to_owned()),
        |plan| {
            plan.options
                .push("IdentityFile=\"a\" ProxyCommand=\"x\"".to_owned());
        },
        |plan| plan.options.push("StrictHostKeyChecking=no".to_owned()),
        |plan| plan.control = "/elsewhere/c".to_owned(),
        |plan| {
            plan.client_env
                .insert("LD_PRELOAD".to_owned(), "x".to_owned());
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut order = good.clone();
        change(&mut order.plan);
        assert!(check_order(&order).is_err(), "change {number}");
    }
}

#[test]
fn a_directory_of_the_workspace_is_named_by_either_path() {
    let Some(SshOrder { plan, .. }) = order() else {
        return;
    };
    let of = |cwd: &str| far_directory("/home/w", &plan, cwd);
    assert_eq!(of("/home/w/a b").as_deref(), Some("/tmp/x/workspace/a b"));
    assert_eq!(of("/workspace").as_deref(), Some("/tmp/x/workspace"));
    assert_eq!(
        of("/tmp/x/workspace/c").as_deref(),
        Some("/tmp/x/workspace/c")
    );
    for outside in [
        "/home/w/../x",
        "/home/wx",
        "/etc",
        "/workspace/../..",
        "-x",
        "",
    ] {
        assert_eq!(of(outside), None, "{outside}");
    }
}
