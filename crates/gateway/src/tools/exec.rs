//! `exec`: where a command runs. The pipeline carries it out there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlock_config::ConfigFile;
use interlock_host::parameters::ExecParameters;
use interlock_host::{Route, Yield, route};
use serde_json::Value;

use super::local_run::LocalRun;
use super::node_run::NodeRun;
use super::result::ToolResult;
use super::run_outcome::RunRefusal;
use super::{CallError, ToolCall, directory, pipeline};
use crate::gateway::Gateway;
use crate::work::blocking;

pub(super) async fn exec(
    gateway: &Arc<Gateway>,
    config: &ConfigFile,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = ExecParameters::parse(arguments)?;
    let exec = config.config().exec_for(call.agent.as_str());
    // Before it is routed: a node is outside of a sandbox that the gateway's owner asks for, too.
    if let Err(error) = gateway.host.run_config() {
        let refusal = RunRefusal::denied(error.code(), error.to_string());
        return Ok(refusal.with_remedy(error.remedy()).into());
    }
    let (reader, key) = (Arc::clone(gateway), call.session_key.clone());
    let values = blocking(move || reader.host.session(&key)).await??;
    let patience = call.patience(&exec);
    match route(parameters.host, values.host.or(exec.host)) {
        Ok(Route::Gateway) => {
            let run = match local_run(gateway, config, call, parameters).await? {
                Ok(run) => Arc::new(run),
                Err(refused) => return Ok(refused),
            };
            pipeline::run(gateway, run, call, patience).await
        }
        Ok(Route::Node) => {
            let chosen = NodeRun::choose(gateway, config, &values, call, &parameters);
            match Box::pin(chosen).await? {
                Ok(run) => pipeline::run(gateway, Arc::new(run), call, patience).await,
                Err(refusal) => Ok(refusal.into()),
            }
        }
        Err(refused) => {
            let refusal = RunRefusal::denied(refused.code(), refused.to_string());
            Ok(refusal.with_remedy(Some(refused.remedy())).into())
        }
    }
}

async fn local_run(
    gateway: &Arc<Gateway>,
    config: &ConfigFile,
    call: &ToolCall,
    parameters: ExecParameters,
) -> Result<Result<LocalRun, ToolResult>, CallError> {
    let workdir = parameters.workdir.as_deref().map(Path::new);
    let start = match workdir.filter(|workdir| workdir.is_absolute()) {
        // An absolute directory needs nothing to start from.
        Some(workdir) => workdir.to_owned(),
        None => match directory(gateway, call).await? {
            Ok(start) => start,
            Err(refused) => return Ok(Err(refused)),
        },
    };
    let exec = config.config().exec_for(call.agent.as_str());
    let directory = || parameters.directory(&start);
    let cwd = gateway.host.as_run_account(&call.agent, directory)??;
    Ok(Ok(LocalRun {
        gateway: Arc::clone(gateway),
        call: call.clone(),
        cwd,
        yields: Yield::After(match (parameters.background, parameters.yield_after) {
            (true, _) => Duration::ZERO,
            (false, Some(time)) => time,
            (false, None) => exec.background_after(),
        }),
        parameters,
    }))
}
