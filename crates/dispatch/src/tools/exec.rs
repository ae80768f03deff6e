//! `exec`: determines where a command runs. The pipeline carries it out there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlock_command::Source;
use interlock_config::ConfigFile;
use interlock_host::parameters::ExecParameters;
use interlock_host::{
    CallEffects, Elevation, ElevationFacts, PreviewRefusal, Route, RouteFacts, RouteRefusal,
    RoutedCall, SessionValues, Yield, route_call,
};
use serde_json::Value;
use tokio::sync::oneshot;

use super::local_run::LocalRun;
use super::node_run::NodeRun;
use super::pipeline::{OutcomeReceiver, RunStart};
use super::result::ToolResult;
use super::run_outcome::{RunRefusal, ToolOutcome};
use super::{CallError, ToolCall, no_workspace, pipeline, start_directory};
use crate::dispatcher::Dispatcher;
use crate::work::waiting_place;

const RETRY_ON_NODE: &str = "retryOf repeats a run of this machine, and the call goes to a node";

pub(super) async fn exec(
    dispatcher: &Arc<Dispatcher>,
    config: &Arc<ConfigFile>,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = ExecParameters::parse(arguments)?;
    let patience = call.patience(&config.config().exec_for(call.agent.as_str()));
    // Checked before routing: a node is also outside of a sandbox that the gateway's owner demands.
    if let Err(error) = dispatcher.host.check_sandbox() {
        let refusal = RunRefusal::denied(error.code(), error.to_string());
        return Ok(refusal.with_remedy(error.remedy()).into());
    }
    match route_and_start(dispatcher, config, call, parameters).await? {
        RoutedExec::Here(run) => pipeline::run(dispatcher, run, call, patience).await,
        RoutedExec::Started(run, outcome) => {
            let outcome = outcome.await.map_err(|_| CallError::Stopping)?;
            pipeline::finish(dispatcher, run, call, outcome, patience).await
        }
        RoutedExec::Node(session, parameters, elevation) => {
            let asked = (&*parameters, elevation);
            let chosen = NodeRun::choose(dispatcher, config, &session, call, asked);
            match Box::pin(chosen).await? {
                Ok(run) => pipeline::run(dispatcher, Arc::new(run), call, patience).await,
                Err(refusal) => Ok(refusal.into()),
            }
        }
        RoutedExec::Nowhere(refused) => Ok(*refused),
    }
}

/// Determines where the call runs. A call for this machine is started by the same task, so that it
/// changes threads only once.
async fn route_and_start(
    dispatcher: &Arc<Dispatcher>,
    config: &Arc<ConfigFile>,
    call: &ToolCall,
    parameters: ExecParameters,
) -> Result<RoutedExec, CallError> {
    let (sender, routed) = oneshot::channel();
    let work = {
        let (dispatcher, config) = (Arc::clone(dispatcher), Arc::clone(config));
        let call = call.clone();
        move || {
            // A caller that returned continues with its approval: nothing is judged for it.
            let is_new = call.approval.is_none();
            let routed = RoutedExec::of(&dispatcher, &config, call, parameters);
            let place = waiting_place(&dispatcher).filter(|_| is_new);
            let (run, _place) = match (routed, place) {
                (Ok(RoutedExec::Here(run)), Some(place)) => (run, place),
                (routed, _) => {
                    let _ = sender.send(routed);
                    return;
                }
            };
            let (receiver, outcome) = OutcomeReceiver::waiting();
            let started = RoutedExec::Started(Arc::clone(&run), outcome);
            // A call whose caller left in the meantime is not started.
            if sender.send(Ok(started)).is_ok() {
                run.carry_out_here(RunStart::Judged, receiver);
            }
        }
    };
    // A started call continues when its caller leaves.
    drop(tokio::task::spawn_blocking(work));
    routed.await.map_err(|_| CallError::Stopping)?
}

/// A call and its destination.
enum RoutedExec {
    Here(Arc<LocalRun>),
    /// The call is being carried out here; the receiver gets the outcome.
    Started(Arc<LocalRun>, oneshot::Receiver<ToolOutcome>),
    Node(SessionValues, Box<ExecParameters>, Elevation),
    Nowhere(Box<ToolResult>),
}

impl RoutedExec {
    /// Routes a call by its parameters, conversation and config. Reads the database, and creates
    /// the directory in which a run on this machine starts.
    fn of(
        dispatcher: &Arc<Dispatcher>,
        config: &Arc<ConfigFile>,
        call: ToolCall,
        parameters: ExecParameters,
    ) -> Result<Self, CallError> {
        let scope = dispatcher
            .host
            .scope_under(&call.agent, Arc::clone(config))?;
        let session = dispatcher.host.session(&call.session_key)?;
        let standing = dispatcher
            .host
            .sandbox_standing(&scope, &call.agent, &call.session_key);
        let facts = RouteFacts {
            asked: parameters.host,
            session: session.host,
            exec: scope.exec(),
            sandbox: &standing,
        };
        let elevation = ElevationFacts {
            config: config.config(),
            agent: &call.agent,
            asked: parameters.elevated,
            session: session.elevated,
            sender: call.sender.as_ref(),
        };
        let routed = match route_call(facts, &elevation) {
            Ok(RoutedCall {
                route: Route::Node,
                elevation,
            }) => {
                if parameters.retry.is_some() {
                    let refusal = RunRefusal::denied("RETRY_REFUSED", RETRY_ON_NODE);
                    return Ok(Self::Nowhere(Box::new(refusal.into())));
                }
                if parameters.effects == Some(CallEffects::Preview) {
                    let refused = PreviewRefusal::OnNode;
                    let refusal = RunRefusal::denied(refused.code(), refused.to_string());
                    let refusal = refusal.with_remedy(Some(refused.remedy().to_owned()));
                    return Ok(Self::Nowhere(Box::new(refusal.into())));
                }
                return Ok(Self::Node(session, Box::new(parameters), elevation));
            }
            Ok(routed) => routed.route,
            Err(refused) => {
                if let RouteRefusal::Elevation(_) = &refused {
                    dispatcher.host.record_kept_inside(
                        &call.agent,
                        &Source::Text(parameters.command.clone()),
                        &call.session_key,
                    )?;
                }
                let refusal = RunRefusal::denied(refused.code(), refused.to_string());
                let refusal = refusal.with_remedy(Some(refused.remedy()));
                return Ok(Self::Nowhere(Box::new(refusal.into())));
            }
        };
        let workdir = parameters.workdir.as_deref().map(Path::new);
        let start = match workdir.filter(|workdir| workdir.is_absolute()) {
            // An absolute directory needs no starting point.
            Some(workdir) => workdir.to_owned(),
            None => match start_directory(&scope, &call) {
                Ok(start) => start,
                Err(error) => return Ok(Self::Nowhere(Box::new(no_workspace(&error)))),
            },
        };
        // The directories of a sandbox are checked when it is prepared.
        let cwd = if routed == Route::Sandbox {
            let named = parameters.workdir.as_deref().unwrap_or_default();
            if named.is_empty() {
                start.display().to_string()
            } else {
                start.join(named).display().to_string()
            }
        } else {
            scope.as_run_account(|| parameters.directory(&start))??
        };
        let yields = Yield::After(match (parameters.background, parameters.yield_after) {
            (true, _) => Duration::ZERO,
            (false, Some(time)) => time,
            (false, None) => scope.exec().background_after(),
        });
        drop(scope);
        Ok(Self::Here(Arc::new(LocalRun {
            dispatcher: Arc::clone(dispatcher),
            config: Arc::clone(config),
            call,
            parameters,
            cwd,
            yields,
        })))
    }
}
