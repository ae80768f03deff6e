//! The containers of scopes: they are made by Docker Engine or Podman, kept warm, and removed with
//! their scope. A run sees the root file system of its container; everything else of its sandbox is
//! the same as with the native backend.
//!
//! A container has Interlock's labels, which name the scope. A container without them is never
//! touched.

mod engine_api;
mod service;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use interlock_config::types::Sandbox;
use interlock_engine::sandbox::{ContainerOrder, SETUP_PATIENCE};
use interlock_plan::{ContainerPlan, SandboxBackend};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::error::SandboxError;
use crate::scope::short_name;
pub(crate) use engine_api::one_line;
use engine_api::{CALL_PATIENCE, EngineApi};

/// Prefix of the name of a container, if the config does not set one.
const PREFIX: &str = "interlock-sbx-";

/// Labels of a container: the scope that it belongs to, and the directory of that scope.
const SCOPE_LABEL: &str = "interlock.scope";
const DIRECTORY_LABEL: &str = "interlock.directory";

/// Prefix of the name of a record.
const RECORD: &str = "container-";

/// A script that waits until it is told to end.
const WAITING: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

/// The record of a container in the directory of its scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecord {
    pub engine: SandboxBackend,
    pub socket: String,
    pub name: String,
    pub image: String,
    pub image_id: String,
}

/// Plans the container of a scope. This asks the engine which image the name refers to.
pub(crate) fn plan_container(
    settings: &Sandbox,
    backend: SandboxBackend,
    scope_directory: &str,
    (home, home_source): (&str, &str),
    state_dir: &Path,
) -> Result<ContainerPlan, SandboxError> {
    let docker = &settings.docker;
    let image = image_name(docker.image.as_deref())?;
    let prefix = name_prefix(docker.container_prefix.as_deref())?;
    let (api, socket) = reach_engine(backend, state_dir)?;
    let asked = api.call("GET", &format!("/images/{image}/json"), None, CALL_PATIENCE);
    let answer = asked.map_err(|error| unreachable(backend, &socket, &error))?;
    let found = match answer.status {
        200 => answer.json().ok(),
        404 => {
            return Err(SandboxError::Engine {
                message: format!("{backend} has no image `{image}`"),
                remedy: format!("{backend} pull {image}"),
            });
        }
        _ => {
            return Err(SandboxError::Engine {
                message: format!(
                    "{backend} refuses the image `{image}`: {}",
                    answer.message()
                ),
                remedy: format!("{backend} image inspect {image}"),
            });
        }
    };
    let found = found.unwrap_or_default();
    let image_id = found["Id"].as_str().unwrap_or_default().to_owned();
    let digits = image_id.strip_prefix("sha256:").unwrap_or_default();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(SandboxError::Engine {
            message: format!("{backend} names no id of the image `{image}`"),
            remedy: format!("{backend} image inspect {image}"),
        });
    }
    let mut env = image_variables(&found);
    env.extend(docker.env.clone());
    let mut plan = ContainerPlan {
        socket: socket.display().to_string(),
        name: String::new(),
        image: image.to_owned(),
        image_id,
        setup_command: docker.setup_command.clone(),
        home: home.to_owned(),
        home_source: home_source.to_owned(),
        env,
    };
    // Another image, or another engine, makes another container.
    let mut hash = Sha256::new();
    hash.update(b"interlock container v1\0");
    hash.update(scope_directory.as_bytes());
    hash.update(serde_json::to_vec(&plan).unwrap_or_default());
    plan.name = format!("{prefix}{}", short_name(&hash.finalize(), 10));
    Ok(plan)
}

fn image_name(image: Option<&str>) -> Result<&str, SandboxError> {
    let Some(image) = image else {
        return Err(SandboxError::Setting {
            key: "docker.image",
            value: String::new(),
            rule: "a container needs an image, such as `debian:bookworm-slim`".to_owned(),
        });
    };
    let is_plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b':' | b'@')
    };
    let starts_well = image.starts_with(|first: char| first.is_ascii_alphanumeric());
    let has_odd_part = image.split('/').any(|part| matches!(part, "" | "." | ".."));
    if starts_well && !has_odd_part && image.len() <= 255 && image.bytes().all(is_plain) {
        return Ok(image);
    }
    Err(SandboxError::Setting {
        key: "docker.image",
        value: one_line(image),
        rule: "it is not the name of an image, such as `debian:bookworm-slim`".to_owned(),
    })
}

fn name_prefix(prefix: Option<&str>) -> Result<&str, SandboxError> {
    let prefix = prefix.unwrap_or(PREFIX);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let starts_well = prefix.starts_with(|first: char| first.is_ascii_alphanumeric());
    if starts_well && prefix.len() <= 40 && prefix.bytes().all(is_plain) {
        return Ok(prefix);
    }
    Err(SandboxError::Setting {
        key: "docker.containerPrefix",
        value: one_line(prefix),
        rule: "it has 1 to 40 letters, digits, `.`, `_` and `-`, the first a letter or digit"
            .to_owned(),
    })
}

fn image_variables(image: &Value) -> BTreeMap<String, String> {
    let listed = image["Config"]["Env"].as_array();
    let pairs = listed.into_iter().flatten().filter_map(|one| {
        let (name, value) = one.as_str()?.split_once('=')?;
        (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// Returns the engine by its socket: the one that the owner's environment names, the usual one or,
/// with Podman, one that Interlock opens.
fn reach_engine(
    backend: SandboxBackend,
    state_dir: &Path,
) -> Result<(EngineApi, PathBuf), SandboxError> {
    let is_podman = backend == SandboxBackend::Podman;
    let (variable, usual, below_runtime) = if is_podman {
        (
            "CONTAINER_HOST",
            "/run/podman/podman.sock",
            "podman/podman.sock",
        )
    } else {
        ("DOCKER_HOST", "/var/run/docker.sock", "docker.sock")
    };
    if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
        let named = named.to_string_lossy().into_owned();
        let Some(path) = named.strip_prefix("unix://") else {
            return Err(SandboxError::Engine {
                message: format!(
                    "{variable} is `{}`, which is no Unix socket",
                    one_line(&named)
                ),
                remedy: format!("start Interlock with {variable}=unix:///PATH, or without it"),
            });
        };
        let path = PathBuf::from(path);
        let api = EngineApi::at(&path).map_err(|error| unreachable(backend, &path, &error))?;
        return Ok((api, path));
    }
    let mut places = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR")
        && !rustix::process::geteuid().is_root()
    {
        places.push(Path::new(&runtime).join(below_runtime));
    }
    places.push(PathBuf::from(usual));
    let mut last = None;
    for place in places {
        match EngineApi::at(&place) {
            Ok(api) if !is_podman || api.is_there() => return Ok((api, place)),
            Ok(_) => {}
            Err(error) => last = Some((place, error)),
        }
    }
    if is_podman {
        return service::podman_service(state_dir);
    }
    let (place, error) = last.unwrap_or_else(|| (usual.into(), io::ErrorKind::NotFound.into()));
    Err(unreachable(backend, &place, &error))
}

fn unreachable(backend: SandboxBackend, socket: &Path, error: &io::Error) -> SandboxError {
    SandboxError::Engine {
        message: format!(
            "{backend} cannot be reached at {}: {error}",
            socket.display()
        ),
        remedy: match backend {
            SandboxBackend::Podman => "install podman, and try: podman info".to_owned(),
            _ => "install Docker Engine, start it, and try: docker info".to_owned(),
        },
    }
}

/// Ensures that the container of an order runs, and returns its first process. The keeper of the
/// scope calls this: it has one thread, and the engine has already been reached.
pub fn ready_container(order: &ContainerOrder) -> Result<i32, String> {
    let directory = Path::new(&order.scope_directory);
    let failed = |error: io::Error| format!("the container of the scope: {error}");
    let lock = File::create(directory.join("container.lock")).map_err(failed)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|error| failed(error.into()))?;
    let api = EngineApi::at(Path::new(&order.plan.socket)).map_err(failed)?;
    let container = ScopeContainer { order, api };
    container.ready()
}

/// The container of one order.
struct ScopeContainer<'a> {
    order: &'a ContainerOrder,
    api: EngineApi,
}

impl ScopeContainer<'_> {
    fn ready(&self) -> Result<i32, String> {
        let name = &self.order.plan.name;
        let record = record_path(Path::new(&self.order.scope_directory), name);
        let Some(found) = self.inspect()? else {
            if record.exists() {
                // Everything that runs left in it is gone, and a caller must learn that.
                std::fs::remove_file(&record).map_err(|error| error.to_string())?;
                return Err(format!(
                    "its container {name} vanished; the next call makes it anew"
                ));
            }
            return self.make(&record);
        };
        self.check(&found)?;
        let found = if found["State"]["Running"] == true {
            found
        } else {
            self.call("POST", "/start", None)?;
            let found = self.inspect()?.ok_or("its container ended at once")?;
            self.check(&found)?;
            found
        };
        first_process(&found)
    }

    fn make(&self, record: &Path) -> Result<i32, String> {
        let plan = &self.order.plan;
        let written = ContainerRecord {
            engine: self.order.backend,
            socket: plan.socket.clone(),
            name: plan.name.clone(),
            image: plan.image.clone(),
            image_id: plan.image_id.clone(),
        };
        // The record comes before the container, so that every container has a record by which it
        // is removed.
        let text = serde_json::to_vec_pretty(&written).map_err(|error| error.to_string())?;
        std::fs::write(record, text).map_err(|error| format!("{}: {error}", record.display()))?;
        let made = self.create().and_then(|()| {
            self.call("POST", "/start", None)?;
            let found = self.inspect()?.ok_or("its container ended at once")?;
            self.check(&found)?;
            self.set_up()?;
            first_process(&found)
        });
        if made.is_err() {
            let removed = remove_container(Path::new(&self.order.scope_directory), &written);
            if removed.is_ok() {
                let _ = std::fs::remove_file(record);
            }
        }
        made
    }

    fn create(&self) -> Result<(), String> {
        let path = format!("/containers/create?name={}", self.order.plan.name);
        let answer = self
            .api
            .call("POST", &path, Some(&creation(self.order)), CALL_PATIENCE)
            .map_err(|error| format!("the engine did not make its container: {error}"))?;
        if answer.is_success() {
            Ok(())
        } else {
            let why = answer.message();
            Err(format!("the engine did not make its container: {why}"))
        }
    }

    fn inspect(&self) -> Result<Option<Value>, String> {
        inspect(&self.api, &self.order.plan.name)
    }

    fn call(&self, method: &str, what: &str, body: Option<&Value>) -> Result<Value, String> {
        let path = format!("/containers/{}{what}", self.order.plan.name);
        answered(&self.api, (method, &path), body, CALL_PATIENCE)
    }

    /// Runs the owner's own command, once.
    fn set_up(&self) -> Result<(), String> {
        let plan = &self.order.plan;
        let Some(text) = &plan.setup_command else {
            return Ok(());
        };
        let order = json!({
            "Cmd": ["/bin/sh", "-lc", text],
            "User": user_words(self.order),
            "Env": variables(plan),
            "WorkingDir": plan.home,
            "AttachStdout": true,
            "AttachStderr": true,
        });
        let made = self.call("POST", "/exec", Some(&order))?;
        let id = made["Id"].as_str().unwrap_or_default();
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("the engine names no id of setupCommand".to_owned());
        }
        let start = json!({ "Detach": false, "Tty": false });
        let path = format!("/exec/{id}/start");
        let written = self
            .api
            .call("POST", &path, Some(&start), SETUP_PATIENCE)
            .map_err(|error| format!("setupCommand of its container: {error}"))?;
        let path = format!("/exec/{id}/json");
        let ended = answered(&self.api, ("GET", &path), None, CALL_PATIENCE)?;
        if written.is_success() && ended["Running"] == false && ended["ExitCode"] == 0 {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&written.body).into_owned();
        Err(format!(
            "setupCommand of its container failed with exit code {}, and the container is removed: {}",
            ended["ExitCode"],
            one_line(&said)
        ))
    }

    /// Checks that this is the container of the plan, and that it is confined as requested.
    fn check(&self, found: &Value) -> Result<(), String> {
        let name = &self.order.plan.name;
        if !is_of_scope(found, Path::new(&self.order.scope_directory)) {
            return Err(format!(
                "a container named {name} is there that is not Interlock's; remove or rename it"
            ));
        }
        if found["Image"] != self.order.plan.image_id.as_str() {
            return Err(format!(
                "the container {name} has another image than the plan"
            ));
        }
        match looseness(found) {
            Some(fault) => Err(format!("the container {name} {fault}; remove it")),
            None => Ok(()),
        }
    }
}

/// Returns why a container is less confined than Interlock makes it, if it is.
fn looseness(found: &Value) -> Option<&'static str> {
    let host = &found["HostConfig"];
    let text = |key: &str| host[key].as_str().unwrap_or_default();
    let has_any = |key: &str| host[key].as_array().is_some_and(|list| !list.is_empty());
    let is_foreign = |key: &str| {
        text(key) == "host" || text(key).starts_with("container:") || text(key).starts_with("ns:")
    };
    let mut options = host["SecurityOpt"].as_array().into_iter().flatten();
    let is_unconfined = |option: &Value| {
        let option = option.as_str().unwrap_or_default();
        option.contains("unconfined") || option.ends_with("disable")
    };
    if host["Privileged"] != false {
        Some("is privileged")
    } else if host["ReadonlyRootfs"] != true {
        Some("has a root that can be written to")
    } else if text("NetworkMode") != "none" {
        Some("has a network")
    } else if ["PidMode", "IpcMode", "UTSMode", "UsernsMode"]
        .into_iter()
        .any(is_foreign)
    {
        Some("shares a namespace")
    } else if has_any("CapAdd") || !has_any("CapDrop") {
        Some("has capabilities")
    } else if has_any("Devices") {
        Some("has devices")
    } else if options.any(is_unconfined) {
        Some("is unconfined")
    } else {
        None
    }
}

/// The request that makes a container.
fn creation(order: &ContainerOrder) -> Value {
    let ContainerOrder { plan, limits, .. } = order;
    let mut host = json!({
        "Init": true,
        "ReadonlyRootfs": true,
        "Privileged": false,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "NetworkMode": "none",
        "IpcMode": "private",
        "RestartPolicy": { "Name": "no" },
        "Mounts": [{
            "Type": "bind",
            "Source": plan.home_source,
            "Target": plan.home,
            "ReadOnly": false,
        }],
    });
    if order.backend == SandboxBackend::Podman
        && order.user.host_uid != 0
        && !rustix::process::geteuid().is_root()
    {
        // In the container of a rootless engine, the account keeps its number.
        host["UsernsMode"] = json!("keep-id");
    }
    if let Some(memory) = limits.memory_bytes {
        host["Memory"] = json!(memory);
    }
    if let Some(cpus) = limits.milli_cpus {
        host["NanoCpus"] = json!(cpus.saturating_mul(1_000_000));
    }
    if let Some(pids) = limits.pids {
        host["PidsLimit"] = json!(pids);
    }
    json!({
        "Image": plan.image_id,
        "Entrypoint": ["/bin/sh"],
        "Cmd": ["-c", WAITING],
        "User": user_words(order),
        "WorkingDir": "/",
        "Env": variables(plan),
        "Labels": {
            SCOPE_LABEL: order.scope_id,
            DIRECTORY_LABEL: order.scope_directory,
        },
        "HostConfig": host,
    })
}

fn user_words(order: &ContainerOrder) -> String {
    format!("{}:{}", order.user.host_uid, order.user.host_gid)
}

fn variables(plan: &ContainerPlan) -> Vec<String> {
    let home = format!("HOME={}", plan.home);
    let listed = plan
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    listed.chain([home]).collect()
}

fn first_process(found: &Value) -> Result<i32, String> {
    let number = found["State"]["Pid"].as_i64().unwrap_or_default();
    match i32::try_from(number) {
        Ok(number) if number > 1 && found["State"]["Running"] == true => {
            check_reach(number)?;
            Ok(number)
        }
        _ => Err("its container ended at once; the image needs `/bin/sh` and `sleep`".to_owned()),
    }
}

/// Checks that this process may enter the container. Only root can enter a container that an engine
/// of root made: the group `docker` gives no such right.
fn check_reach(process: i32) -> Result<(), String> {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let is_own = of("self").is_some() && of("self") == of(&process.to_string());
    if rustix::process::geteuid().is_root() || !is_own {
        return Ok(());
    }
    Err("its engine runs as root, and Interlock does not: use the rootless podman of this account (`backend: \"podman\"`), or run Interlock as root".to_owned())
}

fn inspect(api: &EngineApi, name: &str) -> Result<Option<Value>, String> {
    let failed = |why: String| format!("the engine says nothing of the container {name}: {why}");
    let answer = api
        .call(
            "GET",
            &format!("/containers/{name}/json"),
            None,
            CALL_PATIENCE,
        )
        .map_err(|error| failed(error.to_string()))?;
    match answer.status {
        404 => Ok(None),
        200 => answer
            .json()
            .map(Some)
            .map_err(|error| failed(error.to_string())),
        _ => Err(failed(answer.message())),
    }
}

fn answered(
    api: &EngineApi,
    (method, path): (&str, &str),
    body: Option<&Value>,
    patience: std::time::Duration,
) -> Result<Value, String> {
    let answer = api
        .call(method, path, body, patience)
        .map_err(|error| format!("the engine did not answer: {error}"))?;
    if !answer.is_success() && answer.status != 304 {
        return Err(format!("the engine refused: {}", answer.message()));
    }
    Ok(answer.json().unwrap_or_default())
}

fn is_of_scope(found: &Value, directory: &Path) -> bool {
    let labels = &found["Config"]["Labels"];
    let has_scope = labels[SCOPE_LABEL].as_str().is_some();
    has_scope && labels[DIRECTORY_LABEL].as_str() == directory.to_str()
}

fn record_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{RECORD}{name}.json"))
}

/// Returns the containers of a scope, by its records.
pub(crate) fn containers_of(directory: &Path) -> Vec<ContainerRecord> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let is_record = |name: &str| name.starts_with(RECORD);
    let mut records: Vec<ContainerRecord> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_record))
        .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok())
        .collect();
    records.sort_by(|one, other| one.name.cmp(&other.name));
    records
}

/// Removes a container of a scope. A container that does not belong to this scope is left alone,
/// and a container that is gone is no error.
pub(crate) fn remove_container(directory: &Path, record: &ContainerRecord) -> io::Result<()> {
    let socket = Path::new(&record.socket);
    let unreached = |error: io::Error| {
        let message = format!("the container {}: {error}", record.name);
        io::Error::other(message)
    };
    let api = match EngineApi::at(socket) {
        Ok(api) if api.is_there() => api,
        Ok(_) | Err(_) if record.engine == SandboxBackend::Podman => {
            service::open_service(socket).map_err(unreached)?;
            EngineApi::at(socket).map_err(unreached)?
        }
        other => other.map_err(unreached)?,
    };
    let Some(found) = inspect(&api, &record.name).map_err(io::Error::other)? else {
        return Ok(());
    };
    if !is_of_scope(&found, directory) {
        return Ok(());
    }
    // The container is removed by its ID, because another one may have its name by now.
    let id = found["Id"].as_str().unwrap_or(&record.name);
    let path = format!("/containers/{id}?force=1&v=1");
    let answer = api
        .call("DELETE", &path, None, CALL_PATIENCE)
        .map_err(unreached)?;
    if answer.is_success() || answer.status == 404 {
        Ok(())
    } else {
        Err(unreached(io::Error::other(answer.message())))
    }
}

#[cfg(test)]
mod tests;
